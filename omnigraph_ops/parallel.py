"""Tables side by side: Lance releases the interpreter while it works, so threads are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(
    work: Callable[[T], R], items: Sequence[T], *, workers: int, on_error: Callable[[], None] = lambda: None
) -> list[R]:
    """`work` of every item, in the order of the items; the first error ends it. Effects are those of `work`.

    Args:
        on_error: called before threads that are still at work are waited for: tells long work to end early.
    """
    most = max(1, min(workers, len(items)))
    with ThreadPoolExecutor(max_workers=most, thread_name_prefix="table") as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            # By item among those that failed together; what `on_error` makes of the others is no cause.
            failed = next((f for f in futures if f in done and f.exception() is not None), None)
            return [future.result() for future in (futures if failed is None else [failed])]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            on_error()
            raise
