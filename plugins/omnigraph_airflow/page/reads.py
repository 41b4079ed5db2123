"""What a page reads of a graph. Each function is one look, which may take seconds; they are waited for side by side."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from omnigraph_airflow.hooks.omnigraph import SECRETS, OmnigraphHook
from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.holds import Hold, active_holds
from omnigraph_ops.coordination.sealed import plan_path
from omnigraph_ops.errors import OpsError
from omnigraph_ops.outcomes.results import redacted
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.stages.stage import AnyPlanned
from omnigraph_ops.views.markdown import bounded
from omnigraph_ops.views.view import View

if TYPE_CHECKING:
    from omnigraph_airflow.page.listing import ListedGraph
    from omnigraph_ops.coordination.graph_view import GraphView
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.graph.state import TableEntry
    from omnigraph_ops.models.cleanup import ProtectedVersion
    from omnigraph_ops.models.health import HealthReport, TableHealth
    from omnigraph_ops.models.history import RunRecord, TableTrendPoint


def plan_view(stage: AnyPlanned, plan: Any) -> View:
    """The page about a plan of that stage. Pure."""
    return bounded(stage.view(plan), f"{plan_path(plan.digest)} in the graph; at the shell --json prints it")


T = TypeVar("T")
STILL = "still being read"
BUSY = "not read yet, the server is busy with other reads of this graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How many reads there may be."""

    threads: int = 32
    threads_per_graph: int = 4
    """A graph that hangs leaves the other threads to the others."""
    reads_per_graph: int = 16
    """Under way or waiting for a thread; more are refused."""


class Busy(OpsError):
    """Too many reads of one graph have begun and not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[T]):
    """What came of a read: its value, or a sentence about why there is none."""

    value: T | None = None
    problem: str | None = None
    pending: str = ""
    """Why it was not ready in time; a later request finds it."""


@dataclass(slots=True)
class _Slot:
    graph: Hashable
    read: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)
    done_at: float | None = None


class Looks:
    """Daemon threads, a bounded number: a store that hangs keeps some, and neither the others nor the server.

    A subject is read by one thread at a time, whoever asks.
    """

    def __init__(self, *, keep_seconds: float, bounds: ReadLimits | None = None) -> None:
        self._keep = keep_seconds
        self._bounds = bounds or ReadLimits()
        self._slots: dict[Hashable, _Slot] = {}
        self._waiting: deque[_Slot] = deque()
        self._running: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def begin(self, graph: Hashable, subject: Hashable, read: Callable[[], T]) -> Future[T]:
        """The value of a read that is under way or fresh enough, else of a new one; `Busy` in it. Starts a thread."""
        with self._lock:
            self._forget()
            slot = self._slots.get((graph, subject))
            if slot is None:
                slot = _Slot(graph, read)
                unfinished = sum(slot.graph == graph and slot.done_at is None for slot in self._slots.values())
                if unfinished >= self._bounds.reads_per_graph:
                    slot.future.set_exception(Busy(BUSY))
                    return slot.future
                self._slots[graph, subject] = slot
                self._waiting.append(slot)
                if (first := self._next()) is not None:
                    threading.Thread(target=self._work, args=(first,), daemon=True, name="page").start()
            return slot.future

    def _forget(self) -> None:
        now = time.monotonic()
        old = [key for key, slot in self._slots.items() if slot.done_at is not None and now - slot.done_at > self._keep]
        for key in old:
            del self._slots[key]

    def _next(self) -> _Slot | None:
        """The read that waits longest among those that may have a thread, which it has from now on."""
        if self._running.total() >= self._bounds.threads:
            return None
        for slot in self._waiting:
            if self._running[slot.graph] < self._bounds.threads_per_graph:
                self._waiting.remove(slot)
                self._running[slot.graph] += 1
                return slot
        return None

    def _work(self, slot: _Slot | None) -> None:
        """Do this read, and others as long as some wait."""
        while slot is not None:
            self._run(slot)
            with self._lock:
                self._running[slot.graph] -= 1
                slot = self._next()

    @staticmethod
    def _run(slot: _Slot) -> None:
        try:
            value = slot.read()
        except BaseException as error:  # Lance panics with one; it belongs to whoever waits
            slot.done_at = time.monotonic()
            slot.future.set_exception(error)
        else:
            slot.done_at = time.monotonic()
            slot.future.set_result(value)


class Deadline:
    """A moment that several waits share."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def wait(self, future: Future[T], sentence: Callable[[BaseException], str]) -> Look[T]:
        """What came of the read by then; `sentence` says what went wrong. Waits."""
        try:
            return Look(value=future.result(max(0.0, self._end - time.monotonic())))
        except NotYet:
            # The read itself may have ended with a timeout of its own.
            if not future.done():
                return Look(pending=STILL)
            return Look(problem=sentence(future.exception() or NotYet()))
        except Busy as error:
            return Look(pending=str(error))
        except BaseException as error:
            return Look(problem=sentence(error))


