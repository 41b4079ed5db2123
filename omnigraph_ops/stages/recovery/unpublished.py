"""Commits that were never published: ours finished by their own marks, an engine's deletes rolled back.

Commits of this tool that no sidecar covers any more: finished by their own marks. An engine that opens the graph while
we are armed withdraws our sidecar. When our process dies after the commit that follows, only the properties of that
commit's transaction tell whose it is.

Deletes that an engine of stamp 3 committed to a table and never published: rolled back. Engine 0.7 deletes rows from
the table before it writes its sidecar, table by table. When it is killed between, or meets another publish, the write
fails, the rows of the graph stay as they were, and the table is ahead of its pin: from then on every write to it is
refused. No sidecar tells an open to finish that, so `recover` restores the published version on top, which is what the
engine does where a sidecar tells it to.

An engine that finds the sidecar of a writer that is at work, of this tool or of another process of the engine, may take
it for dead and restore the version before its commits, after it has published them. That restore is rolled back like a
delete. A repair by force would publish it, and with it the loss of acknowledged rows.

What a merge, load or optimize committed after another process had removed its sidecar is rolled back, too, where it is
proven that nobody was told that it is done: see `late.py`.

A rollback puts the published rows of a table on top of such commits, and publishes that. Where such a commit was
published by mistake, these are the rows that were there before it. Only where every one of these commits is known.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.guards import begin_held, refuse_pending
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.errors import GraphFrozen, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import (
    CONTENT_PRESERVING,
    VersionRecord,
    commits_after,
    name_after,
    read_manifest,
)
from omnigraph_ops.graph.layout import chain_folder, new_ulid
from omnigraph_ops.graph.publish import publish, table_update, version_update
from omnigraph_ops.graph.sidecars import SidecarPin
from omnigraph_ops.graph.state import BranchState, TableEntry, TableUpdate
from omnigraph_ops.lance.commits import drafted, restored
from omnigraph_ops.lance.evidence import fragment_prints, other_rows, wrong_content
from omnigraph_ops.lance.gateway import Dataset, DatasetMissing, live_rows
from omnigraph_ops.models.health import RecoverReport, RecoveryOutcome
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.recovery.late import late_versions
from omnigraph_ops.stages.recovery.unhealed import branch_findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlaid:
    """A table, and the version up to which everything above its published one is known."""

    entry: TableEntry
    head: int
    base: int
    """The version whose rows are put on top."""

    @classmethod
    def at(cls, graph: Graph, entry: TableEntry) -> Self:
        """A table up to its newest version. Reads."""
        return cls(entry=entry, head=int(graph.open_newest(entry).version), base=entry.version)

    @classmethod
    def of_pin(cls, graph: Graph, state: BranchState, pin: SidecarPin) -> Self | None:
        """The table of a sidecar as its branch publishes it; None where it publishes another one. Reads."""
        entry = state.get(pin.table_key)
        if entry is None or (entry.identity, entry.branch) != (pin.identity, state.branch):
            return None
        return cls.at(graph, entry)

    @property
    def chain(self) -> str:
        """The folder of its versions, relative to the graph."""
        return chain_folder(self.entry.path, self.entry.branch)

    @property
    def is_ahead(self) -> bool:
        """Whether there is a version after that one."""
        return self.head > self.base


def put_back(
    graph: Graph, tables: Sequence[Overlaid], *, operation: str, keeper: LeaseKeeper
) -> tuple[TableUpdate, ...] | None:
    """Restore the rows of the bases of tables; None where another writer came before. Writes.

    A repetition after a kill begins anew: what is there already has the same rows.

    Returns:
        What the caller publishes: what is put on top first, one for each table.
    """
    updates, below = list[TableUpdate](), list[TableUpdate]()
    for table in tables:
        version = restore_published(graph, table, operation, keeper)
        if version is None:
            return None
        rows = live_rows(graph.open_version(table.entry, table.base))
        updates.append(version_update(graph, table.entry, version, rows=rows))
        below += () if graph.format.compares_heads else _below(graph, table, version)
    keeper.assert_held()
    return (*updates, *below)


def _below(graph: Graph, table: Overlaid, version: int) -> Iterator[TableUpdate]:
    """The updates that publish the versions between, so that a writer that is alive cannot publish them. Reads."""
    for number in range(table.entry.version + 1, version):
        with contextlib.suppress(DatasetMissing):  # after a cleanup
            rows = live_rows(graph.open_version(table.entry, number))
            yield version_update(graph, table.entry, number, rows=rows)


def restore_published(graph: Graph, table: Overlaid, operation: str, keeper: LeaseKeeper) -> int | None:
    """Commit the rows of the base on exactly the version that is known; None if there is another. Writes."""
    chain = table.chain
    last, base = (read_manifest(graph.storage, chain, version) for version in (table.head, table.base))
    with drafted(last, name_after(last), restored(table.base), mark=operation, beside=(base,)) as draft:
        if other_rows(graph.open_version(table.entry, table.base), draft.dataset) is not None:
            return None
        graph.storage.write(f"{chain}/_transactions/{draft.transaction_name}", draft.transaction)
        keeper.assert_held()
        made = graph.storage.create(f"{chain}/_versions/{draft.manifest.name}", draft.manifest.content)
        return draft.manifest.version if made else None


def brings_back(graph: Graph, entry: TableEntry, record: VersionRecord, versions: Iterable[int]) -> bool:
    """Whether a commit is a restore of one of these versions. Reads."""

    def prints(version: int) -> object:
        return fragment_prints(graph.open_version(entry, version))

    if record.operation != "Restore":
        return False
    made = prints(record.version)
    return any(prints(version) == made for version in versions)


def is_put_back(record: VersionRecord) -> bool:
    """Whether a commit is one of ours that put the published rows on top. Pure."""
    return record.operation == "Restore" and record.mark is not None


_LOG = logging.getLogger(__name__)


def left_by_us(graph: Graph, entry: TableEntry) -> tuple[str, Dataset] | None:
    """The newest of our operations that left a table ahead of its pin, and the head that it made. Reads.

    None where commits are not ours, or are not proven to hold the rows of the pin.
    """
    try:
        head = graph.open_head(entry)
        commits = _commits_if(_all_ours, graph, entry.path, entry.version, int(head.version))
        if not commits or wrong_content(graph.open_pinned(entry), head) is not None:
            return None
    except OpsError:
        return None
    return str(commits[-1].mark), head


def _commits_if(
    are_known: Callable[[Sequence[VersionRecord]], bool], graph: Graph, chain: str, after: int, upto: int
) -> tuple[VersionRecord, ...]:
    """The commits after a version, if all are known; of others no more than the first is read. Reads."""
    for last in sorted({min(after + 1, upto), upto}):
        commits = commits_after(graph.storage, chain, after, last)
        if not commits or not are_known(commits):
            return ()
    return commits


def _all_ours(commits: Sequence[VersionRecord]) -> bool:
    return all(c.mark and c.operation in CONTENT_PRESERVING for c in commits)


def publish_leftovers(graph: Graph) -> Iterator[RecoveryOutcome]:
    """Publish every table that only our own commits moved, one by one. Publishes.

    Raises:
        RecoveryPending, GraphFrozen: something else has to be settled first; nothing was published.
        LeaseHeld: another maintenance run is at work.
    """
    entries = graph.maintained(graph.state())
    left = in_parallel(partial(left_by_us, graph), entries, workers=graph.settings.concurrency)
    found = [entry.table_key for entry, ours in zip(entries, left, strict=True) if ours is not None]
    told = (_frozen(graph, table_key) or _publish(graph, table_key) for table_key in found)
    yield from (outcome for outcome in told if outcome is not None)


def _frozen(graph: Graph, table_key: str) -> RecoveryOutcome | None:
    """What is said of a table that is frozen, None where it is not. Reads."""
    try:
        refuse_frozen(graph, table_key)
    except GraphFrozen as error:
        return left_by_freeze(error)
    return None


def left_by_freeze(error: GraphFrozen) -> RecoveryOutcome:
    """What became of something that waits for the end of a freeze. Pure."""
    return RecoveryOutcome(action="deferred", detail=str(error))


def _publish(graph: Graph, table_key: str) -> RecoveryOutcome | None:
    """Decide again under the lease, then publish. Writes."""
    with committer_turn(graph, f"recover {table_key}") as keeper:
        refuse_pending(graph, table_key=table_key)
        entry = graph.published(table_key)
        left = left_by_us(graph, entry) if entry is not None else None
        if entry is None or left is None:
            return None
        operation_id, head = left
        outcome = RecoveryOutcome(
            operation_id=operation_id,
            table_key=table_key,
            action="rolled_forward",
            from_version=entry.version,
            to_version=int(head.version),
            detail="a commit of this tool that no sidecar covers any more; it was published as it is",
        )
        unit = Unit(name=f"recovery of {table_key}", stage="recover", table_key=table_key, version=entry.version)
        begin_held(graph, unit, keeper)
        publish(graph, (table_update(graph, entry, head),), actor=None)
        graph.run.ended(unit, RecoverReport.of_unit(graph.uri, outcome))
    return outcome


_QUIET_SECONDS, _SETTLE_SECONDS = 10.0, 1.0
"""How long a table must stay as it is before its writer is taken for gone, before the fence and behind it.

