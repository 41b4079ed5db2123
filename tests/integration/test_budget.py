"""Budgeted runs, automatic optimisation and the queue, on real graphs and from the shell."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import BudgetTerms
from omnigraph_ops.coordination.state import INGEST_DIR
from omnigraph_ops.models.optimize import OptimizeDecision, OptimizeReport, SkipReason
from omnigraph_ops.models.outcomes import StageReport
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Run
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged, assert_pins_are_heads
from tests.support.edges import when_asked
from tests.support.rows import rows_everywhere, tree_of
from tests.support.shell import assert_refused, runner
from tests.support.writers import copies, delete_first, write

pytestmark = pytest.mark.slow

PERSON, KNOWS = "node:Person", "edge:Knows"
PEOPLE = {"node_types": 1, "loads": 3, "rows": 10}


def test_a_budget_takes_some_tables_whole_and_says_the_rest(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, loads=3, rows=10)
    before = rows_everywhere(graph)
    planned = {t.table_key for t in plan_optimize(graph).productive()}
    report = optimize_all(graph, budget=BudgetTerms(max_tables=2))
    done = {t.table_key for t in report.tables if t.committed}
    assert len(done) == 2
    assert {t.table_key for t in report.deferred} == planned - done
    left = {t.table_key: t.decision for t in plan_optimize(graph).tables}
    assert {key for key, decision in left.items() if decision is OptimizeDecision.OPTIMIZE} == planned - done
    assert_pins_are_heads(graph)
    assert rows_everywhere(graph) == before
    optimize_all(graph)
    assert_converged(graph)


def test_a_big_table_among_small_ones_gets_its_turn(demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=1, loads=2, rows=50, settings=Settings())
    optimize_all(graph)
    write(graph, PERSON, copies("big", 50))
    cheap = {t.table_key: t.cost_bytes for t in plan_optimize(graph).tables}
    turns = []
    for night in range(4):
        write(graph, KNOWS, copies(f"k{night}-", 2))
        budget = BudgetTerms(max_bytes=max(t.cost_bytes for t in plan_optimize(graph).tables if t.table_key == KNOWS))
        assert budget.max_bytes < cheap[PERSON]
        report = optimize_all(graph, budget=budget)
        turns.append(sorted(t.table_key for t in report.tables if t.committed))
    assert turns == [[KNOWS], [KNOWS], [KNOWS], [PERSON]]


def largest_unit(report: OptimizeReport) -> int:
    """Bytes of the index work, or of the rewrite, that wrote most."""
    done = [(t.index_bytes_rewritten, t.bytes_rewritten - t.index_bytes_rewritten) for t in report.tables]
    return max(max(units) for units in done)


@pytest.mark.night("combinations")
@pytest.mark.parametrize("built", [0, 1], ids=["first builds", "folds"])
def test_a_budget_holds_with_indexes(demo_graph: DemoGraph, stamp: int, built: int) -> None:
    small = Settings(concurrency=1, small_table_bytes=0)
    graph = demo_graph(stamp=stamp, loads=5, rows=400, index_after_load=built, settings=small)
    before = rows_everywhere(graph)
    planned = plan_optimize(graph)
    assert any(t.builds if built == 0 else t.folds for t in planned.productive())
    most = sum(t.cost_bytes for t in planned.productive()) // 2
    for _ in range(12):
        report = optimize_all(graph, budget=BudgetTerms(max_bytes=most))
        assert report.bytes_rewritten <= most + largest_unit(report)
        assert 0.3 < report.bytes_rewritten / report.bytes_planned < 1.3
        if not report.deferred and not any(t.rewrite_deferred for t in report.tables):
            break
    assert_converged(graph)
    assert rows_everywhere(graph) == before


def test_a_run_stops_between_units_when_the_budget_is_spent(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Settings(concurrency=1, small_table_bytes=0)
    graph = demo_graph(stamp=stamp, loads=5, rows=400, index_after_load=1, node_types=1, settings=small)
    before = rows_everywhere(graph)
    # The estimate says that indexes cost nothing: only what is measured can stop the run.
    monkeypatch.setattr("omnigraph_ops.stages.optimize.plan.index_bytes", lambda *_: 0)
    first, second = plan_optimize(graph).in_turn()
    most = first.rewrite_bytes
    report = optimize_all(graph, budget=BudgetTerms(max_bytes=most))
    rows = {t.table_key: t for t in report.tables}
    assert rows[second.table_key].skipped is SkipReason.DEFERRED_BUDGET
    cut = rows[first.table_key]
    assert (cut.rewrite_deferred, cut.fragments_removed, cut.index_bytes_rewritten > 0) == (True, 0, True)
    assert report.bytes_rewritten <= most + largest_unit(report)
    assert_pins_are_heads(graph)
    assert rows_everywhere(graph) == before
    waited = {t.table_key: t.waited for t in plan_optimize(graph, budget=BudgetTerms(max_bytes=most)).tables}
    assert waited[cut.table_key] == 1
    monkeypatch.undo()
    optimize_all(graph)
    assert_converged(graph)


def test_no_table_starts_after_the_deadline(demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, real = demo_graph(stamp=stamp, **PEOPLE, settings=Settings(concurrency=1)), time.time_ns

    class Slow(Run):
        def ended(self, unit: Unit, did: StageReport | None) -> None:
            monkeypatch.setattr(time, "time_ns", lambda: real() + 3601 * 10**9)

    report = optimize_all(graph.with_run(Slow()), budget=BudgetTerms(deadline=3600.0))
    rows = [(t.committed, t.skipped) for t in report.tables if not t.table_key.startswith("_")]
    assert sorted(rows, key=str) == [(False, SkipReason.DEFERRED_BUDGET), (True, None)]
    assert_pins_are_heads(graph)


def test_a_deadline_of_nothing_starts_nothing(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**PEOPLE)
    before = {p: d for p, d in tree_of(graph.uri).items() if not p.startswith("__maintenance")}
    report = optimize_all(graph, budget=BudgetTerms(deadline=0.0))
    assert {t.skipped for t in report.tables} == {SkipReason.DEFERRED_BUDGET}
    assert {p: d for p, d in tree_of(graph.uri).items() if not p.startswith("__maintenance")} == before


def test_tables_without_a_budget_are_noted_side_by_side(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, both = demo_graph(**PEOPLE, settings=Settings(concurrency=2)), threading.Barrier(2, timeout=300)
    noted = when_asked(monkeypatch, Storage, "write", both.wait, about=f"^{INGEST_DIR}/", times=None)
    optimize_all(graph, budget=BudgetTerms(deadline=0.0))
    assert sorted(noted) == [f"{INGEST_DIR}/edge.Knows.json", f"{INGEST_DIR}/node.Person.json"]


def test_auto_takes_only_what_is_past_a_threshold(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE, settings=Settings(auto=True, cutoff=4))
    assert {t.table_key for t in plan_optimize(graph).productive()} == {PERSON, KNOWS}  # two thirds are unindexed
    optimize_all(graph)
    graph = graph.with_settings(Settings(auto=True, cutoff=4, auto_unindexed_share=0.5, auto_off=(KNOWS,)))
    write(graph, PERSON, copies("a", 2))
    write(graph, KNOWS, delete_first(6))
    found = {t.table_key: (t.decision, t.skipped) for t in plan_optimize(graph).tables}
    assert found[PERSON] == (OptimizeDecision.DEFERRED, SkipReason.BELOW_THRESHOLDS)
    assert found[KNOWS] == (OptimizeDecision.DEFERRED, SkipReason.AUTO_OFF)
    assert [t.table_key for t in optimize_all(graph).tables if t.committed] == []
    write(graph, PERSON, delete_first(6))
    for load in ("b", "c", "d"):
        write(graph, PERSON, copies(load, 1))
    assert [t.table_key for t in optimize_all(graph).tables if t.committed] == [PERSON]


def test_the_shell_plans_and_runs_within_a_budget(demo_graph: DemoGraph, capsys: pytest.CaptureFixture[str]) -> None:
    graph, cli = demo_graph(**PEOPLE), runner(capsys)
    plan = cli("plan --max-tables 1", graph.uri)
    assert "2 tables, 1 to optimize, 1 deferred" in plan.out
    assert "no room in the budget of 1 table" in plan.out
    done = cli("optimize --max-tables 1 --deadline 1h --policy tiered --json", graph.uri)
    assert done.code == 0
    assert sorted(str(t["skipped"]) for t in done.json["tables"] if not t["table_key"].startswith("_")) == [
        "None",
        "deferred_budget",
    ]
    assert done.json["bytes_rewritten"] > 0
    text = cli("optimize --max-bytes 1GiB", graph.uri).out
    assert "wrote" in text
    assert "how much was loaded is not known for 1 table" in text
    assert_refused(cli("optimize --max-bytes 1.5GB", graph.uri), "invalid size '1.5GB'", code=2)
    assert cli("optimize --max-tables 0", graph.uri).code == 2


class Airflow(BaseHTTPRequestHandler):
    """Answers as Airflow's API does; remembers what it was asked."""

    asked: list[tuple[str, str | None, Any]]
    status = 200
    paused = False

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"is_paused": self.paused}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers["authorization"], body))
        answer = {"dag_run_id": body["dag_run_id"], "state": "queued"} if self.status == 200 else {"detail": "no such"}
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Airflow]]:
    handler = type("Handler", (Airflow,), {"asked": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("OMNIGRAPH_OPS_AIRFLOW_URL", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("OMNIGRAPH_OPS_AIRFLOW_TOKEN", "s3cret")
    yield handler
    server.shutdown()
    server.server_close()


def test_queue_starts_the_nightly_dag_and_returns(
    demo_graph: DemoGraph, capsys: pytest.CaptureFixture[str], airflow: type[Airflow]
) -> None:
    graph, cli = demo_graph(**PEOPLE), runner(capsys)
    tree = tree_of(graph.uri)
    done = cli("optimize --queue --max-bytes 1GiB --deadline 4h --policy tiered --auto --json", graph.uri)
    ((path, token, body),) = airflow.asked
    assert (path, token) == ("/api/v2/dags/omnigraph_maintenance/dagRuns", "Bearer s3cret")
    assert body["conf"] == {
        "graph": graph.uri, "max_bytes": "1GiB", "deadline": "4h", "policy": "tiered", "auto": True,
    }  # fmt: skip
    assert done.json == {"dag_id": "omnigraph_maintenance", "dag_run_id": body["dag_run_id"], "state": "queued"}
    assert "s3cret" not in done.out + done.err
    assert tree_of(graph.uri) == tree


def test_queue_starts_the_dag_of_the_graphs_name_where_it_knows_the_graphs_file(
    demo_graph: DemoGraph,
    capsys: pytest.CaptureFixture[str],
    airflow: type[Airflow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, (listed, link) = demo_graph(**PEOPLE), (tmp_path / "graphs.yaml", tmp_path / "link")
    link.symlink_to(graph.uri)
    listed.write_text(f"version: 1\ngraphs: {{other: {{target: /o.omni}}, people: {{target: {link}}}}}\n")
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(listed))
    done = runner(capsys)("optimize --queue --auto --json", graph.uri)
    ((path, _, body),) = airflow.asked
    assert path == "/api/v2/dags/omnigraph_maintenance__people/dagRuns"
    assert (body["conf"], done.json["dag_id"]) == (
        {"graph": "people", "auto": True},
        "omnigraph_maintenance__people",
    )


def test_queue_refuses_a_dag_that_is_paused(
    demo_graph: DemoGraph, capsys: pytest.CaptureFixture[str], airflow: type[Airflow]
) -> None:
    airflow.paused = True
    refused = runner(capsys)("optimize --queue", demo_graph(**PEOPLE).uri)
    assert_refused(refused, "the DAG omnigraph_maintenance is paused, so no run of it would start; nothing was queued")
    assert "unpause it, or set OMNIGRAPH_GRAPHS_FILE" in refused.err
    assert airflow.asked == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "refused the run (401 no such)"),
        (302, "refused the run (302"),
        (405, "nothing was queued; correct OMNIGRAPH_OPS_AIRFLOW_URL"),
    ],
)
def test_queue_says_what_airflow_said(
    demo_graph: DemoGraph, capsys: pytest.CaptureFixture[str], airflow: type[Airflow], status: int, words: str
) -> None:
    airflow.status = status
    assert_refused(runner(capsys)("optimize --queue", demo_graph(**PEOPLE).uri), words)


@pytest.mark.parametrize("status", [500, 502, 504])
def test_an_error_of_a_server_may_hide_a_run_that_was_queued(
    demo_graph: DemoGraph, capsys: pytest.CaptureFixture[str], airflow: type[Airflow], status: int
) -> None:
    airflow.status = status
    refused = runner(capsys)("optimize --queue", demo_graph(**PEOPLE).uri)
    ((_, _, body),) = airflow.asked
    assert_refused(
        refused, f"did not say whether it took the run ({status} no such); look for the run {body['dag_run_id']}"
    )
    assert "nothing was queued" not in refused.err


def test_queue_needs_an_address_a_token_and_nothing_that_the_dag_lacks(
    demo_graph: DemoGraph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, cli = demo_graph(**PEOPLE), runner(capsys)
    monkeypatch.delenv("OMNIGRAPH_OPS_AIRFLOW_URL", raising=False)
    monkeypatch.delenv("OMNIGRAPH_OPS_AIRFLOW_TOKEN", raising=False)
    assert_refused(cli("optimize --queue", graph.uri), "OMNIGRAPH_OPS_AIRFLOW_URL")
    for address in ("localhost:8080", "http://", "https:///x", "http://[::1"):
        monkeypatch.setenv("OMNIGRAPH_OPS_AIRFLOW_URL", address)
        assert_refused(cli("optimize --queue", graph.uri), "OMNIGRAPH_OPS_AIRFLOW_URL, the http:// or https:// address")
    monkeypatch.setenv("OMNIGRAPH_OPS_AIRFLOW_URL", "http://127.0.0.1:1")
    assert_refused(cli("optimize --queue", graph.uri), "OMNIGRAPH_OPS_AIRFLOW_TOKEN")
    monkeypatch.setenv("OMNIGRAPH_OPS_AIRFLOW_TOKEN", "t")
    assert_refused(cli("optimize --queue", graph.uri), "no connection to http://127.0.0.1:1 (")
    for option in ("--fence", "--exclusive", "--table node:Person", "--spark local[2]"):
        assert_refused(cli(f"optimize --queue {option}", graph.uri), "--queue starts the nightly DAG", code=2)
