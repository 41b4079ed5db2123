"""The verbs about what was done: history and audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import rich_click as click

from omnigraph_ops import serde
from omnigraph_ops.cli.call import Call, verb
from omnigraph_ops.cli.options import POSITIVE, SECONDS, OneOf
from omnigraph_ops.errors import InvalidInput, UsageError, unknown_table
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models.history import HistoryList, RunRecord, TableTrend
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes import history_views as views
from omnigraph_ops.views import markdown
from omnigraph_ops.views.view import View, for_terminal, html_page

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

Shown = HistoryList | RunRecord | TableTrend


@verb(
    "audit",
    "Show who approved, rejected and applied which plan, newest last.",
    click.option("--newest", type=POSITIVE, metavar="N", default=50, show_default=True, help="Show only the newest N."),
    examples=("g.omni", "s3://bucket/g.omni --newest 5"),
    panel="Look",
)
def audit_verb(call: Call) -> int:
    from omnigraph_ops.cli import recording

    graph = call.open()
    recording.settled(graph)
    log = audit_log.log_of(graph.storage, graph.uri, newest=call.options["newest"])
    call.emit(log, audit_log.audit_view(log))
    return 0


@verb(
    "history",
    "Show the runs of this graph, newest first, one of them, or one table.",
    click.option(
        "--table", "tables", metavar="KEY", multiple=True, help="Only this table, as in node:Person; may be repeated."
    ),
    click.option("--run", metavar="ID", help="Show the whole report of this run."),
    click.option("--last", type=POSITIVE, metavar="N", help="Show only the newest N (default 20)."),
    click.option(
        "--since", type=SECONDS, metavar="DURATION", help="Show only runs that began less than this ago, as in 30d."
    ),
    click.option(
        "--format",
        type=OneOf(["table", "json", "markdown", "html", "csv"]),
        default="table",
        show_default=True,
        help="How to print it.",
    ),
    examples=("g.omni --since 30d", "g.omni --table node:Person --format csv"),
    panel="Look",
)
def history_verb(call: Call) -> int:
    from omnigraph_ops.cli import recording

    said = call.options
    if said["run"] is not None and call.given("tables", "last", "since"):
        raise UsageError("--run shows one whole run; leave --table, --last and --since out")
    if len(said["tables"]) > 1:
        raise UsageError("history shows one table at a time")
    if call.json and said["format"] not in {"table", "json"}:
        raise UsageError(f"--json and --format {said['format']} exclude each other")
    graph = call.open()
    recording.settled(graph)
    call.say(_rendered(_read(call, graph), "json" if call.json else said["format"]))
    return 0


def _read(call: Call, graph: Graph) -> Shown:
    from omnigraph_ops.outcomes import history
    from omnigraph_ops.outcomes.runs import unsettled
    from omnigraph_ops.outcomes.task_journals import unsettled_runs

    said = call.options
    if said["run"] is not None:
        run = history.read_run(graph, said["run"])
        if run is None:
            raise InvalidInput(
                f"the history of {graph.uri} has no run {said['run']!r}; `omnigraph-ops history` lists what it has"
            )
        return run
    since_us = None if said["since"] is None else max(0, now_us() - said["since"] * 1_000_000)
    last = 20 if said["last"] is None else said["last"]
    if said["tables"]:
        key = said["tables"][0]
        points = history.table_trend(graph, key, last=last, since_us=since_us)
        if not points and since_us is None:
            known = {entry.table_key for entry in graph.state().entries}
            if key not in known:
                raise unknown_table(graph.uri, key, known, "its history has none of that name either")
        return TableTrend(uri=graph.uri, table_key=key, points=points)
    runs = history.read_runs(graph, last=last, since_us=since_us)
    return HistoryList(uri=graph.uri, runs=runs, unsettled=(*unsettled(graph), *unsettled_runs(graph.storage)))


def _rendered(shown: Shown, form: str) -> str:
    if form == "json":
        return serde.dumps(shown)
    forms: dict[type, tuple[Callable[[Any], View], Callable[[Any], str]]] = {
        RunRecord: (views.run_view, views.run_csv),
        TableTrend: (views.trend_view, views.trend_csv),
        HistoryList: (views.list_view, lambda found: views.runs_csv(found.runs)),
    }
    view, csv = forms[type(shown)]
    if form == "csv":
        return csv(shown)
    return {"table": for_terminal, "markdown": markdown.document, "html": html_page}[form](view(shown))
