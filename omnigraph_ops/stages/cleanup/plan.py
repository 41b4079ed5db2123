"""Plan cleanup: exactly which versions go, what holds the others, and a digest to approve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from omnigraph_ops.coordination.frozen import why_frozen
from omnigraph_ops.coordination.graph_view import GraphView, look
from omnigraph_ops.coordination.guards import refuse_pending
from omnigraph_ops.coordination.sealed import expiry, seal
from omnigraph_ops.coordination.store_clock import refuse_wrong_clock_unwritten
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.entries import select_entries
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.ids import now_us
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.cleanup import FileToGo, existing_versions, explain_removal, freed_with_forks
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.models import CleanupPlan, OrphanedFork, PlannedFile, RetentionPolicy, TableCleanupPlan
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.cleanup.forks import find_orphaned_forks
from omnigraph_ops.stages.cleanup.policy import candidates, removable
from omnigraph_ops.stages.cleanup.protect import protect, spelling_problem
from omnigraph_ops.stages.cleanup.request import check_policy
from omnigraph_ops.storage.location import below_graph


def plan_cleanup(graph: Graph, policy: RetentionPolicy, *, tables: Sequence[str] = ()) -> CleanupPlan:
    """What cleanup would remove under the policy, table by table. Reads.

    Tables that may not be cleaned (drift, an unreadable branch) are listed as refused; the others
    proceed.

    Raises:
        InvalidInput: the policy has no bound or a negative one.
        RecoveryPending: something is pending; nothing may be collected beside a recovery.
        ClockWrong: this host and the store disagree about the time.
    """
    check_policy(policy)
    refuse_pending(graph)
    refuse_wrong_clock_unwritten(graph.storage, "nothing was planned")
    view = look(graph)
    entries = select_entries(graph, view.main, tables)
    found = find_orphaned_forks(graph, entries, view)
    forks = tuple(f for f in found if f.error is None)
    planner = _Planner(graph=graph, view=view, policy=policy, planned_at_us=now_us(), forks=forks)
    return seal(
        CleanupPlan(
            uri=graph.uri,
            stamp=graph.stamp,
            policy=policy,
            planned_at_us=planner.planned_at_us,
            expires_at_us=expiry(planner.planned_at_us, graph.settings),
            tables=tuple(in_parallel(planner.table, entries, workers=graph.settings.concurrency)),
            orphaned_forks=forks,
            kept_forks=tuple(f for f in found if f.error is not None),
            digest="",
        )
    )


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
        wanted = candidates(existing_versions(head), self.policy, self.planned_at_us)
        versions, blocked_by = removable(
            wanted, protection, between_pins=self.policy.between_pins, expiry=self.policy.expiry
        )
        files = files_to_go(entry, head, versions)
        if orphaned and versions:
            files = _with_forks(entry, files, freed_with_forks(head, versions, orphaned))
        return replace(
            plan,
            versions=versions,
            between_pins=self.policy.between_pins,
            protected=protection.versions,
            blocked_by=blocked_by,
            estimated_bytes=sum(f.size for f in files),
            files=files,
        )


def _with_forks(entry: TableEntry, files: Sequence[PlannedFile], freed: Sequence[FileToGo]) -> tuple[PlannedFile, ...]:
    """Forks go before versions, and free files that they share: those are part of the plan too. Pure."""
    known = {f.path for f in files}
    more = [PlannedFile(path=f"{entry.path}/{f.path}", size=f.size, kind=f.kind) for f in freed]
    return tuple(sorted((*files, *(f for f in more if f.path not in known)), key=lambda f: f.path))


def files_to_go(entry: TableEntry, head: Dataset, versions: Sequence[int]) -> tuple[PlannedFile, ...]:
    """Every file that removing these versions deletes, by path relative to the graph. Reads."""
    return tuple(
        PlannedFile(path=below_graph(f.path, entry.path), size=f.size, kind=f.kind)
        for f in explain_removal(head, versions)
    )


def refusal(graph: Graph, entry: TableEntry, view: GraphView, *, ignoring: set[str]) -> str | None:
    """Why no version of this table may be collected right now, None when it may. Reads."""
    frozen = why_frozen(graph, view.holds, entry.table_key)
    if frozen is not None:
        return frozen
    if view.unreadable:
        name, problem = view.unreadable[0]
        return f"branch {name!r} cannot be read, so what it pins is unknown: {problem}"
    head = graph.open_head(entry)
    if head.version != entry.version:
        return (
            f"uncovered HEAD drift: manifest version {entry.version}, Lance HEAD {head.version}; "
            "`omnigraph-ops check` says what settles it"
        )
    unopenable = _unopenable_pin(graph, entry, view)
    if unopenable is not None:
        return unopenable
    cloned = graph.cloned(entry.path)
    if cloned is not None:
        return cloned
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
