"""A real Airflow over graphs that have something to show: nights, drift, holds, an open approval, hostile names."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import lance
from omnigraph_airflow.demo_airflow import DemoAirflow, DemoError, airflow_environment, free_port

from omnigraph_ops.coordination.holds import HeldVersion, HoldKind, place_hold
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.support.plain import rows
from tests.ui.nights import write_nights

HOSTILE = ("<img src=x onerror=alert(1)>", "'\"><script>alert(2)", "\u202etxt.exe")
"""Folder names: a table of a plain folder is called like its folder."""
GRAPHS_FILE = """\
version: 1
defaults:
  window: {{quiet_for: 0s}}
  optimize: {{executor: in_process}}
graphs:
  people: {{target: "{root}/people.omni", description: People and who employs them, evidence: full}}
  orders: {{target: "{root}/orders.omni", schedule: "30 2 * * *"}}
  uploads: {{target: "{root}/uploads", schedule: null}}
  archive: {{target: "{root}/archive.omni"}}
"""
USERS = "admin:admin,viewer:viewer,user:user,op:op"
WAIT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Site:
    """The running site."""

    airflow: DemoAirflow
    run_id: str
    """Of the repair that waits for an answer."""

    @property
    def url(self) -> str:
        return self.airflow.url


def build_graphs(root: Path) -> None:
    """Four graphs: drifted, well kept, with hostile names, and one that is not there. Writes."""
    _people(_demo(root / "people.omni", loads=14, rows=80, updates=20, deletes=9, lazy_branches=2, written_branches=1))
    orders = _demo(root / "orders.omni", drift=False, stamp=3, loads=5, rows=200)
    optimize_all(orders)
    write_nights(orders, "omnigraph_maintenance__orders")
    for name in HOSTILE:
        folder = root / "uploads" / f"{name}.lance"
        for start in range(0, 90, 30):
            lance.write_dataset(rows(start, 30), str(folder), mode="append" if start else "create")
    write_nights(open_graph(str(root / "uploads")), "omnigraph_maintenance__uploads", failing=True, nights=4)


def _demo(path: Path, *, drift: bool = True, **fields: int) -> Graph:
    drifted = {"drift_tables": ("node:Person",), "drift_kind": "delete"} if drift else {}
    write_demo_graph(str(path), DemoSpec(**fields, **drifted))  # type: ignore[arg-type]
    return open_graph(str(path))


def _people(graph: Graph) -> None:
    entry = graph.state().entries[0]
    held = HeldVersion(table_path=entry.path, version=entry.version)
    place_hold(
        graph.storage,
        (held,),
        kind=HoldKind.FREEZE,
        reason="the quarterly backup <b>reads</b> it",
        ttl_seconds=2 * 86400,
    )
    graph.open_head(entry).tags.create("audit-2026-q3", entry.version - 1)
    optimize_all(graph)  # all but the drifted table
    write_nights(graph, "omnigraph_maintenance__people")


def start(home: Path) -> Site:
    """Start Airflow over the graphs and have a repair ask its question. Writes."""
    root = Path(tempfile.mkdtemp(prefix="lake-"))  # a short name, for the pictures
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    build_graphs(root)
    file = root / "graphs.yaml"
    file.write_text(GRAPHS_FILE.format(root=root))
    port = free_port(8097)
    environment = {
        **airflow_environment(home / "airflow", port, root / "people.omni", {}),
        "OMNIGRAPH_GRAPHS_FILE": str(file),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": USERS,
    }
    airflow = DemoAirflow(home / "airflow", port, environment)
    airflow.start()
    try:
        return Site(airflow, _asked(airflow))
    except BaseException:
        airflow.stop()
        raise


def password(site: Site, user: str) -> str:
    """The one that Airflow made up for a user. Reads."""
    return str(json.loads((site.airflow.home / "passwords.json").read_text())[user])


def _asked(airflow: DemoAirflow) -> str:
    """Trigger a repair and wait until it asks; the id of its run. Writes."""
    for dag_id in ("omnigraph_repair", "omnigraph_maintenance__people"):
        _unpause(airflow, dag_id)
    conf = {"graph": "people", "confirm": True, "evidence": "full"}
    run = airflow.call("POST", "/api/v2/dags/omnigraph_repair/dagRuns", {"logical_date": None, "conf": conf})
    run_id = str(run["dag_run_id"])
    path = f"/api/v2/dags/omnigraph_repair/dagRuns/{quote(run_id, safe='')}"
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if airflow.call("GET", f"{path}/hitlDetails?state=awaiting_input")["hitl_details"]:
            return run_id
        if airflow.call("GET", path)["state"] in {"failed", "success"}:
            break
        time.sleep(1)
    raise AssertionError("the repair did not ask for an approval")


def _unpause(airflow: DemoAirflow, dag_id: str) -> None:
    """As soon as Airflow knows the DAG. Writes."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            airflow.call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})
        except DemoError:
            if time.monotonic() > end:
                raise
            time.sleep(1)
        else:
            return


if __name__ == "__main__":  # the site for a person: python -m tests.ui.site DIR
    import signal
    import sys

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    running = start(Path(sys.argv[1]))
    print(running.url, os.getpid(), flush=True)  # noqa: T201
    try:
        time.sleep(86400)
    finally:
        running.airflow.stop()
