"""Tables side by side: Lance releases the interpreter while it works, so threads are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
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
    futures: list[Future[R]] = []
    try:
        futures += [pool.submit(work, item) for item in items]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        # By item among those that failed together; what `on_error` makes of the others is no cause.
        failed = next((f for f in futures if f in done and f.exception() is not None), None)
        results = [future.result() for future in (futures if failed is None else [failed])]
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
