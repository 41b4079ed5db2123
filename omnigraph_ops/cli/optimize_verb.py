"""The verbs about optimizing: plan, optimize (here or queued) and health."""

from __future__ import annotations

import argparse
import sys

from omnigraph_ops.cli.airflow_api import queue_run
from omnigraph_ops.cli.fencing import fence_of, fence_seconds
from omnigraph_ops.cli.output import emit, open_target
from omnigraph_ops.durations import duration
from omnigraph_ops.errors import OpsError, UsageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.stages.health import health
from omnigraph_ops.stages.optimize import Budget, optimize_all, plan_optimize
from omnigraph_ops.views import render
from omnigraph_ops.views.render_health import health_text


def plan_verb(args: argparse.Namespace) -> int:
    budget = _budget(args)
    plan = plan_optimize(_open(args), tables=tuple(args.tables), budget=budget)
    emit(args, plan, render.plan_text(plan))
    return 0


def health_verb(args: argparse.Namespace) -> int:
    report = health(open_target(args), tables=tuple(args.tables))
    emit(args, report, health_text(report))
    return 0


def optimize_verb(args: argparse.Namespace) -> int:
    budget = _budget(args)
    fence_seconds(args)
    if args.queue:
        return _queue(args, budget)
    graph = _open(args)
    if args.exclusive:
        graph = graph.with_settings(graph.settings.model_copy(update={"exclusive": True}))
    with fence_of(args, graph) as graph:
        report = optimize_all(
            graph, tables=tuple(args.tables), budget=budget, on_progress=None if args.quiet else _progress
        )
    emit(args, report, render.optimize_text(report))
    if report.failed:
        keys = ", ".join(t.table_key for t in report.failed)
        raise OpsError(
            f"optimize failed for {len(report.failed)} table(s): {keys}; the others are done; "
            "run `omnigraph-ops check`, then optimize again"
        )
    return 0


def _queue(args: argparse.Namespace, budget: Budget | None) -> int:
    """Hand the run to Airflow and return at once. Triggers the nightly DAG."""
    if args.tables or args.exclusive or args.fence:
        raise UsageError("--queue starts the nightly DAG, which takes neither --table nor --exclusive nor --fence")
    if args.defer_index_remap:
        raise UsageError("--queue: set OMNIGRAPH_OPS_DEFER_INDEX_REMAP where Airflow runs instead")
    graph = open_target(args)
    budget = budget or Budget()
    wanted = {
        "graph": graph.target,
        "max_bytes": None if budget.max_bytes is None else str(budget.max_bytes),
        "max_tables": budget.max_tables,
        "deadline": None if args.deadline is None else duration(args.deadline),
        "policy": args.policy,
        "cutoff": args.cutoff,
        "auto": args.auto or None,
    }
    run = queue_run({name: value for name, value in wanted.items() if value is not None})
    emit(args, run, f"queued {run.dag_run_id} of {run.dag_id} for {graph.uri} ({run.state})")
    return 0


def _open(args: argparse.Namespace) -> Graph:
    graph = open_target(args)
    settings = graph.settings.for_run(
        policy=args.policy, cutoff=args.cutoff, auto=args.auto, defer_index_remap=args.defer_index_remap
    )
    return graph.with_settings(settings)


def _budget(args: argparse.Namespace) -> Budget | None:
    budget = Budget(max_bytes=args.max_bytes, max_tables=args.max_tables, deadline_seconds=args.deadline)
    return None if budget == Budget() else budget


def _progress(table_key: str, text: str) -> None:
    print(f"  {table_key}: {text}", file=sys.stderr, flush=True)
