"""The armed window: lease, sidecar, effects, publish, disarm. The only way a table's HEAD is ever moved.

After a kill at any point either nothing moved, or a single-pin Optimize sidecar says what `recover`
(or the engine's next read-write open) publishes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from omnigraph_ops import journal
from omnigraph_ops.edges.lance_errors import LanceFailure
from omnigraph_ops.edges.lance_gateway import Dataset, live_rows
from omnigraph_ops.edges.lance_rewrites import validate_rewrite
from omnigraph_ops.errors import DriftFound, LeaseHeld, OutcomeUnknown, RecoveryPending, StalePlan, StorageError
from omnigraph_ops.freeze.refuse import refuse_frozen
from omnigraph_ops.graph.contract import staging_files
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.history import history
from omnigraph_ops.graph.ids import new_ulid, now_us
from omnigraph_ops.graph.publish import publish_monotonic
from omnigraph_ops.graph.sidecars import sidecar_names, sidecar_path, write_sidecar
from omnigraph_ops.graph.spelling import engine_root
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lease import LeaseKeeper, committer_turn, process_name
from omnigraph_ops.models import UnitWindow

_FOREIGN_PUBLISH_SECONDS = 10.0
_MIDST = "while armed; what was committed before that is published"

Guard = Callable[[], None]
"""Raises when something foreign was armed since: asked right before every commit."""
Effects = Callable[[Dataset, Guard], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult:
    """What one armed unit did: the entry as published afterwards, and its window."""

    entry: TableEntry
    committed: bool
    window: UnitWindow


def run_unit(graph: Graph, entry: TableEntry, *, unit: str, effects: Effects) -> UnitResult:
    """Run content-preserving `effects` on a table's HEAD under a sidecar and publish them. Writes.

    `effects` gets the dataset open at its HEAD, which equals the pin, and commits what it needs. An engine looks for
    sidecars before it stages its rows and arms after that, so it may arm beside us: what it then commits must not
    be buried below a commit of ours, or no open finishes it. Hence the guard before each.

    Raises:
        RecoveryPending: something foreign is in flight; nothing was armed.
        StalePlan, DriftFound: the pin or the HEAD is not what the plan saw; nothing was armed.
        OutcomeUnknown: effects landed but could not be published; the sidecar is left for `recover`.
        Whatever `effects` raises, after the table was disarmed or its leftovers were published.
    """
    if not graph.format.publishes:
        from omnigraph_ops.plain_unit import run_plain_unit

        return run_plain_unit(graph, entry, unit=unit, effects=effects)
    with committer_turn(graph, f"optimize {entry.table_key} ({unit})") as keeper:
        refuse_pending(graph, table_key=entry.table_key)
        dataset = _head_at_pin(graph, entry)
        operation_id = new_ulid()
        started = time.monotonic()
        _arm(graph, entry, operation_id, unit, keeper)
        try:
            effects(dataset, lambda: _refuse_foreign(graph, operation_id, _MIDST))
        except BaseException:
            _finish(graph, entry, operation_id)
            raise
        committed = _finish(graph, entry, operation_id)
        window = UnitWindow(unit=unit, seconds=round(time.monotonic() - started, 4))
    published = graph.published(entry.table_key)
    if published is None:
        raise StalePlan(f"{entry.table_key} was dropped while it was maintained; nothing of it is lost")
    return UnitResult(entry=published, committed=committed, window=window)


def refuse_pending(graph: Graph, *, beside_siblings: bool = False, table_key: str | None = None) -> None:
    """Raise on any sidecar, schema staging file or schema-apply lock, and on a freeze. Reads.

    With `beside_siblings`, for looks without the lease, sidecars of our own journal do not count: another
    table may be in its window right now. A dead run's sidecar is still refused once the lease is held.

    Raises:
        RecoveryPending: something is pending.
        GraphFrozen: the whole graph is frozen, or the table that this is about.
    """
    staged = staging_files(graph.storage)
    if staged:
        raise RecoveryPending(
            f"{graph.uri} has schema staging files ({', '.join(staged)}); nothing was written; "
            "let the schema apply finish or open the graph read-write with omnigraph"
        )
    names = sidecar_names(graph.storage)
    if beside_siblings:
        names = frozenset(name for name in names if not _is_siblings(graph, name))
    if names:
        raise RecoveryPending(
            f"{graph.uri} has {len(names)} pending recovery sidecar(s), first {min(names)}; nothing was written; "
            "run `omnigraph-ops check`, then `omnigraph-ops recover`"
        )
    if graph.is_locked():
        raise RecoveryPending(
            f"maintenance of {graph.uri} is unavailable while schema apply is in progress; nothing was written"
        )
    refuse_frozen(graph, table_key)


def _is_siblings(graph: Graph, name: str) -> bool:
    """Whether a sidecar was ours, or is gone by now: disarming removes it before its record. Reads."""
    known = journal.lookup(graph.storage, name.removesuffix(".json")) is not None
    return known or name not in sidecar_names(graph.storage)


def _head_at_pin(graph: Graph, entry: TableEntry) -> Dataset:
    current = graph.published(entry.table_key)
    if current is None or current.version != entry.version or current.path != entry.path:
        found = current.version if current else "none"
        raise StalePlan(
            f"{entry.table_key} was published at {entry.version} when it was planned and is at {found} now; "
            "nothing was written; plan again"
        )
    dataset = graph.open_head(entry)
    if dataset.version != entry.version:
        raise DriftFound(
            f"table '{entry.table_key}' has Lance HEAD version {dataset.version} ahead of manifest version "
            f"{entry.version}; nothing was written; run `omnigraph-ops repair`"
        )
    return dataset


def _arm(graph: Graph, entry: TableEntry, operation_id: str, unit: str, keeper: LeaseKeeper) -> None:
    root = engine_root(graph, entry)
    owner = process_name()
    journal.record(
        graph.storage,
        journal.Operation(
            operation_id=operation_id,
            table_key=entry.table_key,
            unit=unit,
            owner=owner,
            started_at_us=now_us(),
        ),
    )
    try:
        keeper.assert_held()
    except LeaseHeld:
        journal.forget(graph.storage, operation_id)
        raise
    write_sidecar(graph, entry, operation_id, root)
    try:
        _refuse_foreign(graph, operation_id, "while arming; nothing was written")
        if graph.is_locked():
            raise _appeared(graph, "the schema-apply lock", "while arming; nothing was written")
    except RecoveryPending:
        _disarm(graph, operation_id)
        raise


def _refuse_foreign(graph: Graph, operation_id: str, consequence: str) -> None:
    """Raise `RecoveryPending` when there is any other sidecar beside ours. Reads."""
    foreign = sidecar_names(graph.storage) - {sidecar_path(operation_id).rsplit("/", 1)[-1]}
    if foreign:
        raise _appeared(graph, f"sidecar {min(foreign)}", consequence)


def _appeared(graph: Graph, what: str, consequence: str) -> RecoveryPending:
    return RecoveryPending(f"{what} appeared on {graph.uri} {consequence}; run again later")


def _finish(graph: Graph, entry: TableEntry, operation_id: str) -> bool:
    """Publish whatever moved and disarm; whether anything moved. Writes.

    Even after a failed effect: a conflict can leave a ReserveFragments version behind, and a table
    is never disarmed with its HEAD ahead of its pin. Rows of another writer that committed inside
    our window are never published by us: we wait for its own publish, then publish what is ours.
    """
    deadline = time.monotonic() + _FOREIGN_PUBLISH_SECONDS
    while True:
        head = graph.open_head(entry)
        current = graph.published(entry.table_key)
        if current is None or current.path != entry.path:
            raise OutcomeUnknown(f"{entry.table_key} was dropped or replaced while armed; run `omnigraph-ops check`")
        if current.version >= head.version:
            break
        if history(graph.storage, entry.path, after=current.version, upto=head.version).preserves_content:
            _check_content(graph, current, head, operation_id)
            publish_monotonic(graph, entry, head, actor=None)
            break
        if time.monotonic() >= deadline:
            raise OutcomeUnknown(
                f"another writer committed to {entry.table_key} at version {head.version} and has not published it; "
                "no row was lost and the sidecar is kept; run `omnigraph-ops check` when that writer is done"
            )
        time.sleep(0.1)
    _disarm(graph, operation_id)
    return int(head.version) != entry.version


def _check_content(graph: Graph, pinned: TableEntry, head: Dataset, operation_id: str) -> None:
    """Refuse to publish a rewrite that lost or gained a row, or a file: it becomes drift for a person to see. Reads."""
    problem = wrong_content(graph.open_pinned(pinned), head)
    if problem is not None:
        _disarm(graph, operation_id)
        raise DriftFound(
            f"{pinned.table_key} {problem}; it was not published, "
            f"readers stay at version {pinned.version}; keep the table as it is and report this"
        )


def wrong_content(before: Dataset, head: Dataset) -> str | None:
    """What is wrong with a rewrite, for the end of a sentence; None when nothing is. Reads."""
    had, has = live_rows(before), live_rows(head)
    if had != has:
        return f"has {has} rows after the rewrite and {had} before"
    try:
        validate_rewrite(head, before)
    except LanceFailure as error:
        return f"cannot be read as the rewrite left it ({error})"
    return None


def _disarm(graph: Graph, operation_id: str) -> None:
    path = sidecar_path(operation_id)
    try:
        graph.storage.delete(path)
    except StorageError as error:
        # What was published stays published, and the record that is kept tells `recover` it is ours.
        raise StorageError(
            f"{error}; no row is lost, but {path} may still be there and would stop every write; "
            "run `omnigraph-ops recover`"
        ) from error
    journal.forget(graph.storage, operation_id)
