"""Tables side by side: Lance releases the interpreter while it works, so threads are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(work: Callable[[T], R], items: Sequence[T], *, workers: int) -> list[R]:
    """`work` of every item, in the order of the items; the first error ends it. Effects are those of `work`."""
    most = max(1, min(workers, len(items)))
    with ThreadPoolExecutor(max_workers=most, thread_name_prefix="table") as pool:
        return list(pool.map(work, items))
