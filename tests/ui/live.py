"""A running Airflow over small graphs, and what its users may try on it over the REST API."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import httpx
import lance
from omnigraph_airflow.demo_airflow import DemoAirflow, airflow_environment, free_port

from omnigraph_ops.config.graph_entries import nightly_dag_id
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.outcomes import audit_log
from tests.support.plain import rows
from tests.support.tables import PERSON
from tests.support.writers import copies, entry_of, write

DAG, APPROVE, REMOVE = "omnigraph_cleanup", "approve_cleanup", "cleanup_table"
USERS = ("viewer", "user", "op", "admin", "other")
"""Each has the role that it is called, `other` that of `user`."""
WAIT_SECONDS = 600
CALL_SECONDS = 180
"""A machine that does much else answers late."""
OVER = ("success", "failed", "skipped", "upstream_failed", "removed")
LOADED = "omnigraph://open/"
"""The asset whose update starts a night of `fed`."""
GRAPHS = """\
version: 1
defaults:
  schedule: null
  window: {{quiet_for: 0s}}
  optimize: {{executor: in_process, auto: true}}
  retention: {{keep: 1}}
graphs:
  guarded: {{target: "{root}/guarded.omni", approvals: {{approvers: [op, other]}}}}
  open: {{target: "{root}/open.omni"}}
  nightly:
    target: "{root}/nightly.omni"
    schedule: "0 1 * * *"
    approvals: {{cleanup: {standing}, repair: verified_maintenance}}
  listed:
    target: "{root}/listed.omni"
    schedule: "0 1 * * *"
    approvals: {{approvers: [op, other]}}
  fed: {{target: "{root}/fed.omni", triggered_by: ["{loaded}"]}}
  made: {{target: "{root}/made.omni"}}
  reserved: {{target: "{root}/reserved.omni", approvals: {{approvers: [other]}}}}
  linked: {{target: "{root}/linked.omni", approvals: {{approvers: [other]}}}}
  lake: {{target: "{root}/lake", approvals: {{approvers: [op, other]}}}}
  items: {{target: "{root}/lake/items.lance", approvals: {{approvers: [other]}}}}