GLANCED = 30
"""Runs that the list of graphs shows as a trend."""
CHARTED = 60
"""Runs that the charts and the list of reports of a graph show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One table now: its health, its drift, and what cleanup must leave."""

    health: TableHealth
    published: int | None = None
    """None: it could not be looked at."""
    head: int | None = None
    """The newest version."""
    protected: tuple[ProtectedVersion, ...] = ()
    problem: str | None = None
    """Why it is not known what is protected."""

    @property
    def drifted(self) -> bool:
        return self.published is not None and self.head is not None and self.head != self.published


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphState:
    """A graph now, worst table first."""

    report: HealthReport
    tables: tuple[TableState, ...]
    """Those that were asked for; the report has all."""
    unreadable_branches: tuple[tuple[str, str], ...] = ()


def sentence(listed: ListedGraph, error: BaseException) -> str:
    """Why a read failed, for a person, without what must not be shown; a surprise is logged. Reads."""
    if isinstance(error, OpsError):
        return redacted(str(error), _secrets(listed))
    if isinstance(error, FileNotFoundError):
        return "the file is gone"
    logging.getLogger(__name__).error("The page of %s could not be made", listed.name, exc_info=error)
    return f"{type(error).__name__}; the log of the API server says more"


def _secrets(listed: ListedGraph) -> tuple[str, ...]:
    """The values of the graph's connection that must not be shown. Reads."""
    try:
        store = OmnigraphHook(listed.wanted).address().store
    except Exception:  # it is only asked while another error is told
        return ()
    return tuple(store[name] for name in SECRETS & store.keys())


def opened(listed: ListedGraph) -> Graph:
    """The graph. Reads."""
    return OmnigraphHook(listed.wanted).get_conn()


def runs_of(listed: ListedGraph, last: int) -> tuple[RunRecord, ...]:
    """Its newest runs, newest first. Reads."""
    from omnigraph_ops.outcomes.history import read_runs

    return read_runs(opened(listed), last=last)


def run_of(listed: ListedGraph, run_id: str) -> RunRecord | None:
    """One run with its tables. Reads."""
    from omnigraph_ops.outcomes.history import read_run

    return read_run(opened(listed), run_id)


def trend_of(listed: ListedGraph, table_key: str) -> tuple[TableTrendPoint, ...]:
    """The newest runs that looked at a table. Reads."""
    from omnigraph_ops.outcomes.history import table_trend

    return table_trend(opened(listed), table_key, last=CHARTED)


def holds_of(listed: ListedGraph) -> tuple[Hold, ...]:
    """The holds that count now, oldest first. Reads."""
    return active_holds(opened(listed).storage)


def plan_of(listed: ListedGraph, stage: str, digest: str) -> View:
    """The page about a kept plan. Reads.

    Raises:
        InvalidInput: no such stage keeps one, or that is no digest.
        StalePlan: it is no longer kept.
    """
    of = planned(stage)
    return plan_view(of, sealed.load(opened(listed).storage, of.plan_type, digest))


def state_of(listed: ListedGraph, *, most: int | None, only: Sequence[str] = ()) -> GraphState:
    """Health of every table (or of those named), and drift and protection of the worst so many. Reads."""
    from omnigraph_ops.coordination.graph_view import look
    from omnigraph_ops.stages.health.read import health

    graph = opened(listed)
    report = health(graph, tables=only)
    view = look(graph)
    shown = report.tables[:most]
    tables = in_parallel(
        lambda row: _table(graph, view, row, view.main.get(row.table_key)), shown, workers=graph.settings.concurrency
    )
    # What a cleanup would refuse to look past is worse than any score.
    ordered = sorted(tables, key=lambda t: not (t.drifted or t.problem or t.health.error))
    return GraphState(report=report, tables=tuple(ordered), unreadable_branches=view.unreadable)


def _table(graph: Graph, view: GraphView, row: TableHealth, entry: TableEntry | None) -> TableState:
    """Drift and protection of one table. Reads."""
    from omnigraph_ops.stages.cleanup.policy import protect

    if entry is None:
        return TableState(health=row, problem="it went away while this page was made")
    try:
        head = graph.open_head(entry)
        protection = protect(graph.lance, entry, head, view)
    except OpsError as error:
        return TableState(health=row, published=entry.version, problem=redacted(str(error)))
    return TableState(health=row, published=entry.version, head=int(head.version), protected=protection.versions)
