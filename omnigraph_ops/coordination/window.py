"""The armed window: lease, sidecar, one commit, publish, disarm. The only way the HEAD of a graph's table is moved.

A sidecar keeps no engine away, so everything that takes time happens outside, and every commit lands on exactly the
version it was drafted for: nothing that an engine committed is ever buried below a commit of ours, where no open could
finish it (docs/adr/0013). After a kill at any point either nothing moved, or a single-pin Optimize sidecar, or the mark
in the commit itself, tells `recover` (or the engine's next read-write open) what to publish.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from omnigraph_ops.coordination import guards
from omnigraph_ops.coordination.environment import process_name, refuse_full_disk
from omnigraph_ops.coordination.lease import LeaseKeeper
from omnigraph_ops.errors import (
    CorruptGraph,
    DriftFound,
    OpsError,
    OutcomeUnknown,
    RecoveryPending,
    StalePlan,
    StorageError,
)
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import UnreadableTransaction, version_record
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.graph.publish import Ready, drafts_of, is_published, publish, version_update
from omnigraph_ops.graph.sidecars import engine_root, sidecar_names, sidecar_path, write_sidecar
from omnigraph_ops.graph.state import TableEntry, TableUpdate
from omnigraph_ops.lance.commits import Change, Draft, RewriteChange
from omnigraph_ops.lance.evidence import other_rows
from omnigraph_ops.lance.gateway import CommitConflict, Dataset, DatasetMissing, LanceFailure, live_rows
from omnigraph_ops.lance.reader_limits import refuse_swollen
from omnigraph_ops.parallel import asked
from omnigraph_ops.storage.inventory import first_missing, remove_files, remove_folder


def discard(graph: Graph, entry: TableEntry, changes: Sequence[Change]) -> None:
    """Remove the files of changes that were not committed; what cannot be removed is for `orphans`. Destroys."""
    remove(graph, [f"{entry.path}/{name}" for change in changes for name in change.files])


def refuse_missing(graph: Graph, entry: TableEntry, change: Change) -> None:
    """Raise `StorageError` unless every file of a change is there: a commit does not look at them. Reads.

    Under the lease: whoever removes files of a table holds it.
    """
    missing = first_missing(graph.storage, {f"{entry.path}/{name}": size for name, size in change.files.items()})
    if missing is not None:
        raise StorageError(
            f"{missing} is not there as it was written; nothing was committed to {entry.table_key}; run again"
        )


def remove(graph: Graph, files: Sequence[str]) -> None:
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
class ArmedWindow:
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
    is_open: bool = False
    """Whether it may be armed, and is for this run to close."""
    written: list[str] = field(default_factory=list)
    """The transaction file of each draft, relative to the graph."""
    published_as: int | None = None
    """The graph's version by which this window alone published what it committed."""
    rows: int = 0
    commits: Sequence[Callable[[], bool]] = ()
    updated: TableUpdate | None = None
    """What publishes its commits, or has published them."""

    @property
    def sidecar(self) -> str:
        """The name of its sidecar's file."""
        return f"{self.operation_id}.json"

    @staticmethod
    def open(graph: Graph, planned: TableEntry, unit: str, *, moved: bool = False) -> ArmedWindow:
        """The table at its pin; `StalePlan` or `DriftFound` when it is not there. Reads.

        Args:
            moved: another version of the table may be published by now. Otherwise its HEAD tells: whatever publishes
                another version moves the HEAD first, and `still_fits` looks at both.
        """
        if not moved:
            with contextlib.suppress(DatasetMissing):
                dataset = graph.open_head(planned)
                if dataset.version == planned.version:
                    return ArmedWindow(graph=graph, entry=planned, dataset=dataset, unit=unit, operation_id=new_ulid())
        for _ in guards.looks(graph):
            entry = graph.published(planned.table_key)
            if entry is None or entry.path != planned.path:
                gone = f"{planned.table_key} was dropped or replaced while it was maintained"
                raise StalePlan(f"{gone}; nothing was written")
            dataset = graph.open_head(entry)
            if dataset.version == entry.version:
                return ArmedWindow(graph=graph, entry=entry, dataset=dataset, unit=unit, operation_id=new_ulid())
        assert entry is not None
        raise DriftFound(
            f"table '{entry.table_key}' has Lance HEAD version {dataset.version} ahead of manifest version "
            f"{entry.version}; nothing was written; `omnigraph-ops check` says what settles it"
        )

    def draft(self, changes: Sequence[Change]) -> list[Draft]:
        """The commits of the changes, proven to leave every row as it is. Writes their transaction files."""
        with drafts_of(self.graph, self.entry, self.dataset, changes, mark=self.operation_id) as drafts:
            before = self.dataset
            for change, made in zip(changes, drafts, strict=True):
                self._refuse_swollen(change)
                self._refuse_wrong(change, change.difference(before, made.dataset))
                before = made.dataset
            self._refuse_wrong(changes[-1], other_rows(self.dataset, before))
        for made in drafts:
            self.written.append(f"{self.entry.path}/_transactions/{made.transaction_name}")
            self.graph.storage.write(self.written[-1], made.transaction)
        return drafts

    def still_fits(self, changes: Sequence[Change], ready: Ready) -> bool:
        """Whether the table is what the commits were drafted for. Reads.

        Raises:
            StorageError: files of a change are not there, and nobody who asks for the lease first can remove them now.
            CommitConflict: a branch was made since, whose merges compare where the blobs lie that a rewrite moves.
        """
        for change in changes:
            refuse_missing(self.graph, self.entry, change)
            if change.name == "Rewrite" and (branch := self.graph.blobs_kept_for(self.entry.table_key)) is not None:
                made = f"branch {branch!r} was made since the rewrite of {self.entry.table_key} was planned"
                raise CommitConflict(f"{made}, and its merges compare where blobs lie; nothing was committed")
        entry = ready.state.get(self.entry.table_key)
        current = entry is not None and (entry.path, entry.version) == (self.entry.path, self.entry.version)
        return current and self.graph.open_head(self.entry).version == self.entry.version

    def prepare(self, drafts: Sequence[Draft], stack: contextlib.ExitStack) -> bool:
        """Make each commit one short step, until the stack ends. Writes hidden files."""
        self.rows, folder = live_rows(self.dataset), f"{self.entry.path}/_versions"
        self.commits = [
            stack.enter_context(self.graph.storage.prepared(f"{folder}/{d.manifest.name}", d.manifest.content))
            for d in drafts
        ]
        return True

    def arm(self, drafts: Sequence[Draft], keeper: LeaseKeeper) -> bool:
        """Write the sidecar, so that an engine finishes what is committed from here on. Writes."""
        refuse_full_disk(self.graph.storage, sum(len(draft.manifest.content) for draft in drafts))
        self.is_open = True  # where arming fails, too: the sidecar of a write whose answer was lost is there
        self._arm(self.entry, keeper)
        return True

    def commit(self, drafts: Sequence[Draft], keeper: LeaseKeeper, together: Sequence[ArmedWindow]) -> bool:
        """Make the versions visible, one after the other, while nobody else comes between. Writes.

        Args:
            together: the windows that are open at the same time, this one included.
        """
        try:
            self._commit(drafts, keeper, together)
        except OutcomeUnknown:
            self.is_open = False  # its sidecar is left to `recover`
            raise
        if self.landed:
            with contextlib.suppress(OpsError, OSError):  # then it is asked for again
                self.update(self.entry)
        return True

    def landed_entry(self) -> TableEntry:
        """The table as this window published it; as it is published now if somebody else did that. May read."""
        return self.published() if self.updated is None else self.updated.made()

    def published(self) -> TableEntry:
        """The table as it is published now; `StalePlan` when it was dropped or replaced. Reads."""
        current = self.graph.published(self.entry.table_key)
        if current is None or current.path != self.entry.path:
            raise StalePlan(f"{self.entry.table_key} was dropped or replaced while it was maintained; no row is lost")
        return current

    def _refuse_swollen(self, change: Change) -> None:
        results = change.results if isinstance(change, RewriteChange) else ()
        try:
            refuse_swollen(self.dataset, self.entry.table_key, results)
        except LanceFailure:
            refuse_missing(self.graph, self.entry, change)  # which says what to do
            raise

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

    def _commit(self, drafts: Sequence[Draft], keeper: LeaseKeeper, together: Sequence[ArmedWindow]) -> None:
        for draft, commit in zip(drafts, self.commits, strict=True):
            try:
                covered = self._is_covered(keeper, together)
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

    def _is_covered(self, keeper: LeaseKeeper, together: Sequence[ArmedWindow]) -> bool:
        """Whether our own sidecar is there and none of anybody else, right before the effect. Reads.

        An engine that opens the graph takes our sidecar for that of a dead process and withdraws it.

        Raises:
            RecoveryPending: another writer armed, or raised the schema-apply lock.
            LeaseHeld: another maintenance run took over.
        """
        is_remote, sidecars = not self.graph.storage.is_local, partial(_sidecars_under, self.graph, keeper)
        locked, names = asked(self.graph.is_locked, sidecars, at_once=is_remote)
        keeper.assert_lately()  # one answer may have come long after the other
        if locked:
            raise self._appeared("the schema-apply lock")
        foreign = names - {window.sidecar for window in together}
        if foreign:
            raise self._appeared(f"sidecar {min(foreign)}")
        return self.sidecar in names

    def _appeared(self, what: str) -> RecoveryPending:
        return RecoveryPending(f"{what} appeared on {self.graph.uri} while arming; nothing was written; run again")

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

    def finish(self, keeper: LeaseKeeper, ready: Ready | None, *, published: bool) -> bool:
        """Publish what was committed, if it is not, and disarm. Writes.

        Args:
            ready: None: somebody may have published since it was read.
            published: it is known to be published.

        Raises:
            OutcomeUnknown: it may not be published; its sidecar is left to `recover`.
            StalePlan: the lease was lost, and the commit of this window is no part of what others published since.
        """
        newest, current, is_overtaken = self.entry.version + self.landed, self.entry, False
        try:
            while not published and self.published_as is None and current.version < newest:
                try:
                    self.published_as = self._publish(current, keeper, ready)
                except StalePlan:
                    # An engine that opened the graph published it first, or rolled it back.
                    current, ready, self.updated = self.published(), None, None
        except OutcomeUnknown:
            self.is_open = False  # it may be published without its commit row: its sidecar is left to `recover`
            raise
        except OpsError as error:
            # Whoever took the lease over, from a process that was stopped for long, has published it by now perhaps.
            is_overtaken = self._is_overtaken(newest, error)
            self.updated = None
        self._disarm()
        self.is_open = False
        if is_overtaken:
            raise StalePlan(
                f"the lease was lost, and another writer published version {newest} of {self.entry.table_key}; what "
                "this run committed is no part of the table, no row is lost; run again"
            )
        return True

    def _is_overtaken(self, newest: int, error: OpsError) -> bool:
        """Whether what is published is not the commit of this window, but another one of its number. Reads.

        A cleanup frees numbers: a commit that hung for long may land below what others published since.

        Raises:
            OutcomeUnknown: nothing that may be the commit is published.
        """
        with contextlib.suppress(OpsError, OSError):
            if self.published().version >= newest:
                return not is_published(self.graph, self.update(self.entry))
        raise OutcomeUnknown(
            f"version {newest} of {self.entry.table_key} is complete and not published: {error}; "
            "no row is lost; run `omnigraph-ops recover`, which publishes it"
        ) from error

    def update(self, current: TableEntry) -> TableUpdate:
        """What publishes the commits of this window, over what is published of the table by now. Reads once."""
        if self.updated is None:
            self.updated = version_update(self.graph, current, self.entry.version + self.landed, rows=self.rows)
        return self.updated

    def _publish(self, current: TableEntry, keeper: LeaseKeeper, ready: Ready | None) -> int:
        """Publish exactly that version, still under a sidecar of ours; the graph's version. Writes."""
        graph, names = self.graph, _sidecars_under(self.graph, keeper)
        if self.sidecar not in names:
            # An engine opened the graph before our commit landed and withdrew the sidecar.
            guards.forget_operation(graph.storage, self.operation_id)
            self.operation_id = new_ulid()
            self._arm(current, keeper)
            keeper.assert_held()
        return publish(graph, (self.update(current),), actor=None, ready=ready).manifest_version

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


def _sidecars_under(graph: Graph, keeper: LeaseKeeper) -> frozenset[str]:
    """The names of the sidecars, while the lease is held; raises as `LeaseKeeper.assert_held`. Reads."""
    names, _ = asked(partial(sidecar_names, graph.storage), keeper.assert_held, at_once=not graph.storage.is_local)
    keeper.assert_lately()
    return names


def publish_together(windows: Sequence[ArmedWindow], keeper: LeaseKeeper, ready: Ready) -> int | None:
    """Publish what several windows committed as one graph commit; its version, None where each is to do so. Writes.

    A fault before that decides nothing: each window looks by itself at what is published of its table.

    Raises:
        OutcomeUnknown: it may have landed, and its commit row may be missing; the sidecars stay for `recover`.
    """
    if len(windows) < 2:
        return None
    graph = windows[0].graph
    try:
        if {window.sidecar for window in windows} <= _sidecars_under(graph, keeper):
            updates = tuple(window.update(window.entry) for window in windows)
            return publish(graph, updates, actor=None, ready=ready).manifest_version
    except OutcomeUnknown:
        raise
    except Exception:
        return None  # also what is no error of ours, of a file that is missing for one
    return None
