"""One compaction task, wherever it executes: write its files, then the journal, then say so."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph_ops.coordination.rewrites.journal import Attempt, FinishedTask, MadeFile, record
from omnigraph_ops.coordination.throttle import Ceilings, Pause, admitted
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.rewrites import TaskLimits, limited, result_files, with_sizes
from omnigraph_ops.lance.tables import execute_task
from omnigraph_ops.storage.inventory import files_in
from omnigraph_ops.storage.options import s3fs_options
from omnigraph_ops.storage.store import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """Everything that a process needs to execute a task and to journal its result."""

    graph_uri: str
    table_path: str
    rewrite_id: str
    index: int
    payload: str
    source_bytes: int
    ceilings: Ceilings
    """What all tasks of the graph together may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """What came of an order. The result itself stays in the journal."""

    index: int
    attempt: str | None
    error: str | None = None

    @property
    def name(self) -> Attempt | None:
        return None if self.attempt is None else Attempt(index=self.index, attempt=self.attempt)


def perform(
    order: TaskOrder,
    dataset: Dataset,
    limits: TaskLimits | None = None,
    storage: Storage | None = None,
    pause: Pause | None = None,
) -> TaskOutcome:
    """Execute one task and journal its result. Writes data files and the journal; makes no version.

    Args:
        pause: how to wait for admission; whatever it raises ends the waiting, before the task has begun.
    """
    payload = order.payload if limits is None else limited(order.payload, limits)
    storage = storage or Storage(order.graph_uri, s3fs_options(order.graph_uri))
    with admitted(storage, order.ceilings, order.source_bytes, pause):
        result = with_sizes(
            execute_task(dataset, payload), lambda name: storage.stat(f"{order.table_path}/{name}").size
        )
    finished = FinishedTask(
        index=order.index,
        attempt=uuid.uuid4().hex[:12],
        result=result,
        files=tuple(_made(storage, order.table_path, result)),
    )
    record(storage, order.table_path, order.rewrite_id, finished)
    return TaskOutcome(index=order.index, attempt=finished.attempt)


def _made(storage: Storage, table_path: str, result: str) -> Iterator[MadeFile]:
    for name in result_files(result):
        path = f"{table_path}/{name}"
        yield MadeFile(path=path, size=storage.stat(path).size)
        # The values of blob columns are files of their own, in a folder that is named after the data file.
        for blob in files_in(storage, path.removesuffix(".lance")):
            yield MadeFile(path=blob.path, size=blob.size)
