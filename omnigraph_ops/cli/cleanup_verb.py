"""The cleanup verb and its gates, in the engine's order: policy, preview, consent, echo, open."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from omnigraph_ops import render, serde
from omnigraph_ops.cleanup import cleanup_all, plan_cleanup
from omnigraph_ops.cleanup.plan import check_policy, verify_digest
from omnigraph_ops.cli.address import target_of
from omnigraph_ops.cli.output import emit, open_target
from omnigraph_ops.durations import parse_duration
from omnigraph_ops.errors import ApprovalMissing, InvalidInput, OpsError, StalePlan, UsageError
from omnigraph_ops.graph.graph import open_graph
from omnigraph_ops.graph.location import locate
from omnigraph_ops.models import CleanupPlan, RetentionPolicy

_SMALL_KEEP = 3


def cleanup_verb(args: argparse.Namespace) -> int:
    """Preview by default; `--confirm` plans and applies at once, `--plan` binds to an approved plan."""
    target = target_of(args)
    approved = _read_plan(args) if args.plan is not None else None
    policy = approved.policy if approved is not None else _policy(args, target)
    _warn(policy)
    if not args.confirm:
        return _preview(args, target, policy, approved)
    _require_consent(args, target)
    graph = open_target(args)
    plan = approved or plan_cleanup(graph, policy, tables=tuple(args.tables))
    if plan.uri != graph.uri:
        raise StalePlan(f"the plan is for {plan.uri}, not {graph.uri}; nothing was deleted")
    report = cleanup_all(graph, plan)
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


def _preview(args: argparse.Namespace, target: str, policy: RetentionPolicy, approved: CleanupPlan | None) -> int:
    print(
        f"cleanup is destructive — rerun with --confirm. Policy for {target}: {render.policy_text(policy)}",
        file=sys.stderr,
    )
    plan = approved or plan_cleanup(open_graph(target), policy, tables=tuple(args.tables))
    emit(args, plan, render.cleanup_plan_text(plan))
    return 0


def _policy(args: argparse.Namespace, target: str) -> RetentionPolicy:
    older_than = parse_duration(args.older_than) if args.older_than is not None else None
    policy = RetentionPolicy(keep_versions=args.keep, older_than_secs=older_than)
    locate(target)
    check_policy(policy)
    return policy


def _warn(policy: RetentionPolicy) -> None:
    if policy.keep_versions is None or policy.keep_versions >= _SMALL_KEEP:
        return
    what = "--keep 0 behaves as 1; " if policy.keep_versions == 0 else ""
    print(
        f"warning: {what}fewer than {_SMALL_KEEP} versions leave no room below the recovery floor",
        file=sys.stderr,
    )


def _read_plan(args: argparse.Namespace) -> CleanupPlan:
    if args.keep is not None or args.older_than is not None or args.tables:
        raise UsageError("--plan carries its own policy and tables; leave --keep, --older-than and --table out")
    try:
        plan = serde.from_json(CleanupPlan, Path(args.plan).read_bytes())
    except OSError as error:
        raise InvalidInput(f"cannot read the plan {args.plan}: {error.strerror}; nothing was deleted") from None
    verify_digest(plan)
    return plan


def _require_consent(args: argparse.Namespace, target: str) -> None:
    """A destructive verb on a graph that is not local needs --yes or a typed yes."""
    if locate(target).is_local or args.yes:
        return
    if args.json or not sys.stdin.isatty():
        raise ApprovalMissing(
            f"refusing destructive `cleanup` against non-local target {target} without confirmation; "
            "pass --yes to confirm (an interactive TTY would be prompted instead)"
        )
    prompt = f"About to run a destructive `cleanup` against {target} (not local). Type 'yes' to continue: "
    print(prompt, end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)  # the end of input leaves the prompt's line open
    if answer.strip().lower() not in {"yes", "y"}:
        raise ApprovalMissing("aborted: destructive `cleanup` not confirmed; nothing was deleted")