A delete looks for edges in one table after the other between its commits, which takes seconds where they are many.
"""
_FENCE_SECONDS = 60.0
"""The engine's writers are refused for this time at most; what is not done by then is left to the next run."""


def overlaid(graph: Graph, entry: TableEntry) -> Overlaid | None:
    """A table that is ahead of its pin by nothing but what this module is about; None for any other. Reads."""
    if not graph.format.publishes:
        return None
    try:
        table = Overlaid.at(graph, entry)
        if not _commits_if(partial(_all_left, graph, entry), graph, table.chain, entry.version, table.head):
            return None
        graph.open_pinned(entry)  # what is damaged cannot be put on top
    except OpsError:
        return None
    return table


def _all_left(graph: Graph, entry: TableEntry, commits: Sequence[VersionRecord]) -> bool:
    late = late_versions(graph, entry.branch, commits)
    return all(c.version in late or _is_undone(graph, c) for c in commits)


def roll_back(graph: Graph) -> Iterator[RecoveryOutcome]:
    """Restore the published rows of every such table behind the fence, and publish that version, one by one. Publishes.

    Nothing happens as long as a table moves: its writer is at work. A table that fails stays as it is.

    Raises:
        RecoveryPending: something else has to be settled first; nothing was written, and no writer was kept away.
    """
    ahead = _ahead(graph, _concerned(graph))
    frozen = {where: outcome for where in ahead if (outcome := _frozen(graph, where[1])) is not None}
    yield from frozen.values()
    seen = {where: table for where, table in ahead.items() if where not in frozen}
    if not seen:
        return
    refuse_pending(graph)
    if _settled(graph, seen, _QUIET_SECONDS) != seen:
        return
    fence = contextlib.nullcontext(graph) if graph.is_alone() else fenced(graph, at_most_seconds=_FENCE_SECONDS)
    with fence as alone:
        for branch, table_key in _settled(alone, seen, _SETTLE_SECONDS):
            try:
                outcome = _roll_back(alone, branch, table_key)
            except OpsError as error:
                _LOG.warning("%s: not rolled back: %s", table_key, error)
                continue
            if outcome is not None:
                yield outcome