"""
STANDING = "{max_versions: 1000, max_bytes: 1GiB}"
DRIFTED = ("nightly", "listed", "made", "reserved")
"""Graphs with a table whose newest version is verified maintenance that nobody published."""


@dataclass
class Live:
    """A running Airflow; `approvers` in `GRAPHS` say of which graphs only some may approve."""

    url: str
    root: Path
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def graphs_file(self) -> Path:
        return self.root / "graphs.yaml"

    def call(self, user: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.tokens[user]}"}
        return httpx.request(method, f"{self.url}/api/v2{path}", json=body, headers=headers, timeout=CALL_SECONDS)

    def graph(self, name: str) -> Graph:
        return open_graph(str(self.root / f"{name}.omni"))

    def versions(self, name: str) -> int:
        graph = self.graph(name)
        return len(graph.open_head(entry_of(graph, PERSON)).versions())

    def told(self, name: str) -> list[tuple[str, str]]:
        return [(str(e.event), e.actor) for e in audit_log.log_of(self.graph(name).storage, "").entries]

    def trigger(self, user: str, name: str, **conf: Any) -> str:
        """Start a cleanup; its path."""
        return self.start(user, DAG, **{"graph": name, "keep": 1, "older_than": None, "confirm": True, **conf})

    def start(self, user: str, dag_id: str, *, run_id: str | None = None, **conf: Any) -> str:
        """Start a run of a DAG as its form does; its path."""
        body = {"logical_date": None, "conf": conf} | ({"dag_run_id": run_id} if run_id else {})
        answer = self.call(user, "POST", f"/dags/{dag_id}/dagRuns", body)
        answer.raise_for_status()
        return path_of(answer.json())

    def unpause(self, dag_id: str) -> None:
        """As soon as Airflow knows the DAG."""
        self.wait(dag_id, lambda: self.call("admin", "PATCH", f"/dags/{dag_id}", {"is_paused": False}).is_success)

    def materialise(self, user: str, name: str, **conf: Any) -> str:
        """Have the asset of a graph made, which starts its night; the path of the run."""
        path, answers = f"/assets/{self.asset(f'omnigraph://{name}/')}/materialize", list[httpx.Response]()

        def begun() -> bool:
            # SQLite, under five runs that begin at once, refuses Airflow a write now and then.
            answers.append(self.call(user, "POST", path, {"conf": conf}))
            return answers[-1].status_code != HTTPStatus.INTERNAL_SERVER_ERROR

        self.wait(path, begun)
        answers[-1].raise_for_status()
        return path_of(answers[-1].json())

    def asset(self, uri: str) -> int:
        """The number of an asset, as soon as Airflow knows it."""

        def found() -> list[int]:
            assets = self.call("admin", "GET", "/assets?limit=100").json()["assets"]
            return [int(asset["id"]) for asset in assets if asset["uri"] == uri]

        self.wait(uri, lambda: bool(found()))
        return found()[0]

    def backfill(self, user: str, name: str, night: str, *, again: str = "none", **conf: Any) -> str:
        """Have the night of that moment made up for, or made `again`; the path of the run."""
        dag_id = nightly_dag_id(name)
        body = {
            "dag_id": dag_id,
            "from_date": night,
            "to_date": night,
            "reprocess_behavior": again,
            "dag_run_conf": conf,
        }
        answers: list[httpx.Response] = []

        def taken() -> bool:
            """SQLite has one writer: while another writes, Airflow answers that it is busy."""
            answers.append(self.call(user, "POST", "/backfills", body))
            return answers[-1].status_code != 503

        self.wait("the backfill", taken)
        assert answers[-1].is_success, answers[-1].text
        return self.run_of_type(dag_id, "backfill")

    def run_of_type(self, dag_id: str, run_type: str) -> str:
        """The path of the newest run of that type, as soon as there is one."""
        path = f"/dags/{dag_id}/dagRuns?run_type={run_type}&order_by=-id"

        def runs() -> list[Any]:
            return list(self.call("admin", "GET", path).json()["dag_runs"])

        self.wait(f"a {run_type} run of {dag_id}", lambda: bool(runs()))
        return path_of(runs()[0])

    def state(self, run: str) -> str:
        return str(self.call("admin", "GET", run).json()["state"])

    def task(self, run: str, task_id: str) -> str:
        found = self.call("admin", "GET", f"{run}/taskInstances/{task_id}").json()
        if "state" in found:
            return str(found["state"])
        mapped = self.call("admin", "GET", f"{run}/taskInstances/{task_id}/listMapped").json()["task_instances"]
        return ",".join(sorted({str(one["state"]) for one in mapped})) or "None"

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not ready():
            assert time.monotonic() < end, f"{what} did not happen"
            time.sleep(0.5)

    def asked(self, run: str, task_id: str = APPROVE) -> dict[str, Any]:
        """The question, as soon as it is there."""
        self.waits(run, task_id)
        # Airflow repeats a task that is answered before its executor has reported that it waits.
        time.sleep(10)
        return dict(self.call("admin", "GET", f"{run}/taskInstances/{task_id}/-1/hitlDetails").json())

    def waits(self, run: str, task_id: str = APPROVE) -> None:
        """Until a task waits for its answer; one that is over has not asked."""

        def waiting() -> bool:
            now = self.task(run, task_id)
            assert now not in OVER, f"{task_id} asked nobody: {now}"
            return now == "awaiting_input"

        self.wait("the question", waiting)

    def answer(self, user: str, run: str, option: str = "Approve", task_id: str = APPROVE) -> int:
        body = {"chosen_options": [option], "params_input": {}}
        path = f"{run}/taskInstances/{task_id}/-1/hitlDetails"
        return self.call(user, "PATCH", path, body).status_code

    def mark(self, user: str, run: str, task_id: str, state: str) -> None:
        """Say of a task that it is a success, a failure, or was skipped."""
        self.call(user, "PATCH", f"{run}/taskInstances/{task_id}", {"new_state": state}).raise_for_status()

    def ended(self, run: str) -> str:
        self.wait("the end of the run", lambda: self.state(run) in {"success", "failed"})
        return self.state(run)

    def stop(self, run: str) -> None:
        """Mark a run a failure, as a user may."""
        self.call("user", "PATCH", run, {"state": "failed"}).raise_for_status()

    def clear(self, user: str, run: str, *tasks: str) -> None:
        dag_id, run_id = run.split("/")[2], unquote(run.rpartition("/")[2])
        body = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "reset_dag_runs": True}
        if tasks:
            body |= {"task_ids": list(tasks), "include_downstream": True}
        self.call(user, "POST", f"/dags/{dag_id}/clearTaskInstances", body).raise_for_status()

    def xcom(self, user: str, method: str, entry: str, value: Any = None) -> Any:
        """Read, write or delete an XCom, named by `xcom_of`; the value that is read."""
        body = None if value is None else {"value": value, "map_index": -1}
        answer = self.call(user, method, entry, body)
        answer.raise_for_status()
        return answer.json()["value"] if method == "GET" else None

    def failure(self, run: str, task_id: str) -> str:
        """What a task that failed left for the report."""
        mapped = self.call("admin", "GET", f"{run}/taskInstances/{task_id}/listMapped").json().get("task_instances")
        index = mapped[0]["map_index"] if mapped else -1
        path = f"{run}/taskInstances/{task_id}/xcomEntries/failure?map_index={index}&deserialize=true"
        return str(self.call("admin", "GET", path).json()["value"])


def xcom_of(run: str, task_id: str, key: str) -> str:
    return f"{run}/taskInstances/{task_id}/xcomEntries/{key}"


def path_of(run: dict[str, Any]) -> str:
    return f"/dags/{run['dag_id']}/dagRuns/{quote(run['dag_run_id'], safe='')}"


@contextmanager
def airflow(root: Path) -> Iterator[Live]:
    """Start Airflow over the graphs, with a token of every user. Writes."""
    write_graphs(root)
    port = free_port(8096)
    home = root / "airflow"
    roles = ",".join(f"{user}:{'user' if user == 'other' else user}" for user in USERS)
    environment = airflow_environment(home, port, root / "link.omni", {}) | {
        "OMNIGRAPH_GRAPHS_FILE": str(root / "graphs.yaml"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": roles,
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "True",
    }
    running = DemoAirflow(home, port, environment)
    running.start()
    try:
        made = Live(running.url, root)
        passwords = json.loads((home / "passwords.json").read_text())
        for user in USERS:
            body = {"username": user, "password": passwords[user]}
            made.tokens[user] = httpx.post(f"{running.url}/auth/token", json=body).json()["access_token"]
        made.unpause(DAG)
        yield made
    finally:
        running.stop()


def write_graphs(root: Path) -> None:
    """The graphs, and the file that describes them. Writes."""
    for name in ("guarded", "open", "nightly", "listed", "fed", "made", "reserved", "linked"):
        drifted = ("node:Company",) if name in DRIFTED else ()
        spec = DemoSpec(node_types=2 if drifted else 1, loads=6, rows=4, drift_tables=drifted)
        write_demo_graph(str(root / f"{name}.omni"), spec)
    (root / "link.omni").symlink_to(root / "linked.omni")
    for start in range(0, 90, 30):
        lance.write_dataset(rows(start, 30), str(root / "lake" / "items.lance"), mode="append" if start else "create")
    (root / "graphs.yaml").write_text(GRAPHS.format(root=root, standing=STANDING, loaded=LOADED))


def removed_by(actor: str, told: list[tuple[str, str]]) -> bool:
    """Whether the audit log ends with an approval of that actor, and a start and an end of each task that removes."""
    last = len(told) - told[::-1].index(("approved", actor))
    events = [event for event, by in told[last:] if by == actor]
    return len(events) == len(told[last:]) and events.count("started") == events.count("applied") > 0


def grow(graph: Graph) -> None:
    """Versions that a cleanup may remove, published as a writer of the graph does. Writes."""
    for number in range(3):
        write(graph, PERSON, copies(f"{time.time_ns()}-{number}-"))
