"""Which versions of the graph manifest and its companions are protected.

Every publish leaves a version of the graph manifest that lists all its fragments, so their total grows with the square
of the publishes until it is compacted. An old version is read for three things only: to open a commit, as the base of a
merge, and as the fork of a branch. One that serves none of them goes as the retention policy says. The companions of
stamp 3 are read at their newest version, so there only forks count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from omnigraph_ops.coordination.graph_view import GraphView
from omnigraph_ops.errors import CorruptGraph, OpsError, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import MANIFEST_DIR, chain_folder
from omnigraph_ops.graph.stamp import newest_foreign
from omnigraph_ops.graph.state import TableEntry, by_id
from omnigraph_ops.lance.gateway import Dataset, DatasetMissing
from omnigraph_ops.lance.versions import existing_versions
from omnigraph_ops.models.cleanup import SnapshotExpiry, TableCleanupPlan
from omnigraph_ops.stages.cleanup.policy import LiveTables, Protection, Where, protect, spelling_problem, stays_whole

NOT_ALONE = "others may publish: only a run with --fence, or an exclusive one, removes versions of internal tables"
TOO_LATE = (
    "the fence ended before it was known which versions may go; nothing was deleted; run again with a longer limit of "
    "the fence (--fence-seconds)"
)


def internal_entry(graph: Graph, table: TableCleanupPlan) -> TableEntry | None:
    """The internal table that a row of a plan is about, None where it is about another one. Reads."""
    if (table.table_key, table.table_path) not in graph.format.internal_tables(graph.context):
        return None
    return _entry(graph, table.table_key, table.table_path)


def _entry(graph: Graph, key: str, path: str) -> TableEntry:
    head = graph.open_at(path)
    return TableEntry(table_key=key, path=path, version=int(head.version), branch=None, row_count=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTables:
    """The internal tables of a graph as one look at it sees them."""

    is_internal: ClassVar = True
    graph: Graph
    view: GraphView
    going: Mapping[str, Collection[int]] = field(default_factory=dict)
    """Path of a table to the versions of its main chain that the same plan removes."""
    only_behind_fence: bool = False
    """Whether to stop judging once the fence of the run reaches its limit: the lock is not lifted before that ends."""

    def entries(self) -> Iterator[TableEntry]:
        """Each of them at its newest version. Reads."""
        return (_entry(self.graph, *table) for table in self.graph.format.internal_tables(self.graph.context))

    def refusal(self, entry: TableEntry, ignoring: Collection[str] = ()) -> str | None:
        """Why no version of one may be collected right now, None when it may. Reads."""
        if not self.graph.is_alone():
            return NOT_ALONE
        if (why := stays_whole(self.graph, self.view, entry, "needs")) is not None:
            return why
        head = self.graph.open_head(entry)
        forks = [b.name for b in self.graph.lance.branches(head) if not b.is_bare]
        return spelling_problem(head, forks, self.graph.table_uri(entry))

    def protect(
        self, entry: TableEntry, head: Dataset, wanted: Collection[int], expiry: SnapshotExpiry | None = None
    ) -> Protection:
        """What keeps versions of one; of the commits only those in `wanted` are looked at. Reads.

        Args:
            expiry: look at no more of them, from the oldest on, than `removable` asks about.
        """
        held = protect(self.graph.lance, entry, head, self.view)
        if entry.path != MANIFEST_DIR:
            return held
        held = held.with_reasons(self._needed())
        judged = self._judged(sorted(wanted))
        return held.with_reasons(judged if expiry is None else _until_enough(judged, held.numbers(), expiry))

    def _needed(self) -> Iterator[tuple[int, str]]:
        for state in self.view.bases:
            if state.branch is None:
                yield state.manifest_version, "merges start from it"
        written, _ = newest_foreign(self.graph.context, MANIFEST_DIR)
        if written is not None:
            # Text indexes are written for the release that it names.
            yield written, "the newest version that the engine wrote"

    def _judged(self, versions: Sequence[int]) -> Iterator[tuple[int, str | None]]:
        """Each of these versions with the commit that keeps it, None where none does. Reads each commit once.

        Raises:
            StalePlan: the fence of the run reached its limit.
        """
        branches = [None, *(state.branch for state in self.view.branches)]
        commits = by_id(self.graph.format.commits(self.graph.context, branch) for branch in branches)
        at = {c.manifest_version: c.commit_id for c in commits.values() if c.branch is None}
        there: dict[str, frozenset[int]] = {}
        # In ascending order each version adds few fragments to those that were read for the one before.
        for version in versions:
            if self.only_behind_fence and not self.graph.run_context.exclusive:
                raise StalePlan(f"{MANIFEST_DIR}: {TOO_LATE}")
            yield version, self._why_needed(version, at[version], there) if version in at else None

    def _why_needed(self, version: int, commit_id: str, there: dict[str, frozenset[int]]) -> str | None:
        """Why a commit keeps its version: every table of it can be opened once `going` is gone. Reads the version."""
        try:
            entries = self.graph.state(version=version).entries
        except DatasetMissing:
            return None  # a cleanup that was stopped removed files of it: no reader opens it any more
        except OpsError as error:
            return f"commit {commit_id} cannot be read, so what it needs is unknown: {error}"
        is_whole = all(e.version in self._stored(e, there) for e in entries)
        return f"commit {commit_id} can be opened" if is_whole else None

    def _stored(self, entry: TableEntry, there: dict[str, frozenset[int]]) -> frozenset[int]:
        """The versions of a table's chain that stay. Lists each chain once."""
        folder = chain_folder(entry.path, entry.branch)
        if folder not in there:
            gone = self.going.get(entry.path, ()) if entry.branch is None else ()
            there[folder] = stored_versions(self.graph.storage, folder).difference(gone)
        return there[folder]

    def prove(self, entry: TableEntry, stays: Collection[int], lost_before: Collection[Where]) -> None:
        """Fail when a version that stays is gone, or a branch does not read as before. Reads."""
        lost = sorted(set(stays) - {v.version for v in existing_versions(self.graph.open_head(entry))})
        problem = f"version {lost[0]} is gone" if lost else None
        for state in self.view.states if problem is None else ():
            if self.graph.state(state.branch).entries != state.entries:
                problem = f"branch {state.branch or 'main'} does not read as before"
        if problem is not None:
            raise CorruptGraph(
                f"after the cleanup of {entry.table_key} {problem}; stop cleanups of this graph and restore it"
            )


def _until_enough(
    judged: Iterable[tuple[int, str | None]], held: Collection[int], expiry: SnapshotExpiry
) -> Iterator[tuple[int, str | None]]:
    """The judged versions up to the end of the first run of free ones, or as many of it as may go. Reads no further.

    A graph that gets commits faster than versions expire would otherwise be judged longer in each run.
    """
    free = 0
    for version, why in judged:
        yield version, why
        if why is None and version not in held:
            free += 1
        elif free:
            return
        if free == expiry.expire_limit:
            return


Tables = LiveTables | InternalTables
"""What judges a table, and proves afterwards that it is whole."""