_Where = tuple[str | None, str]
"""Branch and key of a table."""


def _concerned(graph: Graph) -> list[_Where]:
    """Tables of main, and those of branches that are ahead of what is published. Reads."""
    if not graph.format.publishes:
        return []
    ahead = (f for f in branch_findings(graph, covered=()) if f.lance_head_version is not None)
    on_main = (entry.table_key for entry in graph.maintained(graph.state()) if entry.branch is None)
    return [*((None, table_key) for table_key in on_main), *((f.branch, f.table_key) for f in ahead)]


def _ahead(graph: Graph, concerned: Sequence[_Where]) -> Mapping[_Where, Overlaid]:
    """What there is to roll back of these tables, frozen ones included. Reads."""
    found = in_parallel(lambda where: _overlaid_at(graph, *where), concerned, workers=graph.settings.concurrency)
    return {where: table for where, table in zip(concerned, found, strict=True) if table is not None}


def _overlaid_at(graph: Graph, branch: str | None, table_key: str) -> Overlaid | None:
    try:
        entry = graph.published(table_key) if branch is None else graph.state(branch).get(table_key)
    except OpsError:
        return None  # the branch was deleted meanwhile, or nobody can read it
    return overlaid(graph, entry) if entry is not None and entry.branch == branch else None


def recoverable(graph: Graph, branch: str | None, table_key: str) -> Overlaid | None:
    """A table of a branch, if `roll_back` may put what is published on top: not where it is frozen. Reads."""
    table = _overlaid_at(graph, branch, table_key)
    with contextlib.suppress(OpsError):
        if table is not None:
            refuse_frozen(graph, table_key)
            return table
    return None


def _settled(graph: Graph, seen: Mapping[_Where, Overlaid], seconds: float) -> Mapping[_Where, Overlaid]:
    """Those that are as they were so long ago. Reads."""
    graph.run.pause(seconds)
    now = _ahead(graph, list(seen))
    return {where: table for where, table in now.items() if seen[where] == table}


def _roll_back(graph: Graph, branch: str | None, table_key: str) -> RecoveryOutcome | None:
    """Decide again under the lease, then restore and publish. Writes."""
    where = "" if branch is None else f" on branch {branch!r}"
    with committer_turn(graph, f"recover {table_key}{where}") as keeper:
        if not graph.is_alone():
            return None  # the fence was lifted in time
        refuse_pending(graph, table_key=table_key)
        table = recoverable(graph, branch, table_key)
        if table is None:
            return None
        entry, operation, name = table.entry, new_ulid(), f"rollback of {table_key}{where}"
        unit = Unit(name=name, stage="recover", table_key=table_key, version=entry.version, branch=branch or "")
        begin_held(graph, unit, keeper)
        updates = put_back(graph, [table], operation=operation, keeper=keeper)
        if updates is None:
            graph.run.ended(unit, None)
            return None
        publish(graph, updates, actor=None, branch=branch)
        outcome = RecoveryOutcome(
            operation_id=operation,
            table_key=table_key,
            action="rolled_back",
            from_version=entry.version,
            to_version=updates[0].version,
            detail=f"what the engine committed{where} was never published; the published rows are in place again",
        )
        graph.run.ended(unit, RecoverReport.of_unit(graph.uri, outcome))
    return outcome


def _is_undone(graph: Graph, commit: VersionRecord) -> bool:
    """Whether a commit past the pin is one that is rolled back, or our own rollback of one. Pure."""
    if commit.operation == "Restore":
        return True
    if commit.mark is not None:
        return False
    return graph.format.deletes_inline and commit.operation == "Delete" and graph.format.is_of_engine(commit.writer)
