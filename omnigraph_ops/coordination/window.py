"""The armed window: lease, sidecar, one commit, publish, disarm. The only way the HEAD of a graph's table is moved.

A sidecar keeps no engine away, so everything that takes time happens outside, and every commit lands on exactly the
version it was drafted for: nothing that an engine committed is ever buried below a commit of ours, where no open could
finish it (docs/adr/0013). After a kill at any point either nothing moved, or a single-pin
Optimize sidecar, or the mark in the commit itself, tells `recover` (or the engine's next read-write open) what to
publish.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from omnigraph_ops import serde
from omnigraph_ops.coordination import guards
from omnigraph_ops.coordination.guards import refuse_pending
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn, process_name
from omnigraph_ops.coordination.pace import Patience, pace_of
from omnigraph_ops.errors import (
    CorruptGraph,
    DriftFound,
    OpsError,
    OutcomeUnknown,
    PublishConflict,
    RecoveryPending,
    StalePlan,
    StorageError,
)
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import (
    UnreadableTransaction,
    version_record,
)
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.graph.publish import Ready, drafts_of, publish, read_ahead, version_update
from omnigraph_ops.graph.sidecars import engine_root, sidecar_names, sidecar_path, write_sidecar
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.commits import Change, Draft
from omnigraph_ops.lance.evidence import other_rows
from omnigraph_ops.lance.gateway import Dataset, live_rows
from omnigraph_ops.models import UnitWindow
from omnigraph_ops.storage.inventory import Stored, look_again, remove_files, remove_folder

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedUnit:
    """What one unit did: the entry as published afterwards, and its window."""

    entry: TableEntry
    window: UnitWindow | None
    """None when there was nothing to commit."""
    landed: int = 0
    """How many of its changes were committed: another writer may have come between two of them."""


def land(
    graph: Graph, entry: TableEntry, changes: Sequence[Change], *, unit: str, journalled: bool = False
) -> LandedUnit:
    """Commit prepared, content-preserving changes to a table under a sidecar, and publish them at once. Writes.

    The commits are drafted and proven before the lease is taken. Each lands on exactly the version that it was
    drafted for or not at all.

    Args:
        entry: the table; what is published of it may have moved since, as long as the changes still fit.
        changes: one or more, each fitting what the one before makes.
        journalled: a journal names the files of the changes; otherwise they go when they were not committed.

    Raises:
        RecoveryPending: something foreign is in flight; nothing was committed.
        StalePlan, DriftFound, CommitConflict: a change does not fit what is there now; nothing was committed.
        CorruptGraph: the version that a change makes would lose rows; nothing was committed.
        LeaseHeld: another maintenance run took over; nothing was committed.
        OutcomeUnknown: a commit landed but could not be published; the next `recover` does that.
    """
    moved, patience, window = 0, Patience(graph), None
    try:
        while moved < _ATTEMPTS:
            window = _Window.open(graph, entry, unit)
            drafts = window.draft(changes)
            closed, wait = _take_turn(window, drafts, changes, patience)
            if closed is not None:
                return LandedUnit(entry=window.published(), window=closed, landed=window.landed)
            _remove(graph, window.written)
            moved += not wait
            graph.run.pause(wait)
        raise PublishConflict(
            f"{entry.table_key} moved {_ATTEMPTS} times while it was about to be committed to; nothing was written; "
            "run again when it is quieter"
        )
    finally:
        if window is None or not window.uncertain:
            landed = window.landed if window is not None else 0
            _remove(graph, window.written[landed:] if window is not None else ())
            if not journalled:
                discard(graph, entry, changes[landed:])


def _take_turn(
    window: _Window, drafts: Sequence[Draft], changes: Sequence[Change], patience: Patience
) -> tuple[UnitWindow | None, float]:
    """The window, closed, or None and how long to wait before the table is looked at again. Writes."""
    graph, table_key = window.graph, window.entry.table_key
    try:
        with committer_turn(graph, f"optimize {table_key} ({window.unit})") as keeper:
            refuse_pending(graph, table_key=table_key)
            ready = window.still_fits(changes)
            pause = patience.pause(ready, keeper) if ready is not None else 0.0
            return (window.land(drafts, ready, keeper) if ready is not None and not pause else None), pause
    except RecoveryPending:
        # A writer is in its own window; what is prepared is worth a moment.
        wait = patience.beside_writer()
        if wait is None:
            raise
        return None, wait


def discard(graph: Graph, entry: TableEntry, changes: Sequence[Change]) -> None:
    """Remove the files of changes that were not committed; what cannot be removed is for `orphans`. Destroys."""
    _remove(graph, [f"{entry.path}/{name}" for change in changes for name in change.files])


def refuse_missing(graph: Graph, entry: TableEntry, change: Change) -> None:
    """Raise `StorageError` unless every file of a change is there: a commit does not look at them. Reads.

    Under the lease: whoever removes files of a table holds it.
    """
    paths = [f"{entry.path}/{name}" for name in change.files]
    for path, size, found in zip(paths, change.files.values(), look_again(graph.storage, paths), strict=True):
        if not isinstance(found, Stored) or size not in {0, found.size}:
            raise StorageError(
                f"{path} is not there as it was written; nothing was committed to {entry.table_key}; run again"
            )


def _remove(graph: Graph, files: Sequence[str]) -> None:
    """Remove files that no version refers to. Destroys."""
    with contextlib.suppress(OpsError):
        remove_files(graph.storage, files)
        for folder in sorted({path.rpartition("/")[0] for path in files if "/_indices/" in path}):
            remove_folder(graph.storage, folder)


def _to_its_end(request: Callable[[], bool]) -> bool:
    """Make a request that a person may interrupt: what it came to is known before that is raised. Writes."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(request).result()


