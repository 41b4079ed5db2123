"""Budgets in the nightly DAG: what the form takes, what is deferred, and a run that the shell queued."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.cli.queue import TOKEN, URL
from omnigraph_ops.config.graph_entries import NIGHTLY, nightly_dag_id
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.graph import open_graph
from omnigraph_ops.lance.tables import fragment_facts
from tests.support.runs import Finished
from tests.support.shell import assert_refused, runner
from tests.support.templates import Templates

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]


@pytest.fixture
def graph(tmp_path: Path, templates: Templates) -> Path:
    templates.copy(DemoSpec(loads=2, rows=20, node_types=1), tmp_path / "graph")
    return tmp_path / "graph"


def run_night(dag: Any, graph: Path, **params: Any) -> Finished:
    conf = {"graph": str(graph), "quiet_seconds": 0, "keep": 100, "older_than": None, **params}
    return Finished(dag.test(run_conf=conf))


def test_a_bounded_night_defers_and_says_so(dags: Any, graph: Path) -> None:
    night = run_night(dags[NIGHTLY], graph, max_tables=1, max_bytes="1GiB", deadline="4h", policy="tiered")
    assert night.state == "success", night.tasks
    assert night.of("optimize_table") == ["success"]
    (line,) = night.report["attention"]
    assert line.endswith("no room in the budget of this run; it stays planned")
    assert "| skipped: deferred_budget |" in night.report["markdown"]
    assert "The run rewrote" in night.report["markdown"]
    opened = open_graph(str(graph))
    # Tiered: two loads are no full tier.
    assert {len(fragment_facts(opened.open_head(e))) for e in opened.state().entries} == {2}
    rest = run_night(dags[NIGHTLY], graph, max_tables=1)
    assert rest.of("optimize_table") == ["success"]


def test_after_the_deadline_no_table_starts(dags: Any, graph: Path) -> None:
    versions = {e.table_key: e.version for e in open_graph(str(graph)).state().entries}
    night = run_night(dags[NIGHTLY], graph, deadline="0s")
    assert night.state == "success", night.tasks
    assert night.of("optimize_table") == ["success"] * 2
    assert {e.table_key: e.version for e in open_graph(str(graph)).state().entries} == versions
    (told,) = night.report["attention"]
    assert told.endswith(": no room in the budget of this run; it stays planned")
    assert told.count(",") == 2, "one sentence for three tables"
    assert night.report["outcome"] == "nothing_to_do"


def test_auto_leaves_tables_below_the_thresholds(dags: Any, graph: Path) -> None:
    run_night(dags[NIGHTLY], graph)
    night = run_night(dags[NIGHTLY], graph, auto=True, cutoff=50)
    assert night.state == "success", night.tasks
    assert night.of("optimize_table") == ["skipped"]


@pytest.fixture
def served(api: Any, dag: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The in-process API behind a port, with the DAG in its database."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(DagBag(str(Path(__file__).resolve().parents[2] / "dags")), "dags-folder", None)

    class Forward(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.forward(self.rfile.read(int(self.headers["content-length"])))

        def do_GET(self) -> None:
            self.forward(b"")

        def forward(self, body: bytes) -> None:
            told = {n: self.headers[n] for n in ("authorization", "content-type") if n in self.headers}
            answer = api.request(self.command, self.path, content=body, headers=told)
            self.send_response(answer.status_code)
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Forward)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(URL, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv(TOKEN, api.headers["authorization"].removeprefix("Bearer "))
    yield api
    server.shutdown()
    server.server_close()


def pause(served: Any, *, paused: bool) -> None:
    served.patch(f"/api/v2/dags/{NIGHTLY}", json={"is_paused": paused}).raise_for_status()


def test_the_shell_queues_a_run_that_airflow_takes(
    served: Any, graph: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = runner(capsys)
    pause(served, paused=True)
    assert_refused(cli("optimize --queue", str(graph)), f"the DAG {NIGHTLY} is paused")
    pause(served, paused=False)
    options = "--max-bytes 1GiB --max-tables 3 --deadline 4h --policy tiered --cutoff 5 --auto"
    run = cli(f"optimize --queue {options} --json", str(graph)).json
    found = served.get(f"/api/v2/dags/{NIGHTLY}/dagRuns/{run['dag_run_id']}").json()
    assert (found["state"], run["state"]) == ("queued", "queued")
    assert found["conf"]["graph"] == open_graph(str(graph)).uri
    assert (found["conf"]["policy"], found["conf"]["cutoff"], found["conf"]["auto"]) == ("tiered", 5, True)
    served.delete(f"/api/v2/dags/{NIGHTLY}/dagRuns/{run['dag_run_id']}").raise_for_status()
    pause(served, paused=True)
    monkeypatch.setenv(TOKEN, "wrong")
    assert_refused(cli("optimize --queue", str(graph)), "refused the run (403 Invalid JWT token)")


def test_the_shell_names_the_dag_of_a_graph_as_the_graphs_file_does() -> None:
    assert (NIGHTLY, nightly_dag_id("people")) == (NIGHTLY, f"{NIGHTLY}__people")
