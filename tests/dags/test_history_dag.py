"""What a DAG run leaves in the history of the graph, and which metrics arrive at a StatsD server."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.coordination.state import HISTORY_PATH
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.history import Answer, RunOrigin, RunOutcome, RunRecord
from omnigraph_ops.outcomes import history
from tests.conftest import DemoGraph
from tests.support.runs import Finished

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
PERSON = "node:Person"
NIGHT = {"quiet_seconds": 0, "keep": 1, "older_than": None, "confirm_cleanup": True}


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(name="my graph.omni", loads=3, rows=20, node_types=1)


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A StatsD server of this test, and Airflow's client told of it as a task's process is at its start."""
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_HOST", "127.0.0.1")
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_PORT", str(server.getsockname()[1]))
        stats.initialize(factory=get_stats_factory(), export_legacy_names=False)
        yield server
        monkeypatch.undo()
        stats.initialize(factory=get_stats_factory(), export_legacy_names=False)


def run(dags: Any, dag_id: str, graph: Graph, **params: Any) -> Finished:
    return Finished(dags[dag_id].test(run_conf={"graph": graph.uri, **params}))


def arrived(server: socket.socket) -> dict[str, str]:
    """Every metric of ours that has arrived, by its name. Reads the socket."""
    found = {}
    while True:
        try:
            lines = server.recv(65536).decode().splitlines()
        except BlockingIOError:
            return found
        for line in lines:
            name, _, value = line.partition(":")
            if name.startswith("airflow.omnigraph."):
                found[name.removeprefix("airflow.omnigraph.")] = value


def only(graph: Graph) -> RunRecord:
    (run,) = history.read_runs(graph)
    whole = history.read_run(graph, run.run_id)
    assert whole is not None
    return whole


def test_a_night_leaves_its_record_and_sends_its_metrics(dags: Any, graph: Graph, statsd: socket.socket) -> None:
    night = run(dags, "omnigraph_maintenance", graph, **NIGHT)
    assert night.state == "success", night.tasks
    record = only(graph)
    header = record.header
    assert (header.origin, header.verb, header.dag_id) == (
        RunOrigin.AIRFLOW,
        "optimize+repair+cleanup",
        "omnigraph_maintenance",
    )
    assert record.run_id == f"omnigraph_maintenance/{header.dag_run_id}"
    assert header.logical_date_us is not None
    assert header.started_at_us < record.ended_at_us
    person = next(t for t in record.tables if t.table_key == PERSON)
    assert (person.outcome, person.stages) == (RunOutcome.SUCCEEDED, ("optimize", "cleanup"))
    assert (person.before.fragments, person.after.fragments) == (3, 1)
    (decision,) = person.decisions
    assert (decision.answer, "confirm param" in decision.by) == (Answer.APPROVED, True)
    assert decision.digest == night.decision(graph, "approve_cleanup").digest
    assert len(json.dumps(night.report)) < 5000
    metrics = arrived(statsd)
    assert metrics["my_graph_omni.fragments"] == f"{record.after.fragments}|g"
    assert metrics["my_graph_omni.bytes_reclaimed"] == f"{record.work.bytes_reclaimed}|c"
    assert metrics["my_graph_omni.runs_succeeded"] == "1|c"
    assert metrics["my_graph_omni.tables_failed"] == "0|g"


def test_a_run_that_only_looked_is_a_preview(dags: Any, graph: Graph) -> None:
    looked = run(dags, "omnigraph_cleanup", graph, keep=1, older_than=None)
    assert (looked.state, looked.report["outcome"]) == ("success", "previewed")
    assert "Outcome: **previewed**" in looked.report["markdown"]
    record = only(graph)
    assert (record.outcome, record.header.verb) == (RunOutcome.PREVIEWED, "cleanup")
    assert {t.outcome for t in record.tables} == {RunOutcome.PREVIEWED}
    assert all(re.fullmatch(r"cleanup not confirmed: \d+ versions?, .+ KiB", t.reason) for t in record.tables)


def test_a_failed_run_is_a_failure_in_the_history_too(dags: Any, graph: Graph) -> None:
    failed = run(dags, "omnigraph_cleanup", graph, confirm=True, digest="sha256:" + "0" * 64)
    assert failed.state == "failed"
    record = only(graph)
    assert record.outcome is RunOutcome.FAILED
    assert record.errors == tuple(failed.report["failed"])


def test_a_history_that_cannot_be_written_leaves_the_run_green_and_its_metrics(
    dags: Any, graph: Graph, statsd: socket.socket
) -> None:
    Path(graph.uri, HISTORY_PATH).parent.mkdir(exist_ok=True)
    Path(graph.uri, HISTORY_PATH).write_text("in the way")
    assert run(dags, "omnigraph_cleanup", graph, keep=1, older_than=None).state == "success"
    assert arrived(statsd)["my_graph_omni.runs_previewed"] == "1|c"
