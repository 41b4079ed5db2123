"""Land prepared changes of tables. What waits for the committer lease at the same time shares its turn and a publish.

Each table keeps a window of its own: its sidecar, its commits. What they share is the look at the graph before, and the
graph commit after. So the time in which an engine finds a sidecar is shorter than that of the windows one by one, and
a graph manifest that many tables are published to stays small.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from omnigraph_ops import serde
from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.guards import letting_writers_arm, refuse_pending
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.coordination.pace import Patience, pace_of
from omnigraph_ops.coordination.slots import SLOTS, WAITING, OfRun
from omnigraph_ops.coordination.window import ArmedWindow, discard, publish_together, remove
from omnigraph_ops.errors import OutcomeUnknown, PublishConflict, RecoveryNeeded, RecoveryPending
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.publish import Ready, read_ahead
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.commits import Change, Draft
from omnigraph_ops.models.history import UnitWindow
from omnigraph_ops.parallel import in_parallel

_ATTEMPTS = 5
_GATHER_SECONDS = 0.25
"""For how long the first window that waits lets others of its run join the turn."""
_STEPS_AT_ONCE = 8
"""Tables of a turn whose requests are under way at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedUnit:
    """What one unit did: the entry as published afterwards, and its window."""

    entry: TableEntry
    window: UnitWindow | None
    """None when there was nothing to commit."""
    landed: int = 0
    """How many of its changes were committed: another writer may have come between two of them."""


def land(
    graph: Graph,
    entry: TableEntry,
    changes: Sequence[Change],
    *,
    unit: str,
    marks: list[str] | None = None,
    journalled: bool = False,
) -> LandedUnit:
    """Commit prepared, content-preserving changes to a table under a sidecar, and publish them at once. Writes.

    The commits are drafted and proven before the lease is taken. Each lands on exactly the version that it was
    drafted for or not at all.

    Args:
        entry: the table; what is published of it may have moved since, as long as the changes still fit.
        changes: one or more, each fitting what the one before makes.
        marks: gets the marks of the commits before any of them lands, also where none does.
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
            window = ArmedWindow.open(graph, entry, unit, moved=moved > 0)
            if marks is not None:
                marks.append(window.operation_id)
            seat = _Seat(window=window, changes=changes, drafts=window.draft(changes), patience=patience)
            _QUEUES.of(graph).take_turn(seat)
            if seat.error is not None:
                raise seat.error
            if seat.closed is not None:
                return LandedUnit(entry=window.landed_entry(), window=seat.closed, landed=window.landed)
            if window.landed:
                raise OutcomeUnknown(
                    f"version {window.entry.version + window.landed} of {entry.table_key} is complete, and whether it "
                    "was published is not known; no row is lost; run `omnigraph-ops recover`, which publishes it"
                )
            remove(graph, window.written)
            moved += not seat.wait
            graph.run.pause(seat.wait)
        raise PublishConflict(
            f"{entry.table_key} moved {_ATTEMPTS} times while it was about to be committed to; nothing was written; "
            "run again when it is quieter"
        )
    finally:
        if window is None or not window.uncertain:
            landed = window.landed if window is not None else 0
            remove(graph, window.written[landed:] if window is not None else ())
            if not journalled:
                discard(graph, entry, changes[landed:])


@dataclass(slots=True, kw_only=True, eq=False)
class _Seat:
    """A window that waits for its turn; mutable because whoever has the turn fills in what came of it.

    Neither closed nor with an error, its table is to be looked at again after `wait`.
    """

    window: ArmedWindow
    changes: Sequence[Change]
    drafts: Sequence[Draft]
    patience: Patience
    closed: UnitWindow | None = None
    wait: float = 0.0
    error: Exception | None = None
    over: bool = False
    """Whether it had its turn, for the thread that has it."""
    done: bool = False
    """The same, for all others."""

    def may_go(self, ready: Ready, keeper: LeaseKeeper) -> bool:
        """Whether the window may open now, by what is published and by the pace. Reads."""
        refuse_frozen(self.window.graph, self.window.entry.table_key)
        if not self.window.still_fits(self.changes, ready):
            return False
        self.wait = self.patience.pause(ready, keeper)
        return not self.wait

    def judge(self, step: Callable[[], bool]) -> bool:
        """What a step says; False where it fails, which is kept for whoever waits for this table. As the step."""
        try:
            return step()
        except RecoveryPending as error:
            # A writer is in its own window; what is prepared is worth a moment.
            wait = None if isinstance(error, RecoveryNeeded) else self.patience.beside_writer()
            self.wait, self.error = (0.0, error) if wait is None else (wait, None)
        except Exception as error:
            self.error = error
        return False


class _Queue:
    """The windows of one run that wait for the lease. Whichever thread gets it lands all that wait by then."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Seat] = []
        self._led = False

    def take_turn(self, seat: _Seat) -> None:
        """Return once the window had its turn, in this thread or in another. Writes.

        Raises:
            LeaseHeld: another run kept the lease; the window did not open.
            Stopped: this run was asked to stop, and another run has the lease; the window did not open.
        """
        with self._changed:
            self._waiting.append(seat)
        until = time.monotonic() + seat.window.graph.settings.lease_wait_seconds
        with SLOTS.of(seat.window.graph).resting():
            try:
                while not self._had_turn(seat):
                    self._lead(seat, max(until - time.monotonic(), 0.0))
            finally:
                with self._changed:
                    self._waiting = [s for s in self._waiting if s is not seat]

    def _had_turn(self, seat: _Seat) -> bool:
        """Wait until the seat had its turn, True, or until this thread is to take one, False.

        This goes on when the run is asked to stop: what is prepared lands unless another run has the lease, and then
        `_lead` ends the waiting.
        """
        with self._changed:
            self._changed.wait_for(lambda: seat.done or not self._led)
            if not seat.done:
                self._led = True
            return seat.done

    def _lead(self, seat: _Seat, wait_seconds: float) -> None:
        window, seats = seat.window, list[_Seat]()
        try:
            SLOTS.of(window.graph).wait(lambda: len(self._waiting) >= WAITING, _GATHER_SECONDS)
            purpose = f"optimize {window.entry.table_key} ({window.unit})"
            with committer_turn(window.graph, purpose, wait_seconds=wait_seconds) as keeper:
                with self._changed:
                    seats, self._waiting = self._waiting[:WAITING], self._waiting[WAITING:]
                _share_turn(seats, keeper)
        finally:
            with self._changed:
                for other in seats:
                    other.done = other.over
                self._waiting += [s for s in seats if not s.over]
                self._led = False
                self._changed.notify_all()


