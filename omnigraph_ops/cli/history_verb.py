"""The history verb: the runs of a graph, one run, or one table over time."""

from __future__ import annotations

import argparse

from omnigraph_ops import serde
from omnigraph_ops.cli import recording
from omnigraph_ops.cli.output import open_target, say
from omnigraph_ops.errors import InvalidInput, UsageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.ids import now_us
from omnigraph_ops.models.history import HistoryList, RunRecord, TableTrend
from omnigraph_ops.outcomes import history
from omnigraph_ops.outcomes.history import render_csv
from omnigraph_ops.outcomes.history.views import list_view, run_view, trend_view
from omnigraph_ops.outcomes.runs.settle import unsettled
from omnigraph_ops.outcomes.runs.tasks import unsettled_runs
from omnigraph_ops.views import html, markdown, terminal
from omnigraph_ops.views.view import View

Shown = HistoryList | RunRecord | TableTrend


def history_verb(args: argparse.Namespace) -> int:
    """Print what was asked for, in the form that was asked for. Reads."""
    if args.run is not None and (args.tables or args.last is not None or args.since is not None):
        raise UsageError("--run shows one whole run; leave --table, --last and --since out")
    if len(args.tables) > 1:
        raise UsageError("history shows one table at a time")
    graph = open_target(args)
    recording.settled(graph)
    shown = _read(args, graph)
    say(args, _rendered(shown, "json" if args.json else args.format))
    return 0


def _read(args: argparse.Namespace, graph: Graph) -> Shown:
    if args.run is not None:
        run = history.read_run(graph, args.run)
        if run is None:
            raise InvalidInput(f"the history of {graph.uri} has no run {args.run!r}")
        return run
    since_us = None if args.since is None else max(0, now_us() - args.since * 1_000_000)
    last = 20 if args.last is None else args.last
    if args.tables:
        points = history.table_trend(graph, args.tables[0], last=last, since_us=since_us)
        return TableTrend(uri=graph.uri, table_key=args.tables[0], points=points)
    runs = history.read_runs(graph, last=last, since_us=since_us)
    return HistoryList(uri=graph.uri, runs=runs, unsettled=(*unsettled(graph), *unsettled_runs(graph.storage)))


def _rendered(shown: Shown, form: str) -> str:
    if form == "json":
        return serde.dumps(shown)
    if form == "csv":
        return _csv(shown)
    return {"table": terminal.shown, "markdown": markdown.document, "html": html.page}[form](_view(shown))


def _view(shown: Shown) -> View:
    if isinstance(shown, RunRecord):
        return run_view(shown)
    return trend_view(shown) if isinstance(shown, TableTrend) else list_view(shown)


def _csv(shown: Shown) -> str:
    if isinstance(shown, RunRecord):
        return render_csv.run_csv(shown)
    return render_csv.trend_csv(shown) if isinstance(shown, TableTrend) else render_csv.runs_csv(shown.runs)
