"""Plan cleanup: exactly which versions and forks go, what holds the others, and a digest to approve."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from omnigraph_ops.coordination.environment import refuse_wrong_clock_unwritten
from omnigraph_ops.coordination.graph_view import GraphView, look
from omnigraph_ops.coordination.guards import look_again, refuse_lasting
from omnigraph_ops.coordination.sealed import expiry, seal
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph, select_entries
from omnigraph_ops.graph.lance_manifest import committed_at_us, stored_versions
from omnigraph_ops.graph.layout import branch_reference, is_schema_apply_lock, now_us
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import BranchRef, Dataset
from omnigraph_ops.lance.versions import (
    VersionFacts,
    existing_versions,
    explain_removal,
    files_of_branch,
    freed_with_forks,
)
from omnigraph_ops.models.cleanup import (
    SHORTEST_AGE_SECONDS,
    UNREADABLE,
    CleanupPlan,
    OrphanedFork,
    PlannedFile,
    RetentionPolicy,
    TableCleanupPlan,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import SILENT, Meter, Progress
from omnigraph_ops.stages.cleanup.internal import InternalTables, Tables
from omnigraph_ops.stages.cleanup.policy import LiveTables, candidates, removable


def find_orphaned_forks(graph: Graph, entries: Iterable[TableEntry], view: GraphView) -> tuple[OrphanedFork, ...]:
    """Orphaned forks in the order of their removal: within a table, those made from others first. Reads.

    One that a tag or a hold keeps carries the reason as its `error`; the others carry their files.
    """
    found = [fork for entry in entries for fork in _of_table(graph, entry, view)]
    for key, path in graph.format.branched_internal_tables(graph.context):
        dataset = graph.open_at(path)
        found += _described(graph, dataset, key, path, view)
    return tuple(found)


def is_orphaned(graph: Graph, fork: OrphanedFork, view: GraphView) -> bool:
    """Decide again, from fresh state, right before the deletion. Reads the age of a fork of a live branch.

    A branch that cannot be read is never called an orphan, nor is one that no graph manifest could place. Under the
    name of a live branch only one that is an hour old is called so: the first write there makes its fork before
    anything names it. In an exclusive run there is no such write.
    """
    if not graph.format.publishes:
        return False
    is_internal = fork.branch == "main" or is_schema_apply_lock(fork.branch)
    if is_internal or fork.branch in {name for name, _ in view.unreadable}:
        return False
    if fork.table_key.startswith("_"):
        return fork.branch not in view.live_names
    entry = next(iter(view.main.at(fork.table_path)), None)
    if entry is None or view.places(entry, fork.branch):
        return False
    return fork.branch not in view.live_names or graph.settings.exclusive or _is_old(graph, fork)


def _is_old(graph: Graph, fork: OrphanedFork) -> bool:
    """Whether no write that may still be at work made this fork, by the clock of the store. Reads."""
    try:
        made = graph.storage.stat(branch_reference(fork.table_path, fork.branch)).modified_at
    except (FileNotFoundError, OpsError):
        return False
    return made is not None and time.time() - made > SHORTEST_AGE_SECONDS


def removal_order(refs: Iterable[BranchRef]) -> list[BranchRef]:
    """Those made from others first, whatever their names: Lance refuses to delete a referenced parent. Pure."""
    return sorted(refs, key=lambda ref: (-len(ref.identifier), -len(ref.name), ref.name))


def why_kept(
    graph: Graph, dataset: Dataset, fork: OrphanedFork, view: GraphView, others: Iterable[BranchRef]
) -> str | None:
    """What keeps an orphaned fork: a tag, a hold or a branch made from it; None when nothing does. Reads."""
    tags = [name for name, branch, _ in graph.lance.tags(dataset) if branch == fork.branch]
    if tags:
        return f"tag {tags[0]!r} keeps it"
    children = [ref.name for ref in others if ref.parent_branch == fork.branch]
    if children:
        return f"Lance branch {children[0]!r} forks from it"
    held = view.held(fork.table_path, fork.branch)
    return held[0][1] if held else None


def fork_files(dataset: Dataset, fork: OrphanedFork, others: Iterable[BranchRef]) -> tuple[PlannedFile, ...]:
    """Everything that deleting the fork deletes while the others exist, by path. Reads."""
    return files_of_branch(dataset, fork.table_path, fork.branch, {ref.name for ref in others})


def _of_table(graph: Graph, entry: TableEntry, view: GraphView) -> list[OrphanedFork]:
    try:
        return _described(graph, graph.open_head(entry), entry.table_key, entry.path, view)
    except OpsError:
        # Its own row of the plan says why it cannot be read; the other tables go on.
        return []


def _described(graph: Graph, dataset: Dataset, key: str, path: str, view: GraphView) -> list[OrphanedFork]:
    found = []
    order = removal_order(graph.lance.branches(dataset))
    staying = set(order)
    for ref in order:
        fork = OrphanedFork(table_key=key, table_path=path, branch=ref.name)
        if is_orphaned(graph, fork, view):
            kept = why_kept(graph, dataset, fork, view, staying)
            if kept is not None:
                found.append(replace(fork, error=kept))
                continue
            staying.remove(ref)
            found.append(replace(fork, files=fork_files(dataset, fork, staying)))
    return found


def plan_cleanup(
    graph: Graph, policy: RetentionPolicy, *, tables: Sequence[str] = (), progress: Progress = SILENT
) -> CleanupPlan:
    """What cleanup would remove under the policy, table by table. Reads.

    Tables that may not be cleaned (drift, an unreadable branch) are listed as refused; the others
    proceed. The internal tables are part of it when nobody else publishes and no tables are named.

    Raises:
        RecoveryPending: something is pending; nothing may be collected beside a recovery.
        ClockWrong: this host and the store disagree about the time.
    """
    refuse_lasting(graph)
    refuse_wrong_clock_unwritten(graph.storage)
    view = look(graph)
    entries = select_entries(graph, view.main, tables)
    found = find_orphaned_forks(graph, entries, view)
    forks = tuple(f for f in found if f.error is None)
    meter = Meter(progress, "looking at old versions", len(entries), "tables")
    planner = _Planner(graph=graph, policy=policy, planned_at_us=now_us(), forks=forks, meter=meter)
    tables_now = LiveTables(graph=graph, view=view, clones=graph.clones([entry.path for entry in entries]))

    def afresh(found: Sequence[TableEntry]) -> list[TableCleanupPlan]:
        return planner.tables(found, replace(tables_now, view=look(graph)))

    first = {row.table_key: row for row in planner.tables(entries, tables_now)}
    # A branch that was deleted since the look seems damage. What is damaged stays so, and is not worth a third look.
    if damaged := [entry for entry in entries if first[entry.table_key].is_damaged]:
        first |= {row.table_key: row for row in afresh(damaged)}
    rows = tuple(look_again(graph, first.values(), _looks_drifted, afresh))
    # Their removal needs a fence or an exclusive run, so only such a run plans it.
    if graph.is_alone() and not tables:
        going = {row.table_path: row.versions for row in rows}
        internal = InternalTables(graph=graph, view=view, going=going)
        for entry in internal.entries():
            progress(f"looking at old versions of {entry.table_key}")
            rows += (planner.table(entry, internal),)
    return seal(
        CleanupPlan(
            uri=graph.uri,
            stamp=graph.stamp,
            policy=policy,
            planned_at_us=planner.planned_at_us,
            expires_at_us=expiry(planner.planned_at_us, graph.settings),
            tables=rows,
            orphaned_forks=forks,
            kept_forks=tuple(f for f in found if f.error is not None),
            digest="",
        )
    )


def _looks_drifted(row: TableCleanupPlan) -> bool:
    return row.refused is not None and row.lance_head_version != row.pinned_version


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    """What every table of one plan is judged by."""

    graph: Graph
    policy: RetentionPolicy
    planned_at_us: int
    forks: tuple[OrphanedFork, ...]
    meter: Meter

    def tables(self, entries: Sequence[TableEntry], of: LiveTables) -> list[TableCleanupPlan]:
        """The plans of some tables, in their order. Reads."""
        return in_parallel(partial(self.table, of=of), entries, workers=self.graph.settings.concurrency)

    def table(self, entry: TableEntry, of: Tables) -> TableCleanupPlan:
        """The plan of one table; what keeps it from being read becomes its refusal. Reads."""
        row = TableCleanupPlan(
            table_key=entry.table_key,
            table_path=entry.path,
            pinned_version=entry.version,
            lance_head_version=entry.version,
            versions=(),
            between_pins=of.is_internal,
        )
        try:
            return self._readable(entry, row, of)
        except OpsError as error:
            return replace(row, refused=f"{UNREADABLE}{error}")
        finally:
            self.meter.add(0 if of.is_internal else 1)

    def _readable(self, entry: TableEntry, row: TableCleanupPlan, of: Tables) -> TableCleanupPlan:
        policy, head = self.policy, self.graph.open_head(entry)
        row = replace(row, lance_head_version=int(head.version))
        orphaned = {f.branch for f in self.forks if f.table_path == entry.path and not of.is_internal}
        refused = of.refusal(entry, ignoring=orphaned)
        if refused is not None:
            return replace(row, refused=refused)
        wanted = candidates(self._versions(entry, head), policy, self.planned_at_us)
        protection = of.protect(entry, head, wanted, policy.expiry)
        between_pins = policy.between_pins or of.is_internal
        versions, blocked_by = removable(wanted, protection, between_pins=between_pins, expiry=policy.expiry)
        files = explain_removal(head, entry.path, versions)
        if orphaned and versions:
            files = _with_forks(files, freed_with_forks(head, entry.path, versions, orphaned))
        return replace(
            row,
            versions=versions,
            between_pins=between_pins,
            protected=protection.versions,
            blocked_by=blocked_by,
            estimated_bytes=sum(f.size for f in files),
            files=files,
        )

    def _versions(self, entry: TableEntry, head: Dataset) -> tuple[VersionFacts, ...]:
        """Every version of the main chain, ascending: Lance reads one manifest after another for their times. Reads."""
        storage, workers = self.graph.storage, self.graph.settings.concurrency
        numbers = sorted(stored_versions(storage, entry.path))
        times = in_parallel(partial(committed_at_us, storage, entry.path), numbers, workers=workers)
        known = tuple(VersionFacts(version=v, committed_at_us=at) for v, at in zip(numbers, times, strict=True) if at)
        # One that cannot be read is damaged, or went meanwhile: Lance tells which.
        return known if len(known) == len(numbers) else existing_versions(head)


def _with_forks(files: Sequence[PlannedFile], freed: Sequence[PlannedFile]) -> tuple[PlannedFile, ...]:
    """Forks go before versions, and free files that they share: those are part of the plan too. Pure."""
    known = {f.path for f in files}
    return tuple(sorted((*files, *(f for f in freed if f.path not in known)), key=lambda f: f.path))


def fork_gone(graph: Graph, unit: Unit) -> OrphanedFork | None:
    """The fork of a unit, None when it is still there. Reads."""
    listed = {ref.name for ref in graph.lance.branches(graph.open_at(unit.table_path))}
    if unit.branch in listed:
        return None
    return OrphanedFork(table_key=unit.table_key, table_path=unit.table_path, branch=unit.branch, files=unit.files)