_QUEUES = OfRun(_Queue)


def _share_turn(seats: Sequence[_Seat], keeper: LeaseKeeper) -> None:
    """Land every window that still fits; what came of each is in its seat, and that is over. Writes."""
    graph, read = seats[0].window.graph, list[Ready]()
    for seat in seats:
        seat.wait, seat.error = 0.0, None  # of a turn that was broken off

    def look() -> bool:
        if not read:
            refuse_pending(graph)
            read.append(read_ahead(graph, [seat.window.entry.table_key for seat in seats]))
        return True

    going = [seat for seat in seats if seat.judge(look)]
    going = _judged(going, lambda seat: seat.may_go(read[0], keeper))
    with contextlib.ExitStack() as stack:
        going = [seat for seat in going if seat.judge(partial(seat.window.prepare, seat.drafts, stack))]
        for seat in seats:
            seat.over = True
        if going:
            _land(going, read[0], keeper)


def _judged(seats: Sequence[_Seat], step: Callable[[_Seat], bool]) -> list[_Seat]:
    """The seats of which a step says True. All take it side by side: its time is that of requests. As the step."""

    def judged(seat: _Seat) -> bool:
        return seat.judge(partial(step, seat))

    if len(seats) < 2:
        return [seat for seat in seats if judged(seat)]
    # With `on_error` an interruption waits for all of them: afterwards none is in the middle of its step.
    said = in_parallel(judged, seats, workers=_STEPS_AT_ONCE, on_error=lambda: None)
    return [seat for seat, held in zip(seats, said, strict=True) if held]


def _land(seats: Sequence[_Seat], ready: Ready, keeper: LeaseKeeper) -> None:
    """Arm a window for each table, commit to each in its own, publish all together, disarm. Writes."""
    windows, started = [seat.window for seat in seats], time.monotonic()
    try:
        with letting_writers_arm(windows[0].graph):
            armed = _judged(seats, lambda seat: seat.window.arm(seat.drafts, keeper))
        _judged(armed, lambda seat: seat.window.commit(seat.drafts, keeper, windows))
    finally:
        # Whatever stopped this, a person or the store: what was committed is published.
        _close([seat for seat in seats if seat.window.is_open], keeper, ready, started)


def _close(seats: Sequence[_Seat], keeper: LeaseKeeper, ready: Ready, started: float) -> None:
    """Publish what was committed, disarm, and note how long the windows were open. Writes."""
    together = [seat for seat in seats if seat.window.landed]
    try:
        newest = publish_together([seat.window for seat in together], keeper, ready)
    except OutcomeUnknown as error:
        for seat in together:
            seat.error, seat.window.is_open = error, False  # its sidecar is left to `recover`
        newest, seats = None, [seat for seat in seats if seat not in together]
    # What was read serves one publish: whoever publishes after it has to read anew.
    alone = ready if len(seats) == 1 else None
    # Windows that publish by themselves do so one after the other: side by side, one would make the other's swap fail.
    for some in [seats] if newest is not None else [[seat] for seat in seats]:
        _judged(some, lambda seat: seat.window.finish(keeper, alone, published=newest is not None))
    landed = [seat for seat in seats if seat.window.landed and not seat.window.is_open]
    if not landed:
        return
    seconds = time.monotonic() - started
    versions = [newest, *(seat.window.published_as for seat in landed)]
    pace = pace_of(keeper.note).after(
        manifest_version=max((v for v in versions if v is not None), default=ready.state.manifest_version),
        window_seconds=seconds,
        share=landed[0].window.graph.settings.window_share,
        now=time.time(),
    )
    keeper.leave(serde.dumps(pace))
    for seat in landed:
        seat.closed = UnitWindow(unit=seat.window.unit, seconds=round(seconds, 4))
