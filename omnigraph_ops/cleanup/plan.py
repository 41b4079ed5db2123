"""Plan cleanup: exactly which versions go, what holds the others, and a digest to approve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from omnigraph_ops import serde
from omnigraph_ops.cleanup.forks import find_orphaned_forks
from omnigraph_ops.cleanup.protect import Protection, protect, spelling_problem
from omnigraph_ops.cleanup.view import GraphView, look
from omnigraph_ops.edges.lance_cleanup import VersionFacts, existing_versions, explain_removal
from omnigraph_ops.errors import InvalidInput, OpsError, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.ids import now_us
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.models import CleanupPlan, OrphanedFork, RetentionPolicy, TableCleanupPlan
from omnigraph_ops.optimize.observe import select_entries
from omnigraph_ops.window import refuse_pending

_MICROS = 1_000_000


def plan_cleanup(graph: Graph, policy: RetentionPolicy, *, tables: Sequence[str] = ()) -> CleanupPlan:
    """What cleanup would remove under the policy, table by table. Reads.

    Tables that may not be cleaned (drift, an unreadable branch) are listed as refused; the others
    proceed.

    Raises:
        InvalidInput: the policy has no bound or a negative one.
        RecoveryPending: something is pending; nothing may be collected beside a recovery.
    """
    check_policy(policy)
    refuse_pending(graph)
    view = look(graph)
    entries = select_entries(graph, view.main, tables)
    forks = find_orphaned_forks(graph, entries, view)
    planner = _Planner(graph=graph, view=view, policy=policy, planned_at_us=now_us(), forks=forks)
    plan = CleanupPlan(
        uri=graph.uri,
        stamp=graph.stamp,
        policy=policy,
        planned_at_us=planner.planned_at_us,
        tables=tuple(planner.table(entry) for entry in entries),
        orphaned_forks=forks,
        digest="",
    )
    return replace(plan, digest=serde.digest(plan))


def verify_digest(plan: CleanupPlan) -> None:
    """Refuse a plan whose content is not what its digest was made from. Pure."""
    if serde.digest(replace(plan, digest="")) != plan.digest:
        raise StalePlan("the cleanup plan was altered after it was approved; nothing was deleted; plan again")


def check_policy(policy: RetentionPolicy) -> None:
    """Refuse a policy that bounds nothing or is negative. Pure."""
    if policy.keep_versions is None and policy.older_than_secs is None:
        raise InvalidInput("cleanup requires at least one of --keep or --older-than; nothing was read or deleted")
    if (policy.keep_versions or 0) < 0 or (policy.older_than_secs or 0) < 0:
        raise InvalidInput("keep and older-than must not be negative; nothing was deleted")


def candidates(versions: Sequence[VersionFacts], policy: RetentionPolicy, now_seconds: float) -> tuple[int, ...]:
    """Versions that the policy alone would let go, ascending; both bounds must agree. Pure."""
    kept = max(policy.keep_versions, 1) if policy.keep_versions is not None else 1
    old = versions[:-kept]
    if policy.older_than_secs is not None:
        cutoff = now_seconds - policy.older_than_secs
        old = [v for v in old if v.committed_at < cutoff]
    return tuple(v.version for v in old)


def removable(wanted: Sequence[int], protection: Protection) -> tuple[tuple[int, ...], str | None]:
    """What may go of what the policy wants, and what blocked the rest. Pure.

    Collection stops at the lowest pin of any branch, so that history stays continuous above it.
    """
    below = tuple(v for v in wanted if v < protection.floor and not protection.holds(v))
    blocked = any(v > protection.floor for v in wanted)
    reason = f"version {protection.floor}: {protection.floor_reason}" if blocked else None
    return below, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    """What every table of one plan is judged by."""

    graph: Graph
    view: GraphView
    policy: RetentionPolicy
    planned_at_us: int
    forks: tuple[OrphanedFork, ...]

    def table(self, entry: TableEntry) -> TableCleanupPlan:
        """The plan of one table; what keeps it from being read becomes its refusal. Reads."""
        plan = TableCleanupPlan(
            table_key=entry.table_key,
            table_path=entry.path,
            pinned_version=entry.version,
            lance_head_version=entry.version,
            versions=(),
        )
        try:
            return self._readable(entry, plan)
        except OpsError as error:
            return replace(plan, refused=str(error))

    def _readable(self, entry: TableEntry, plan: TableCleanupPlan) -> TableCleanupPlan:
        head = self.graph.open_head(entry)
        plan = replace(plan, lance_head_version=int(head.version))
        orphaned = {f.branch for f in self.forks if f.table_path == entry.path}
        refused = refusal(self.graph, entry, self.view, ignoring=orphaned)
        if refused is not None:
            return replace(plan, refused=refused)
        protection = protect(self.graph.lance, entry, head, self.view)
        wanted = candidates(existing_versions(head), self.policy, self.planned_at_us / _MICROS)
        versions, blocked_by = removable(wanted, protection)
        return replace(
            plan,
            versions=versions,
            protected=protection.versions,
            blocked_by=blocked_by,
            estimated_bytes=explain_removal(head, versions),
        )


def refusal(graph: Graph, entry: TableEntry, view: GraphView, *, ignoring: set[str]) -> str | None:
    """Why no version of this table may be collected right now, None when it may. Reads."""
    if view.unreadable:
        name, problem = view.unreadable[0]
        return f"branch {name!r} cannot be read, so what it pins is unknown: {problem}"
    head = graph.open_head(entry)
    if head.version != entry.version:
        return (
            f"uncovered HEAD drift: manifest version {entry.version}, Lance HEAD {head.version}; "
            "run `omnigraph-ops repair` before version cleanup"
        )
    unopenable = _unopenable_pin(graph, entry, view)
    if unopenable is not None:
        return unopenable
    forks = [b.name for b in graph.lance.branches(head) if b.name not in ignoring]
    return spelling_problem(head, forks, graph.table_uri(entry))


def _unopenable_pin(graph: Graph, entry: TableEntry, view: GraphView) -> str | None:
    for state in view.branches:
        for other in state.entries:
            if other.path == entry.path and other.branch is None:
                try:
                    graph.open_pinned(other)
                except OpsError as error:
                    return f"branch {state.branch!r} pins version {other.version}, which cannot be opened: {error}"
    return None
