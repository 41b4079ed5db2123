"""Side by side: tables on the threads of one process or dealt onto several, and questions to a store.

Deal tables onto processes: what is big gets one of its own, many small ones share. A process costs seconds before its
first table (an interpreter, `import lance`), which a small table does not take itself; and a scheduler maps one task
over a limited number of things (Airflow: 1,024).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar, overload

from omnigraph_ops.models.optimize import TablePlan

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")
_AT_ONCE = 10_000
"""Items that the threads are given together: each costs two kilobytes until all of them are done."""
_LOOK_SECONDS = 0.5
"""How often the thread that waits for the others handles the signals that came."""
_ABORT_SECONDS = 2.0
"""How long threads are waited for that nothing but the end of the process can end early."""


def in_parallel(
    work: Callable[[T], R], items: Sequence[T], *, workers: int, on_error: Callable[[], None] | None = None
) -> list[R]:
    """`work` of every item, in the order of the items; the first error ends it. Effects are those of `work`.

    Args:
        on_error: called before threads that are still at work are waited for: tells long work to end early. Without
            it a person who interrupts waits two seconds for them at most.
    """
    most = max(1, min(workers, len(items)))
    pool = ThreadPoolExecutor(max_workers=most, thread_name_prefix="table")
    futures, results = list[Future[R]](), list[R]()
    try:
        for start in range(0, len(items), _AT_ONCE):
            futures = [pool.submit(work, item) for item in items[start : start + _AT_ONCE]]
            results += _results(futures)
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        if on_error is not None:
            on_error()
        if on_error is not None or isinstance(error, Exception):
            pool.shutdown()
        else:
            wait([f for f in futures if f.running()], timeout=_ABORT_SECONDS)
        raise
    pool.shutdown()
    return results


def _results(futures: Sequence[Future[R]]) -> list[R]:
    """What came of them, in their order; raises the first error, without a wait for the others. Waits."""
    done, left = set[Future[R]](), set(futures)
    while left and not any(future.exception() for future in done):
        # Not one long wait: a signal that the system gives to another thread does not end it.
        done, left = wait(futures, timeout=_LOOK_SECONDS, return_when=FIRST_EXCEPTION)
    # By item among those that failed together; what `on_error` makes of the others is no cause.
    failed = next((f for f in futures if f in done and f.exception() is not None), None)
    return [future.result() for future in (futures if failed is None else [failed])]


@overload
def asked(first: Callable[[], T], second: Callable[[], R], /, *, at_once: bool) -> tuple[T, R]: ...
@overload
def asked(
    first: Callable[[], T], second: Callable[[], R], third: Callable[[], S], /, *, at_once: bool
) -> tuple[T, R, S]: ...
def asked(*questions: Callable[[], Any], at_once: bool) -> tuple[Any, ...]:
    """The answers to questions of which none needs another's answer. Effects are those of the questions.

    Args:
        at_once: each is a round trip to a store; on a local disk a thread costs more than it saves.
    """
    if at_once:
        return tuple(in_parallel(lambda question: question(), questions, workers=len(questions)))
    return tuple(question() for question in questions)


Lot = tuple[str, ...]
"""Table keys that one process does, one after the other."""
SHARED_LOTS = 32
"""Few tables get a process each, so that each shows as itself; more than these share so many processes."""
MOST_LOTS = 512
"""However many tables are big; half of what Airflow maps by default."""


def lots_of(tables: Sequence[TablePlan], *, small_bytes: int, shared_lots: int = SHARED_LOTS) -> tuple[Lot, ...]:
    """The lots of tables that are in the order of their turn, each lot in that order, too. Pure.

    Args:
        small_bytes: a table that writes less than this shares its process.
        shared_lots: so many processes at most are shared.
    """
    turn = {table.table_key: number for number, table in enumerate(tables)}
    big = [t.table_key for t in tables if t.cost_bytes >= small_bytes][: MOST_LOTS - shared_lots]
    alone = frozenset(big)
    shared = deal([key for key in turn if key not in alone], lots=shared_lots)
    return tuple(sorted((*((key,) for key in big), *shared), key=lambda lot: turn[lot[0]]))


def deal(keys: Sequence[str], *, lots: int = SHARED_LOTS) -> tuple[Lot, ...]:
    """The keys dealt out in turn, so that the first ones come first everywhere. Pure."""
    return tuple(tuple(keys[n::lots]) for n in range(min(len(keys), lots)))