@dataclass(slots=True, kw_only=True)
class _Window:
    """One window of one table; mutable because a withdrawn sidecar is armed anew under another id."""

    graph: Graph
    entry: TableEntry
    """As it was published when the commit was drafted."""
    dataset: Dataset
    """At its HEAD, which was the published version."""
    unit: str
    operation_id: str
    landed: int = 0
    """How many commits were made, or may have been."""
    uncertain: bool = False
    """Whether the store may still apply a commit that failed: its files must stay."""
    written: list[str] = field(default_factory=list)
    """The transaction file of each draft, relative to the graph."""

    @staticmethod
    def open(graph: Graph, planned: TableEntry, unit: str) -> _Window:
        """The table at its pin; `StalePlan` or `DriftFound` when it is not there. Reads."""
        entry = graph.published(planned.table_key)
        if entry is None or entry.path != planned.path:
            raise StalePlan(f"{planned.table_key} was dropped or replaced while it was maintained; nothing was written")
        dataset = graph.open_head(entry)
        if dataset.version != entry.version:
            raise DriftFound(
                f"table '{entry.table_key}' has Lance HEAD version {dataset.version} ahead of manifest version "
                f"{entry.version}; nothing was written; `omnigraph-ops check` says what settles it"
            )
        return _Window(graph=graph, entry=entry, dataset=dataset, unit=unit, operation_id=new_ulid())

    def draft(self, changes: Sequence[Change]) -> list[Draft]:
        """The commits of the changes, proven to leave every row as it is. Writes their transaction files."""
        with drafts_of(self.graph, self.entry, self.dataset, changes, mark=self.operation_id) as drafts:
            before = self.dataset
            for change, made in zip(changes, drafts, strict=True):
                self._refuse_wrong(change, change.difference(before, made.dataset))
                before = made.dataset
            self._refuse_wrong(changes[-1], other_rows(self.dataset, before))
        for made in drafts:
            self.written.append(f"{self.entry.path}/_transactions/{made.transaction_name}")
            self.graph.storage.write(self.written[-1], made.transaction)
        return drafts

    def still_fits(self, changes: Sequence[Change]) -> Ready | None:
        """The graph manifest to publish to, None when the table is not what the commit was drafted for. Reads.

        Raises:
            StorageError: files of a change are not there, and nobody who asks for the lease first can remove them now.
        """
        for change in changes:
            refuse_missing(self.graph, self.entry, change)
        ready = read_ahead(self.graph, (self.entry.table_key,))
        entry = ready.state.get(self.entry.table_key)
        current = entry is not None and (entry.path, entry.version) == (self.entry.path, self.entry.version)
        return ready if current and self.graph.open_head(self.entry).version == self.entry.version else None

    def land(self, drafts: Sequence[Draft], ready: Ready, keeper: LeaseKeeper) -> UnitWindow | None:
        """Arm, commit, publish, disarm; None when another process was faster and nothing was committed. Writes."""
        rows, folder = live_rows(self.dataset), f"{self.entry.path}/_versions"
        with contextlib.ExitStack() as stack:
            commits = [
                stack.enter_context(self.graph.storage.prepared(f"{folder}/{d.manifest.name}", d.manifest.content))
                for d in drafts
            ]
            started = time.monotonic()
            self._arm(self.entry, keeper)
            try:
                self._commit(drafts, commits, keeper)
            except OutcomeUnknown:
                raise
            except BaseException:
                # Whatever stopped this, a person or the store: what was committed is published.
                self._finish(rows, keeper, None)
                raise
        published = self._finish(rows, keeper, ready)
        if not self.landed:
            return None
        seconds = time.monotonic() - started
        pace = pace_of(keeper.note).after(
            manifest_version=published or ready.state.manifest_version,
            window_seconds=seconds,
            share=self.graph.settings.window_share,
            now=time.time(),
        )
        keeper.leave(serde.dumps(pace))
        return UnitWindow(unit=self.unit, seconds=round(seconds, 4))

    def published(self) -> TableEntry:
        """The table as it is published now; `StalePlan` when it was dropped or replaced. Reads."""
        current = self.graph.published(self.entry.table_key)
        if current is None or current.path != self.entry.path:
            raise StalePlan(f"{self.entry.table_key} was dropped or replaced while it was maintained; no row is lost")
        return current

    def _refuse_wrong(self, change: Change, problem: str | None) -> None:
        if problem is not None:
            raise CorruptGraph(
                f"{self.entry.table_key} {problem} after a {change.name}; nothing was committed; "
                "keep the table as it is and report this"
            )

    def _arm(self, pinned: TableEntry, keeper: LeaseKeeper) -> None:
        graph, root = self.graph, engine_root(self.graph, pinned)
        operation = guards.Operation(
            operation_id=self.operation_id,
            table_key=pinned.table_key,
            unit=self.unit,
            owner=process_name(),
            started_at_us=now_us(),
            lease_number=keeper.number,
        )
        guards.note_operation(graph.storage, operation)
        try:
            keeper.assert_held()
        except OpsError:
            guards.forget_operation(graph.storage, self.operation_id)
            raise
        write_sidecar(graph, pinned, self.operation_id, root)

    def _commit(self, drafts: Sequence[Draft], commits: Sequence[Callable[[], bool]], keeper: LeaseKeeper) -> None:
        """Make the versions visible, one after the other, as long as nobody else comes between. Writes."""
        for draft, commit in zip(drafts, commits, strict=True):
            try:
                covered = self._is_covered(keeper)
            except OpsError:
                if self.landed:
                    return  # what is committed can be published all the same
                raise
            if not covered:
                return
            self.landed += 1  # until the contrary is known
            try:
                made = commit() if self.graph.storage.is_local else _to_its_end(commit)
            except BaseException:
                if not self._is_there(draft):
                    self.landed -= 1
                    self.uncertain = not self.graph.storage.is_local
                raise
            if not made:
                self.landed -= 1
                return

    def _is_covered(self, keeper: LeaseKeeper) -> bool:
        """Whether our own sidecar is there and nothing else, right before the effect. Reads.

        An engine that opens the graph takes our sidecar for that of a dead process and withdraws it.

        Raises:
            RecoveryPending: another writer armed, or raised the schema-apply lock.
            LeaseHeld: another maintenance run took over.
        """
        mine = f"{self.operation_id}.json"
        if self.graph.is_locked():
            raise self._appeared("the schema-apply lock")
        keeper.assert_held()
        names = sidecar_names(self.graph.storage)
        if names - {mine}:
            raise self._appeared(f"sidecar {min(names - {mine})}")
        return mine in names

    def _appeared(self, what: str) -> RecoveryPending:
        return RecoveryPending(
            f"{what} appeared on {self.graph.uri} while arming; nothing was written; run again later"
        )

    def _is_there(self, draft: Draft) -> bool:
        """Whether a commit that failed or was interrupted landed all the same. Reads."""
        try:
            record = version_record(self.graph.storage, self.entry.path, draft.manifest.version)
        except UnreadableTransaction:
            return False
        except OpsError as error:
            raise OutcomeUnknown(
                f"{error}; whether the commit to {self.entry.table_key} landed could not be read back; "
                "run `omnigraph-ops check` before anything else"
            ) from error
        return record.transaction_id == draft.transaction_id

    def _finish(self, rows: int, keeper: LeaseKeeper, ready: Ready | None) -> int | None:
        """Publish what was committed, if anything, and disarm; the graph's version if we published it. Writes."""
        newest, published = self.entry.version + self.landed, None
        try:
            current = self.entry
            while published is None and current.version < newest:
                try:
                    published = self._publish(current, newest, rows, keeper, ready)
                except StalePlan:
                    # An engine that opened the graph published it first, or rolled it back.
                    current, ready = self.published(), None
        except OpsError as error:
            raise OutcomeUnknown(
                f"version {newest} of {self.entry.table_key} is complete and not published: {error}; no row is lost; "
                "run `omnigraph-ops recover`, which publishes it"
            ) from error
        self._disarm()
        return published

    def _publish(self, current: TableEntry, landed: int, rows: int, keeper: LeaseKeeper, ready: Ready | None) -> int:
        """Publish exactly that version, still under a sidecar of ours; the graph's version. Writes."""
        graph = self.graph
        if f"{self.operation_id}.json" not in sidecar_names(graph.storage):
            # An engine opened the graph before our commit landed and withdrew the sidecar.
            guards.forget_operation(graph.storage, self.operation_id)
            self.operation_id = new_ulid()
            self._arm(current, keeper)
        keeper.assert_held()
        update = version_update(graph, current, landed, rows=rows)
        return publish(graph, (update,), actor=None, ready=ready).manifest_version

    def _disarm(self) -> None:
        path = sidecar_path(self.operation_id)
        try:
            self.graph.storage.delete(path)
        except StorageError as error:
            # What was published stays published, and the record that is kept tells `recover` it is ours.
            raise StorageError(
                f"{error}; no row is lost, but {path} may still be there and would stop every write; "
                "run `omnigraph-ops recover`"
            ) from error
        guards.forget_operation(self.graph.storage, self.operation_id)
