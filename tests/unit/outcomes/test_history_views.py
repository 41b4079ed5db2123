"""What a person sees of the history, in every form; names from a graph are only ever text."""

from __future__ import annotations

import csv
import io
from html.parser import HTMLParser

import pytest

from omnigraph_ops.models.history import HistoryList, RunOutcome, TableTrend, TableTrendPoint
from omnigraph_ops.outcomes import history_views
from omnigraph_ops.outcomes.history_views import list_view, run_view, trend_view
from omnigraph_ops.views.markdown import document as markdown
from omnigraph_ops.views.view import View, plain_text
from omnigraph_ops.views.view import html_page as html
from tests.support.history import record, table

EVIL = '<script>alert(1)</script>|"><img src=x onerror=y>`**\x1b[31m'
RUN = record(
    f"cli/{EVIL}",
    errors=(f"{EVIL} failed",),
    attention=(EVIL,),
    notes=(f"backup 1: 2 files, at {EVIL}",),
    tables=(table(EVIL, error=EVIL, outcome=RunOutcome.FAILED), table("node:B", stages=(), reason="deferred_budget")),
)
POINT = TableTrendPoint(run_id=RUN.run_id, started_at_us=1, ended_at_us=2, verb="optimize", table=RUN.tables[0])
TREND = TableTrend(uri=EVIL, table_key=EVIL, points=(POINT,))
VIEWS = [list_view(HistoryList(uri=EVIL, runs=(RUN,))), run_view(RUN), trend_view(TREND)]


class Page(HTMLParser):
    """The tags of a page and how many cells its rows have."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("view", VIEWS, ids=["list", "run", "trend"])
def test_a_page_holds_no_markup_of_a_name_and_nothing_from_elsewhere(view: View) -> None:
    page, parsed = html(view), Page(html(view))
    assert not {"script", "img", "link", "iframe"} & set(parsed.tags)
    assert not [name for name in parsed.attributes if name.startswith("on") or name in {"src", "href"}]
    assert "&lt;script&gt;" in page
    assert "prefers-color-scheme: dark" in page


def test_an_interrupted_run_is_called_so() -> None:
    run = record(outcome=RunOutcome.INTERRUPTED, errors=("ended by SIGTERM",))
    lines = plain_text(run_view(run)).splitlines()
    assert ["Outcome", "interrupted"] in [line.split() for line in lines]
    assert lines[lines.index("Interrupted") + 1] == "  - ended by SIGTERM"


def test_nobody_knows_when_a_killed_run_ended() -> None:
    labels = {outcome: [name for name, _ in run_view(record(outcome=outcome)).facts] for outcome in RunOutcome}
    assert {outcome for outcome, names in labels.items() if "Last heard of" in names} == {RunOutcome.INTERRUPTED}
    assert {outcome for outcome, names in labels.items() if "Ended" not in names} == {RunOutcome.INTERRUPTED}


@pytest.mark.parametrize("view", VIEWS, ids=["list", "run", "trend"])
def test_every_row_of_a_markdown_table_has_the_cells_of_its_header(view: View) -> None:
    lines = [line for line in markdown(view).splitlines() if line.startswith("|")]
    bare = [line.replace("\\\\", "").replace("\\|", "").count("|") for line in lines]
    assert "<script>" not in markdown(view).replace("\\<", "")
    for section in (s for s in view.sections if s.rows):
        assert bare.count(len(section.header) + 1) >= len(section.rows) + 2
    assert set(bare) == {len(s.header) + 1 for s in view.sections if s.rows}


@pytest.mark.parametrize("view", VIEWS, ids=["list", "run", "trend"])
def test_a_terminal_gets_no_control_characters(view: View) -> None:
    assert "\x1b" not in plain_text(view)
    assert "\\x1b[31m" in plain_text(view)


@pytest.mark.parametrize(
    ("seconds", "took"),
    [
        (1.25, "1.25 s"),
        (59.7, "1 min 0 s"),
        (61.2, "1 min 1 s"),
        (119.6, "2 min 0 s"),
        (3599.6, "1 h 0 min"),
        (126_668, "35 h 11 min"),
    ],
)
def test_no_minute_has_sixty_seconds(seconds: float, took: str) -> None:
    run = record(started_at_us=0, ended_at_us=int(seconds * 1e6))
    assert f"after {took}" in dict(run_view(run).facts)["Ended"]


def test_outcomes_are_words() -> None:
    shown = plain_text(run_view(RUN))
    assert "failed" in shown
    assert "nothing to do" not in shown
    assert "deferred budget" in shown
    assert "cleanup  rejected  ada" in shown
    assert "4 → 1" in shown


def test_every_form_of_a_run_has_its_notes() -> None:
    view, plain = run_view(RUN), run_view(record())
    forms = (plain_text(view), markdown(view), html(view), history_views.run_csv(RUN))
    assert all("backup 1: 2 files" in form for form in forms)
    assert "Done" not in [section.title for section in plain.sections]


def test_a_list_has_a_line_per_run_and_an_empty_one_says_so() -> None:
    assert len(VIEWS[0].sections[0].rows) == 1
    empty = list_view(HistoryList(uri="/g", runs=()))
    assert (empty.sections, empty.facts) == ((), (("Runs", "0"),))
    assert Page(html(empty)).tags.count("table") == 0


def test_csv_holds_the_numbers_and_no_formulas() -> None:
    lines = list(csv.DictReader(io.StringIO(history_views.run_csv(RUN))))
    assert [line["table_key"] for line in lines] == ["", EVIL, "node:B"]
    assert lines[1]["fragments_before"] == "4"
    formula = record("=cmd|x", tables=(table("@SUM(A1)"),))
    cells = list(csv.DictReader(io.StringIO(history_views.run_csv(formula))))
    assert (cells[0]["run_id"], cells[1]["table_key"]) == ("'=cmd|x", "'@SUM(A1)")
    assert len(history_views.runs_csv((RUN, RUN)).splitlines()) >= 3
    assert next(csv.DictReader(io.StringIO(history_views.trend_csv(TREND))))["table_key"] == EVIL
    assert history_views.runs_csv(()) == ""
