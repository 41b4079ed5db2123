"""Which versions of the graph manifest and its companions are protected.

Every publish leaves a version of the graph manifest that lists all its fragments, so their total grows with the square
of the publishes until it is compacted. An old version is read for three things only: to open a commit, as the base of a
merge, and as the fork of a branch. One that serves none of them goes as the retention policy says. The companions of
stamp 3 are read at their newest version, so there only forks count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from omnigraph_ops.coordination.graph_view import GraphView
from omnigraph_ops.errors import CorruptGraph, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MANIFEST_DIR, any_version_of, chain_folder
from omnigraph_ops.graph.stamp import newest_foreign
from omnigraph_ops.graph.state import GraphCommit, TableEntry, by_id
from omnigraph_ops.lance.gateway import Dataset, DatasetMissing
from omnigraph_ops.lance.versions import existing_versions
from omnigraph_ops.models.cleanup import TableCleanupPlan
from omnigraph_ops.stages.cleanup.policy import LiveTables, Protection, Where, protect, spelling_problem, stays_whole

NOT_ALONE = "others may publish: only a run with --fence, or an exclusive one, removes versions of internal tables"


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

    def protect(self, entry: TableEntry, head: Dataset, wanted: Collection[int]) -> Protection:
        """What keeps versions of one; of the commits only those in `wanted` are looked at. Reads."""
        held = protect(self.graph.lance, entry, head, self.view)
        return held if entry.path != MANIFEST_DIR else held.with_reasons(self._needed(frozenset(wanted)))

    def _needed(self, wanted: Collection[int]) -> Iterator[tuple[int, str]]:
        branches = [None, *(state.branch for state in self.view.branches)]
        commits = by_id(self.graph.format.commits(self.graph.context, branch) for branch in branches)
        for state in self.view.bases:
            if state.branch is None:
                yield state.manifest_version, "merges start from it"
        written, _ = newest_foreign(self.graph.context, MANIFEST_DIR)
        if written is not None:
            # Text indexes are written for the release that it names.
            yield written, "the newest version that the engine wrote"
        yield from self._readable(c for c in commits.values() if c.branch is None and c.manifest_version in wanted)

    def _readable(self, commits: Iterable[GraphCommit]) -> Iterator[tuple[int, str]]:
        """The graph versions of which every table can be opened once `going` is gone. Reads each of them once."""
        at = {commit.manifest_version: commit.commit_id for commit in commits}
        there: dict[str, frozenset[int]] = {}
        # In this order each version adds few fragments to those that were read for the one before.
        for version in sorted(at):
            try:
                entries = self.graph.state(version=version).entries
            except DatasetMissing:
                continue  # a cleanup that was stopped removed files of it: no reader opens it any more
            except OpsError as error:
                yield version, f"commit {at[version]} cannot be read, so what it needs is unknown: {error}"
                continue
            if all(e.version in self._stored(e, there) for e in entries):
                yield version, f"commit {at[version]} can be opened"

    def _stored(self, entry: TableEntry, there: dict[str, frozenset[int]]) -> frozenset[int]:
        """The versions of a table's chain that stay. Lists each chain once."""
        folder = chain_folder(entry.path, entry.branch)
        if folder not in there:
            stored = (any_version_of(name) for name in self.graph.storage.list(f"{folder}/_versions"))
            gone = self.going.get(entry.path, ()) if entry.branch is None else ()
            there[folder] = frozenset(v for v in stored if v is not None and v not in gone)
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


Tables = LiveTables | InternalTables
"""What judges a table, and proves afterwards that it is whole."""
