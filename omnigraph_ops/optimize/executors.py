"""Where compaction tasks execute: in this process, or wherever a caller's executor takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from omnigraph_ops.edges.lance_gateway import Dataset
from omnigraph_ops.edges.lance_tables import RewriteTask, execute_task
from omnigraph_ops.models import Executor


class TaskExecutor(Protocol):
    """Executes compaction tasks of one dataset version; makes no version itself."""

    kind: Executor

    def execute(self, dataset: Dataset, tasks: Sequence[RewriteTask]) -> Iterator[str]:
        """Yield one RewriteResult JSON per task, in any order. Writes data files."""


class InProcessExecutor:
    """One task after the other; Lance itself uses all cores within a task."""

    kind = Executor.IN_PROCESS

    def execute(self, dataset: Dataset, tasks: Sequence[RewriteTask]) -> Iterator[str]:
        for task in tasks:
            yield execute_task(dataset, task.payload)
