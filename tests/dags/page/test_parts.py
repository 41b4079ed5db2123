"""The pure parts of the page: charts, words, which graph a question is about, which graph is worst."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from omnigraph_airflow.page import pages, rendering, texts
from omnigraph_airflow.page.listing import DagFacts, ListedGraph, NewestRun, OpenQuestion, questions_by_graph
from omnigraph_airflow.page.pages import GraphRow, Overview, _row
from omnigraph_airflow.page.reads import Look, plan_view
from omnigraph_airflow.page.rendering import Value, chart, render

from omnigraph_ops.lance.history_table import points_of, rows_of
from omnigraph_ops.models.history import Measured, RunOutcome, RunRecord
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.views.markdown import PAGE_ROWS
from tests.support.history import DAY_US, record, table
from tests.support.large_plans import MANY, large_cleanup

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def listed(name: str, *, named: bool = True, **fields: Any) -> ListedGraph:
    place = f"/lake/{name}"
    known = {"title": name, "place": place, "root": place, "dag_id": f"omnigraph_maintenance__{name}", "wanted": name}
    return ListedGraph(**{"name": name, "named": named, **known, **fields})


def question(dag_id: str, graph: str = "") -> OpenQuestion:
    return OpenQuestion(
        dag_id=dag_id,
        run_id="manual__2026-01-01T00:00:00+00:00",
        task_id="approve_repair",
        subject="Repair?",
        asked_at=NOW,
        answer_by=None,
        may_answer=(),
        digest="sha256:1",
        graph=graph,
    )


def row(name: str, **fields: Any) -> GraphRow:
    known = {"problem": None, "pending": "", "score": 90, "scored_at": None, "last": record(), "night": None}
    return GraphRow(
        **{"graph": listed(name), **known, "trend": None, "questions": (), "dag": None, "newest": None, **fields},
    )


def test_commands_in_a_sentence_are_code_and_nothing_else_is_markup() -> None:
    page = Overview(rows=(row("<a>", problem="<b> is gone; run `restore <c>`"),), problems=(), hidden_problems=0)
    shown = render("graphs.html.j2", airflow="", page=page)
    assert "<bdi>&lt;b&gt; is gone; run <code>restore &lt;c&gt;</code></bdi>" in shown
    odd = replace(page, rows=(row("a", problem="a `b` and `c"),))
    assert "<bdi>a `b` and `c</bdi>" in render("graphs.html.j2", airflow="", page=odd)


@pytest.mark.parametrize("paused", [True, False])
def test_a_run_whose_dag_is_paused_is_shown_as_waiting(paused: bool) -> None:
    newest = NewestRun(dag_id="d", run_id="r", state="running", started_at=datetime.now(UTC))
    dag = DagFacts(dag_id="d", paused=paused, schedule="", next_at=None)
    page = Overview(rows=(row("a", newest=newest, dag=dag),), problems=(), hidden_problems=0)
    shown = render("graphs.html.j2", airflow="", page=page)
    assert ("a run is running, and waits while its DAG is paused" in shown) is paused
    assert "a run is running" in shown


def test_a_chart_reaches_from_the_lowest_to_the_highest_value() -> None:
    drawn = chart("Fragments", [Value(when=str(n), number=n) for n in (3, 9, 6)], texts.whole)
    assert drawn is not None
    assert [point.y for point in drawn.points] == [rendering.HEIGHT - 5, 5, rendering.HEIGHT / 2]
    assert (drawn.top, drawn.bottom, drawn.latest, drawn.change) == ("9", "3", "6", "▲ from 3")
    assert drawn.summary == "Fragments over 3 runs: from 3 to 6, lowest 3, highest 9"


def test_a_change_that_the_figures_do_not_show_is_none() -> None:
    drawn = chart("Data", [Value(when=str(n), number=1_600_000 + n) for n in range(2)], texts.size)
    assert drawn is not None and drawn.change == "as at first"


def test_charts_are_in_the_order_in_which_runs_were_measured() -> None:
    """Of a run that was cleared later, the start is the first one and the figures are the newest."""
    later, cleared = (
        record(
            name,
            started_at_us=start,
            ended_at_us=end,
            after=Measured(data_bytes=count, fragments=count),
            tables=(table(after=Measured(rows=count)),),
        )
        for name, start, end, count in (("later", 2 * DAY_US, 3 * DAY_US, 1515), ("cleared", DAY_US, 4 * DAY_US, 1796))
    )
    points = [point for run in (later, cleared) for point in points_of(rows_of(run).slice(1))]
    drawn = {c.title: c for c in (*pages.charts_of((later, cleared)), *pages._charts(points))}
    told = [(drawn[title].latest, drawn[title].change) for title in ("Fragments", "Rows")]
    assert told == [("1,796", "▲ from 1,515")] * 2
    assert (drawn["Rows"].first, drawn["Rows"].last) == ("Jan 04, 00:00", "Jan 05, 00:00")


def test_a_run_that_does_not_know_the_figure_breaks_the_line() -> None:
    drawn = chart("Data", [Value(when="", number=n) for n in (1, 2, None, 4)], texts.whole)
    assert drawn is not None and [len(line.split()) for line in drawn.lines] == [2]
    assert [dot.text for dot in drawn.dots] == [": 4"], "a line of one point draws nothing"
    assert chart("Data", [Value(when="", number=None)], texts.whole) is None


def test_a_chart_of_one_run_shows_a_dot() -> None:
    drawn = chart("Data", [Value(when="a", number=7)], texts.whole)
    assert drawn is not None and not drawn.lines
    template = "{% import 'parts.html.j2' as parts with context %}{{ parts.chart_card(chart) }}"
    shown = rendering._environment().from_string(template).render(chart=drawn)
    assert '<path class="line dot" d="M120.0 32.0h.01"/>' in shown
    bars = chart("Run time", [Value(when="a", number=7)], texts.whole, bars=True)
    assert bars is not None and not bars.dots


def test_bars_stand_on_zero_and_failures_are_marked() -> None:
    values = [Value(when="a", number=0.0), Value(when="b", number=5.0, failed=True)]
    drawn = chart("Run time", values, texts.took, bars=True)
    assert drawn is not None and drawn.bar_width > 0 and not drawn.lines
    assert [point.failed for point in drawn.points] == [False, True] and drawn.points[1].text == "b: 5 s, failed"
    assert drawn.points[0].y == rendering.HEIGHT - 5


@pytest.mark.parametrize(("value", "shown"), [(0.0, "0%"), (0.0004, "<0.1%"), (0.073, "7.3%"), (1.0, "100%")])
def test_a_share_that_is_there_is_never_nothing(value: float, shown: str) -> None:
    assert texts.share(value) == shown


def test_times_are_told_from_now() -> None:
    assert texts.away(NOW - timedelta(hours=25), NOW) == "1 day ago"
    assert texts.away(NOW + timedelta(minutes=5), NOW) == "in 5 minutes"
    assert texts.took(3725) == "1 h 2 min"


def test_a_question_is_about_the_graph_of_its_dag_or_of_its_form() -> None:
    graphs = (listed("people"), listed("orders"))
    asked = (
        question("omnigraph_maintenance__people"),
        question("omnigraph_repair", "orders"),
        question("omnigraph_cleanup", "/lake/people/"),
        question("omnigraph_orphans", "/elsewhere"),
        question("omnigraph_repair"),
        question("omnigraph_repair", "file:///lake/other/../people"),
        question("omnigraph_repair", "https://lake/people"),
    )
    found = questions_by_graph(graphs, asked, default=None)
    assert found == {"people": (asked[0], asked[2], asked[5]), "orders": (asked[1],)}


def test_a_graph_of_a_cluster_is_found_by_where_it_lies_and_another_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    clustered = listed("orders", place="s3://shop#orders", root="s3://shop/graphs/orders.omni")
    linked = listed("people", root=str(tmp_path / "link"))
    asked = (
        question("omnigraph_repair", "s3://shop/graphs/orders.omni/"),
        question("omnigraph_repair", str(tmp_path / "real")),
    )
    found = questions_by_graph((clustered, linked), asked, default=None)
    assert found == {"orders": asked[:1], "people": asked[1:]}


@pytest.mark.parametrize("default", ["people", "/lake/people", "file:///lake/people/"])
def test_a_form_without_a_graph_means_the_deployments(default: str) -> None:
    asked = (question("omnigraph_repair"), question("omnigraph_repair", "orders"))
    found = questions_by_graph((listed("people"), listed("orders")), asked, default=default)
    assert found == {"people": asked[:1], "orders": asked[1:]}


@pytest.mark.parametrize(("variable", "environment", "meant"), [("", "/b", "/b"), ("/a", "/b", "/a"), ("", "", None)])
def test_what_a_form_without_a_graph_means(
    variable: str, environment: str, meant: str | None, airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_airflow.graphs import default_graph

    monkeypatch.setenv("AIRFLOW_VAR_OMNIGRAPH_GRAPH", variable)
    monkeypatch.setenv("OMNIGRAPH_GRAPH", environment)
    assert default_graph() == meant


def test_without_a_file_a_question_that_names_no_graph_is_about_the_deployments() -> None:
    alone = listed("deployment", named=False, dag_id="omnigraph_maintenance")
    asked = (question("omnigraph_maintenance"), question("omnigraph_repair"), question("omnigraph_repair", "/other"))
    for default in (None, "/lake/deployment"):
        assert questions_by_graph((alone,), asked, default=default) == {"deployment": asked[:2]}


def test_an_address_of_airflow_holds_whatever_a_run_is_called() -> None:
    asked = replace(question("omnigraph_repair"), run_id="a/b?c#d e")
    assert asked.path == "/dags/omnigraph_repair/runs/a%2Fb%3Fc%23d%20e/tasks/approve_repair/required_actions"


WORST_FIRST = ["gone", "failed", "interrupted", "asks", "poor", "fine"]


def test_the_worst_graph_comes_first() -> None:
    failed, ended = record(outcome=RunOutcome.FAILED), record(outcome=RunOutcome.INTERRUPTED)
    rows = [
        row("fine", score=99),
        row("poor", score=12),
        row("asks", questions=(question("x"),)),
        row("failed", last=failed),
        row("interrupted", last=ended),
        row("gone", problem="there is nothing"),
    ]
    assert [r.graph.name for r in sorted(rows, key=lambda r: r.badness)] == WORST_FIRST


def test_a_bad_night_is_not_hidden_by_a_run_that_began_later_or_ended_after_it() -> None:
    graph, minute = listed("people"), 60_000_000
    scores = {f"r{n}": Measured(score=n) for n in (1, 2, 3)}

    def ran(name: str, began: int, ended: int, outcome: RunOutcome, dag_id: str = "omnigraph_backup") -> RunRecord:
        found = record(name, started_at_us=began * minute, ended_at_us=ended * minute, outcome=outcome)
        return replace(found, header=replace(found.header, dag_id=dag_id), after=scores[name])

    night = ran("r1", 0, 90, RunOutcome.UNAPPROVED, graph.dag_id)
    backup = ran("r2", 60, 61, RunOutcome.SUCCEEDED)
    preview = ran("r3", 95, 96, RunOutcome.PREVIEWED, graph.dag_id)
    found = _row(graph, Look(value=(backup, night)), {}, {}, {})
    assert (found.last, found.score, found.told) == (night, 1, (night,)), "the night ended last"
    found = _row(graph, Look(value=(preview, backup, night)), {}, {}, {})
    assert (found.last, found.score, found.told) == (preview, 3, (night, preview))
    assert found.badness[0] == 1 and Overview(rows=(found,), problems=(), hidden_problems=0).count("unapproved") == 1
    values = {"page": Overview(rows=(found,), problems=(), hidden_problems=0)}
    shown = " ".join(render("graphs.html.j2", airflow="", **values).split())
    assert shown.index('unapproved</span> <span class="detail">night, <a') < shown.index("last run, <a")
    fine = replace(night, outcome=RunOutcome.SUCCEEDED)
    found = _row(graph, Look(value=(preview, backup, fine)), {}, {}, {})
    assert found.told == (preview, fine) and found.badness[0] == 3


def test_a_run_that_failed_without_a_report_is_no_success() -> None:
    newest = NewestRun(dag_id="d", run_id="r", state="failed", started_at=datetime.now(UTC) + timedelta(minutes=1))
    assert row("people", newest=newest).failed_silently
    told = replace(newest, started_at=NOW)
    assert row("people", newest=told).failed_silently, "what ended since was no night"
    assert not row("people", newest=told, night=record()).failed_silently, "its report is there"
    assert row("people", newest=newest).badness < row("people", questions=(question("x"),)).badness


def test_a_run_that_was_cleared_and_failed_again_has_its_report() -> None:
    again = NOW + timedelta(hours=2)
    newest = NewestRun(dag_id="d", run_id="r", state="failed", started_at=again)
    told = record(outcome=RunOutcome.FAILED, ended_at_us=int((again + timedelta(hours=1)).timestamp() * 1e6))
    first = int(NOW.timestamp() * 1e6)
    told = replace(told, header=replace(told.header, dag_id="d", dag_run_id="r", started_at_us=first))
    assert not row("people", newest=newest, night=told).failed_silently
    assert row("people", newest=replace(newest, started_at=again + timedelta(hours=2)), night=told).failed_silently


def test_the_page_of_a_very_large_plan_is_bounded_and_says_where_all_of_it_is() -> None:
    plan = large_cleanup()
    view = plan_view(planned("cleanup"), plan)
    page = render("plan.html.j2", airflow="", graph=listed("people"), view=view, look=Look(value=plan))
    assert len(page) < 1024 * 1024
    assert f"__maintenance/plans/{'0' * 64}.json" in page
    assert f"Protected versions, the first {PAGE_ROWS:,} of {MANY:,}" in page
    assert f"{MANY:,} old versions" in page
    small = plan_view(planned("cleanup"), large_cleanup(many=2, kept_forks=()))
    assert "The whole plan" not in dict(small.facts)
