"""The expire-rows verb and its gates: policies, preview, consent, echo, open."""

from __future__ import annotations

import argparse
import sys

from omnigraph_ops.cli import recording
from omnigraph_ops.cli.address import target_of
from omnigraph_ops.cli.consent import require_consent, require_terms, say_how_to_apply
from omnigraph_ops.cli.output import emit, open_target, progress
from omnigraph_ops.cli.plan_files import read_plan, write_plan
from omnigraph_ops.cli.retention_options import DEFAULT_SHARE
from omnigraph_ops.cli.values import wrong_usage
from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.sealed import verify
from omnigraph_ops.durations import duration
from omnigraph_ops.errors import OpsError, UsageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.retention import RowBounds, RowPolicy, RowRetentionPlan, RowRetentionReport
from omnigraph_ops.stages.expire_rows.apply import engine_of, expire_rows
from omnigraph_ops.stages.expire_rows.plan import plan_row_retention
from omnigraph_ops.stages.expire_rows.policy import parse_policies, read_policies
from omnigraph_ops.stages.expire_rows.view import plan_view, report_view
from omnigraph_ops.views import terminal

_NOTHING = "nothing was deleted"


def retention_verb(args: argparse.Namespace) -> int:
    """Preview by default; `--confirm` plans and applies at once, `--plan` binds to an approved plan."""
    _check_options(args)
    policies = () if args.plan is not None else _policies(args)
    target = target_of(args)
    if not args.confirm:
        print(f"expire-rows is destructive — rerun with --confirm. Target: {target}", file=sys.stderr)
        graph = open_target(args)
        plan = _kept(graph, args.plan) if args.plan is not None else _planned(args, graph, policies)
        if args.plan is None:
            sealed.store(graph.storage, plan)
        if args.save_plan is not None:
            write_plan(args.save_plan, plan)
        emit(args, plan, terminal.shown(plan_view(plan)))
        say_how_to_apply(args, target, ["--plan", plan.digest])
        return 0
    require_consent(args, target)
    graph = open_target(args)
    plan = _kept(graph, args.plan) if args.plan is not None else _planned(args, graph, policies)
    recording.note(args, plan)
    report = expire_rows(graph, plan, engine=engine_of(graph, args.engine), say=progress(args))
    emit(args, report, terminal.shown(report_view(report)))
    return _judged(report)


def _judged(report: RowRetentionReport) -> int:
    """0, or an error that says how many tables kept their expired rows. Pure."""
    kept = [t for t in report.tables if t.error is not None or t.refused is not None]
    if kept:
        raise OpsError(
            f"expire-rows left {len(kept)} of {len(report.tables)} table(s) as they were, first {kept[0].table_key}: "
            f"{kept[0].error or kept[0].refused}"
        )
    return 0


def _planned(args: argparse.Namespace, graph: Graph, policies: tuple[RowPolicy, ...]) -> RowRetentionPlan:
    """A fresh plan; with an engine named, also for what that release can say. Reads."""
    named = args.confirm or args.engine or graph.settings.engine
    return plan_row_retention(
        graph,
        policies,
        bounds=RowBounds(max_share=DEFAULT_SHARE if args.max_share is None else args.max_share, max_rows=args.max_rows),
        branch=None if args.branch == "main" else args.branch,
        engine=engine_of(graph, args.engine) if named else None,
    )


def _kept(graph: Graph, name: str) -> RowRetentionPlan:
    """The plan of a file or of a digest, for this graph and still valid. Reads."""
    if name.startswith("sha256:"):
        plan = sealed.load(graph.storage, RowRetentionPlan, name)
    else:
        plan = read_plan(name, RowRetentionPlan, _NOTHING)
    verify(plan, uri=graph.uri, consequence=_NOTHING)
    return plan


def _policies(args: argparse.Namespace) -> tuple[RowPolicy, ...]:
    if args.policies is not None:
        return read_policies(args.policies)
    age = None if args.older_than is None else duration(args.older_than)
    entry = {"table": args.table, "property": args.property, "older_than": age, "unit": args.unit}
    missing = [f"--{name.replace('_', '-')}" for name, value in entry.items() if value is None and name != "unit"]
    if missing:
        raise UsageError(f"expire-rows needs {' and '.join(missing)}, or --policies FILE; nothing was read")
    with wrong_usage():
        return parse_policies([entry], "the options")


def _check_options(args: argparse.Namespace) -> None:
    one = (args.table, args.property, args.older_than, args.unit)
    if args.policies is not None and any(v is not None for v in one):
        raise UsageError("--policies carries tables, properties and ages; leave their options out; nothing was read")
    own = (*one, args.policies, args.branch, args.max_share, args.max_rows, args.save_plan)
    if args.plan is not None and any(v is not None for v in own):
        raise UsageError("--plan carries its own policies, branch and bounds; leave their options out")
    require_terms(args, max_share=DEFAULT_SHARE)
