"""The cleanup verb and its gates, in the engine's order: policy, preview, consent, echo, open."""

from __future__ import annotations

import argparse
import sys

from omnigraph_ops import render
from omnigraph_ops.cleanup import cleanup_all, plan_cleanup
from omnigraph_ops.cleanup.policy import check_policy
from omnigraph_ops.cli import recording
from omnigraph_ops.cli.address import target_of
from omnigraph_ops.cli.consent import require_consent
from omnigraph_ops.cli.fencing import fence_of, fence_seconds
from omnigraph_ops.cli.output import emit, open_target
from omnigraph_ops.cli.plan_files import read_plan
from omnigraph_ops.durations import parse_duration
from omnigraph_ops.errors import OpsError, UsageError
from omnigraph_ops.graph.graph import open_graph
from omnigraph_ops.graph.location import locate
from omnigraph_ops.models import CleanupPlan, CleanupStats, RetentionPolicy, SnapshotExpiry
from omnigraph_ops.sealed import verify

_SMALL_KEEP = 3


def cleanup_verb(args: argparse.Namespace) -> int:
    """Preview by default; `--confirm` plans and applies at once, `--plan` binds to an approved plan."""
    target = target_of(args)
    fence_seconds(args)
    approved = _read_plan(args) if args.plan is not None else None
    policy = approved.policy if approved is not None else _policy(args, target)
    _warn(policy)
    if not args.confirm:
        return _preview(args, target, policy, approved)
    require_consent(args, target)
    graph = open_target(args)
    with fence_of(args, graph):
        plan = approved or plan_cleanup(graph, policy, tables=tuple(args.tables))
        recording.note(args, plan)
        report = cleanup_all(graph, plan, on_progress=None if args.quiet else _progress)
    emit(args, report, render.cleanup_text(report))
    if report.orphaned_forks_failed:
        raise OpsError(
            f"{len(report.orphaned_forks_failed)} orphaned fork(s) could not be removed, no live branch is affected; "
            "run cleanup again"
        )
    if report.failed:
        raise OpsError(
            f"cleanup failed for {len(report.failed)} of {len(report.tables)} table(s), nothing else is affected; "
            "resolve what their rows say and run cleanup again"
        )
    return 0


def _progress(table: CleanupStats) -> None:
    done = table.error or f"{table.old_versions_removed} versions, {table.bytes_removed} bytes removed"
    print(f"  {table.table_key}: {done}", file=sys.stderr, flush=True)


def _preview(args: argparse.Namespace, target: str, policy: RetentionPolicy, approved: CleanupPlan | None) -> int:
    print(
        f"cleanup is destructive — rerun with --confirm. Policy for {target}: {render.policy_text(policy)}",
        file=sys.stderr,
    )
    graph = open_graph(target)
    if approved is not None:
        verify(approved, uri=graph.uri, consequence="nothing was deleted")
    plan = approved or plan_cleanup(graph, policy, tables=tuple(args.tables))
    emit(args, plan, render.cleanup_plan_text(plan))
    return 0


def _policy(args: argparse.Namespace, target: str) -> RetentionPolicy:
    older_than = parse_duration(args.older_than) if args.older_than is not None else None
    policy = RetentionPolicy(
        keep_versions=args.keep,
        older_than_secs=older_than,
        expiry=_expiry(args),
        between_pins=args.between_pins,
    )
    locate(target)
    check_policy(policy)
    return policy


def _expiry(args: argparse.Namespace) -> SnapshotExpiry | None:
    """The snapshot-expiry terms; any of them asks for that policy. Pure."""
    time_retained = parse_duration(args.time_retained) if args.time_retained is not None else None
    given = {
        name: value
        for name, value in (
            ("retain_min", args.retain_min),
            ("retain_max", args.retain_max),
            ("time_retained_secs", time_retained),
            ("expire_limit", args.expire_limit),
        )
        if value is not None
    }
    return SnapshotExpiry(**given) if given or args.expire else None


def _warn(policy: RetentionPolicy) -> None:
    kept = policy.expiry.retain_min if policy.expiry is not None else policy.keep_versions
    if kept is None or kept >= _SMALL_KEEP:
        return
    what = "--keep 0 behaves as 1; " if kept == 0 else ""
    print(
        f"warning: {what}fewer than {_SMALL_KEEP} versions leave no room below the recovery floor",
        file=sys.stderr,
    )


def _read_plan(args: argparse.Namespace) -> CleanupPlan:
    own_policy = (args.keep, args.older_than, args.retain_min, args.retain_max, args.time_retained, args.expire_limit)
    if any(v is not None for v in own_policy) or args.tables or args.expire or args.between_pins:
        raise UsageError("--plan carries its own policy and tables; leave the options of both out")
    return read_plan(args.plan, CleanupPlan, "nothing was deleted")
