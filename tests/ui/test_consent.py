"""Who can make what happen, on a running Airflow: ways to start or change a run, by users with few rights."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from omnigraph_airflow.demo_airflow import DemoAirflow, airflow_environment, free_port

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.outcomes import audit_log
from tests.support.tables import PERSON
from tests.support.writers import entry_of
from tests.ui.conftest import CHROMIUM

pytestmark = [pytest.mark.ui, pytest.mark.xdist_group("live-consent")]
DAG, APPROVE, REMOVE = "omnigraph_cleanup", "approve_cleanup", "cleanup_table"
USERS = ("viewer", "user", "op", "admin", "other")
"""Each has the role that it is called, `other` that of `user`."""
WAIT_SECONDS = 180
GRAPHS = """\
version: 1
graphs:
  guarded: {{target: "{root}/guarded.omni", approvals: {{approvers: [op, other]}}}}
  open: {{target: "{root}/open.omni"}}
"""


@dataclass
class Live:
    """A running Airflow over two graphs: of one only `op` and `other` may approve."""

    url: str
    root: Path
    tokens: dict[str, str] = field(default_factory=dict)

    def call(self, user: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.tokens[user]}"}
        return httpx.request(method, f"{self.url}/api/v2{path}", json=body, headers=headers, timeout=60)

    def graph(self, name: str) -> Graph:
        return open_graph(str(self.root / f"{name}.omni"))

    def versions(self, name: str) -> int:
        graph = self.graph(name)
        return len(graph.open_head(entry_of(graph, PERSON)).versions())

    def told(self, name: str) -> list[tuple[str, str]]:
        return [(str(e.event), e.actor) for e in audit_log.read(self.graph(name).storage)]

    def trigger(self, user: str, name: str, **conf: Any) -> str:
        """Start a cleanup; its path."""
        body = {"logical_date": None, "conf": {"graph": name, "keep": 1, "older_than": None, "confirm": True, **conf}}
        answer = self.call(user, "POST", f"/dags/{DAG}/dagRuns", body)
        answer.raise_for_status()
        return f"/dags/{DAG}/dagRuns/{quote(answer.json()['dag_run_id'], safe='')}"

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

    def asked(self, run: str) -> dict[str, Any]:
        """The question, as soon as it is there."""
        self.wait("the question", lambda: self.task(run, APPROVE) == "awaiting_input")
        # Airflow repeats a task that is answered before its executor has reported that it waits.
        time.sleep(10)
        return dict(self.call("admin", "GET", f"{run}/taskInstances/{APPROVE}/-1/hitlDetails").json())

    def answer(self, user: str, run: str, option: str = "Approve") -> int:
        body = {"chosen_options": [option], "params_input": {}}
        path = f"{run}/taskInstances/{APPROVE}/-1/hitlDetails"
        return self.call(user, "PATCH", path, body).status_code

    def ended(self, run: str) -> str:
        self.wait("the end of the run", lambda: self.state(run) in {"success", "failed"})
        return self.state(run)

    def clear(self, user: str, run: str, *tasks: str) -> None:
        run_id = run.rpartition("/")[2].replace("%3A", ":").replace("%2B", "+")
        body = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "reset_dag_runs": True}
        if tasks:
            body |= {"task_ids": list(tasks), "include_downstream": True}
        self.call(user, "POST", f"/dags/{DAG}/clearTaskInstances", body).raise_for_status()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    if not os.environ.get(CHROMIUM):
        pytest.skip("starts a whole Airflow: make test-ui")
    root = tmp_path_factory.mktemp("consent")
    for name in ("guarded", "open"):
        write_demo_graph(str(root / f"{name}.omni"), DemoSpec(node_types=1, loads=6, rows=4))
    file = root / "graphs.yaml"
    file.write_text(GRAPHS.format(root=root))
    port = free_port(8096)
    home = root / "airflow"
    roles = ",".join(f"{user}:{'user' if user == 'other' else user}" for user in USERS)
    environment = airflow_environment(home, port, root / "open.omni", {}) | {
        "OMNIGRAPH_GRAPHS_FILE": str(file),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": roles,
    }
    airflow = DemoAirflow(home, port, environment)
    airflow.start()
    try:
        made = Live(airflow.url, root)
        passwords = json.loads((home / "passwords.json").read_text())
        for user in USERS:
            body = {"username": user, "password": passwords[user]}
            made.tokens[user] = httpx.post(f"{airflow.url}/auth/token", json=body).json()["access_token"]
        made.wait(DAG, lambda: made.call("admin", "PATCH", f"/dags/{DAG}", {"is_paused": False}).is_success)
        yield made
    finally:
        airflow.stop()


def test_a_viewer_starts_answers_and_changes_nothing(live: Live) -> None:
    before = live.versions("guarded")
    body = {"logical_date": None, "conf": {"graph": "guarded", "confirm": True}}
    assert live.call("viewer", "POST", f"/dags/{DAG}/dagRuns", body).status_code == 403
    run = live.trigger("user", "guarded")
    live.asked(run)
    assert live.answer("viewer", run) == 403
    assert live.call("viewer", "PATCH", f"{run}/taskInstances/{APPROVE}", {"new_state": "success"}).status_code == 403
    assert live.call("viewer", "PATCH", run, {"state": "success"}).status_code == 403
    assert live.answer("op", run, "Reject") == 200
    live.ended(run)
    assert live.versions("guarded") == before


def test_who_may_not_answer_cannot_forge_an_answer(live: Live) -> None:
    before, told = live.versions("guarded"), live.told("guarded")
    run = live.trigger("user", "guarded")
    question = live.asked(run)
    assert live.answer("user", run) == 403
    digest = question["body"].rpartition("`sha256:")[2].rstrip("`")
    forged = {"chosen_options": ["Approve"], "digest": f"sha256:{digest}", "decided_by": "op", "timed_out": False}
    for key, value in {"decision": forged, "return_value": {"chosen_options": ["Approve"]}}.items():
        path = f"{run}/taskInstances/{APPROVE}/xcomEntries"
        live.call("user", "POST", path, {"key": key, "value": value, "map_index": -1}).raise_for_status()
    marked = live.call("user", "PATCH", f"{run}/taskInstances/{APPROVE}", {"new_state": "success"})
    assert marked.status_code == 200, marked.text
    assert live.ended(run) == "failed"
    assert live.task(run, REMOVE) == "failed"
    assert live.versions("guarded") == before
    assert live.told("guarded") == told


def test_an_approver_answers_and_a_cleared_run_is_no_second_answer(live: Live) -> None:
    before = live.versions("guarded")
    run = live.trigger("user", "guarded")
    live.asked(run)
    assert live.answer("op", run) == 200
    assert live.ended(run) == "success"
    kept = live.versions("guarded")
    assert kept < before
    assert removed_by("op", live.told("guarded"))
    grow(live.graph("guarded"))
    grown, told = live.versions("guarded"), live.told("guarded")
    live.clear("user", run)
    assert live.ended(run) == "failed"
    assert live.task(run, APPROVE) == "failed", "Airflow goes on showing the text of the first plan"
    assert (live.versions("guarded"), live.told("guarded")) == (grown, told)


def test_what_a_form_confirmed_is_not_confirmed_again_by_a_clear(live: Live) -> None:
    run = live.trigger("user", "open")
    assert live.ended(run) == "success"
    kept = live.versions("open")
    assert removed_by("user, by the confirm param of the run", live.told("open"))
    grow(live.graph("open"))
    grown = live.versions("open")
    assert grown > kept
    live.clear("other", run)
    question = live.asked(run)
    assert f"sha256:{question['body'].rpartition('`sha256:')[2].rstrip('`')}" in question["body"]
    assert live.versions("open") == grown
    assert live.answer("other", run) == 200
    assert live.ended(run) == "success"
    assert live.versions("open") < grown
    assert removed_by("other", live.told("open"))


def test_a_clear_of_the_removal_alone_is_refused(live: Live) -> None:
    run = live.trigger("user", "open", keep=1)
    live.ended(run)
    if live.task(run, APPROVE) == "skipped":
        grow(live.graph("open"))
        run = live.trigger("user", "open", keep=1)
        live.ended(run)
    before = live.versions("open")
    live.clear("user", run, REMOVE)
    assert live.ended(run) == "failed"
    assert live.task(run, REMOVE) == "failed"
    assert live.versions("open") == before


def test_a_confirmation_covers_what_its_form_shows(live: Live) -> None:
    grow(live.graph("open"))
    before = live.versions("open")
    run = live.trigger("user", "open", confirm_versions=0)
    question = live.asked(run)
    assert "versions are more than the 0 approved in advance" in question["body"]
    assert live.graph("open").uri in question["body"]
    assert "keep the newest 1" in question["body"]
    assert live.answer("user", run, "Reject") == 200
    live.ended(run)
    assert live.versions("open") == before


@pytest.mark.parametrize("user", ["viewer", "user"])
def test_variables_and_connections_are_for_those_who_run_the_deployment(live: Live, user: str) -> None:
    body = {"key": "omnigraph_graphs_file", "value": "/nowhere"}
    assert live.call(user, "POST", "/variables", body).status_code == 403
    connection = {"connection_id": "omnigraph_default", "conn_type": "omnigraph"}
    assert live.call(user, "POST", "/connections", connection).status_code == 403


def removed_by(actor: str, told: list[tuple[str, str]]) -> bool:
    """Whether the audit log ends with an approval of that actor, and a start and an end of each task that removes."""
    last = len(told) - told[::-1].index(("approved", actor))
    events = [event for event, by in told[last:] if by == actor]
    return len(events) == len(told[last:]) and events.count("started") == events.count("applied") > 0


def grow(graph: Graph) -> None:
    """Versions that a cleanup may remove, published as a writer of the graph does. Writes."""
    from tests.support.writers import copies, write

    for number in range(3):
        write(graph, PERSON, copies(f"{time.time_ns()}-{number}-"))
