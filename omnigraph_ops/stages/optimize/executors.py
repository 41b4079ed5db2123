"""Where compaction tasks execute: in this process, or wherever a caller's executor takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from omnigraph_ops.coordination.rewrites.work import TaskOrder, TaskOutcome, perform
from omnigraph_ops.coordination.throttle import Pause
from omnigraph_ops.errors import OpsError
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.models import Executor
from omnigraph_ops.storage.store import Storage


class TaskExecutor(Protocol):
    """Executes compaction tasks of one dataset version; makes no version itself."""

    kind: Executor

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        """Yield one outcome per order, in any order. Writes data files and the journal of the rewrite."""


class InProcessExecutor:
    """One task after the other; Lance itself uses all cores within a task."""

    kind = Executor.IN_PROCESS

    def __init__(self, storage: Storage | None = None, pause: Pause | None = None) -> None:
        self._storage, self._pause = storage, pause
        """The graph's store as it was opened, None: as this process reaches it; and how its run waits."""

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        for order in orders:
            try:
                yield perform(order, dataset, storage=self._storage, pause=self._pause)
            except OpsError as error:
                # The other groups are none the worse for it, and are committed.
                yield TaskOutcome(index=order.index, attempt=None, error=str(error))
