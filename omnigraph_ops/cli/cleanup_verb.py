"""The cleanup verb and its gates, in the engine's order: policy, preview, consent, echo, open."""

from __future__ import annotations

import argparse
import sys

from omnigraph_ops.cli import recording
from omnigraph_ops.cli.address import target_of
from omnigraph_ops.cli.consent import options, require_consent, require_terms, say_how_to_apply
from omnigraph_ops.cli.fencing import fence_of, fence_seconds
from omnigraph_ops.cli.output import emit, open_target
from omnigraph_ops.cli.plan_files import read_plan, write_plan
from omnigraph_ops.cli.values import wrong_usage
from omnigraph_ops.coordination.sealed import verify
from omnigraph_ops.durations import duration
from omnigraph_ops.errors import OpsError, UsageError
from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.models import CleanupPlan, CleanupStats, RetentionPolicy, SnapshotExpiry
from omnigraph_ops.stages.cleanup import cleanup_all, plan_cleanup
from omnigraph_ops.stages.cleanup.policy import check_policy, refuse_young
from omnigraph_ops.views import render

_SMALL_KEEP = 3


def cleanup_verb(args: argparse.Namespace) -> int:
    """Preview by default; `--confirm` plans and applies at once, `--plan` binds to an approved plan."""
    target = target_of(args)
    fence_seconds(args)
    approved = _read_plan(args) if args.plan is not None else None
    policy = approved.policy if approved is not None else _policy(args)
    if not args.allow_young:
        refuse_young(policy, ", or pass --allow-young")
    _warn(policy)
    if not args.confirm:
        return _preview(args, target, policy, approved)
    require_consent(args, target)
    graph = open_target(args)
    with fence_of(args, graph) as graph:
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
    if args.save_plan is not None:
        write_plan(args.save_plan, plan)
    emit(args, plan, render.cleanup_plan_text(plan))
    say_how_to_apply(args, target, _terms(args, policy))
    return 0


def _policy(args: argparse.Namespace) -> RetentionPolicy:
    policy = RetentionPolicy(
        keep_versions=args.keep,
        older_than_secs=args.older_than,
        expiry=_expiry(args),
        between_pins=args.between_pins,
    )
    with wrong_usage():
        check_policy(policy)
    require_terms(args, **({} if policy.expiry is None else _expiry_terms(policy.expiry)))
    return policy


def _terms(args: argparse.Namespace, policy: RetentionPolicy) -> list[str]:
    """The options that ask for this policy and these tables, without a default. Pure."""
    age = None if policy.older_than_secs is None else duration(policy.older_than_secs)
    expiry = {} if policy.expiry is None else _expiry_terms(policy.expiry) | {"retain_max": policy.expiry.retain_max}
    return [
        *options(keep=policy.keep_versions, older_than=age, **expiry),
        *(["--between-pins"] if policy.between_pins else []),
        *(word for key in args.tables for word in options(table=key)),
    ]


def _expiry_terms(expiry: SnapshotExpiry) -> dict[str, object]:
    """The terms that have a default. Pure."""
    return {
        "retain_min": expiry.retain_min,
        "time_retained": duration(expiry.time_retained_secs),
        "expire_limit": expiry.expire_limit,
    }


def _expiry(args: argparse.Namespace) -> SnapshotExpiry | None:
    """The snapshot-expiry terms; any of them asks for that policy. Pure."""
    given = {
        name: value
        for name, value in (
            ("retain_min", args.retain_min),
            ("retain_max", args.retain_max),
            ("time_retained_secs", args.time_retained),
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
        f"warning: {what}fewer than {_SMALL_KEEP} versions leave nobody an older version to go back to",
        file=sys.stderr,
    )


def _read_plan(args: argparse.Namespace) -> CleanupPlan:
    own_policy = (args.keep, args.older_than, args.retain_min, args.retain_max, args.time_retained, args.expire_limit)
    if any(v is not None for v in (*own_policy, args.save_plan)) or args.tables or args.expire or args.between_pins:
        raise UsageError("--plan carries its own policy and tables; leave the options of both, and --save-plan, out")
    return read_plan(args.plan, CleanupPlan, "nothing was deleted")
