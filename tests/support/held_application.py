"""The Spark application whose tasks stop in the middle until a test lets them go on; only a test submits it.

What it is told, and how it is waited for, is in `held.py`. A task that finds the gate open only leaves its mark.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from pyspark import Accumulator

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome
from omnigraph_ops.lance.rewrites import TaskLimits
from omnigraph_ops.models.backup import CopyDone, CopyOrder
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.spark import (
    application,
    backup_jobs,
    evidence_job,
    expire_job,
    orphans_job,
    rewrite_job,
)
from omnigraph_ops.spark.backup_jobs import Restoring, copy_on_worker, restore_on_worker
from omnigraph_ops.spark.expire_job import delete_on_worker
from omnigraph_ops.spark.orphans_tasks import Judging, Source, judge_rows, rows_of_sources
from omnigraph_ops.spark.rewrite_job import IndexTaskOutcome, Order, execute_on_worker, index_on_worker
from omnigraph_ops.stages.backup import parts
from omnigraph_ops.stages.backup.transfer import CopyPace
from omnigraph_ops.stages.expire_rows.apply import TaskDone
from omnigraph_ops.stages.optimize.index_work import NewIndex

# Tasks get these with their functions; the environment of a worker is another one.
MARKS, HELD, FREE = os.environ["MARKS"], os.environ["HELD"], int(os.environ["FREE"])
DIES = "DRIVER_DIES" in os.environ
_LONGEST_SECONDS = 300.0
_read_all = evidence_job._read_all


def _come(moment: str, wait: Callable[[], object] = lambda: time.sleep(0.02)) -> None:
    """Leave a mark; at the moment that is held, whoever comes after the first few waits for the gate."""
    number = next(n for n in count() if _is_mine(Path(MARKS, f"{moment}-{n}")))
    deadline = time.monotonic() + _LONGEST_SECONDS
    while moment == HELD and number >= FREE and not Path(MARKS, "open").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody opened the gate of {moment}")
        wait()


def _is_mine(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _rewrite(uri: str, version: int, limits: TaskLimits, tries: int, order: TaskOrder) -> TaskOutcome:
    _come("rewrite")
    return execute_on_worker(uri, version, limits, tries, order)


def _index(  # noqa: PLR0917 - as the function that it stands for
    target: str, settings: Settings, uri: str, since: int, new: Mapping[str, NewIndex], order: Order
) -> IndexTaskOutcome:
    """As when a speculative copy of the task comes second: the index is committed to the clone, and nobody told."""
    index_on_worker(target, settings, uri, since, new, order)
    _come("index")
    return index_on_worker(target, settings, uri, since, new, order)


def _read(
    uri: str,
    reads: Sequence[evidence_job.FragmentRead],
    counted: Accumulator[int],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    _come("read")
    yield from _read_all(uri, reads, counted, batches)


def _source(judging: Judging, sources: Sequence[Source], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    _come("source")
    yield from rows_of_sources(judging, sources, batches)


def _judge(judging: Judging, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As when a speculative copy of the task comes second: its parts are there, and its outcome is not taken."""
    kept = list(batches)
    list(judge_rows(judging, kept))
    _come("judge")
    yield from judge_rows(judging, kept)


def _delete(arguments: Namespace, fragments: Sequence[int]) -> TaskDone:
    """As when a speculative copy of the task comes second: its files are there, and its outcome is not taken."""
    delete_on_worker(arguments, fragments)
    _come("delete")
    return delete_on_worker(arguments, fragments)


def _copy(root: str, order: CopyOrder, rate: int | None, tries: int, number: int) -> CopyDone:
    _hold_bytes("copy")
    return copy_on_worker(root, order, rate, tries, number)


def _restore(restoring: Restoring, rate: int | None, part: tuple[Any, Any]) -> SubmitOutcome[None] | None:
    _hold_bytes("restore")
    return restore_on_worker(restoring, rate, part)


def _hold_bytes(moment: str) -> None:
    """Let every file of this worker come by when its bytes are due; there a copy may be stopped as always."""
    due = CopyPace.wait_for
    if due.__name__ == "held":
        return  # by an earlier task of this worker

    def held(pace: CopyPace, size: int) -> None:
        def wait() -> None:
            due(pace, 0)
            time.sleep(0.02)

        _come(moment, wait)
        due(pace, size)

    CopyPace.wait_for = held  # type: ignore[assignment]
    # How often a worker looks whether its attempt is still the one at work.
    parts._LOOK_SECONDS = 0.5


def _die() -> None:
    while not any(Path(MARKS).iterdir()):
        time.sleep(0.02)
    os._exit(137)


_JOBS: dict[str, tuple[ModuleType, dict[str, object]]] = {
    "rewrite": (rewrite_job, {"execute_on_worker": _rewrite}),
    "index": (rewrite_job, {"index_on_worker": _index}),
    "read": (evidence_job, {"_read_all": _read}),
    "source": (orphans_job, {"rows_of_sources": _source, "judge_rows": _judge}),
    "judge": (orphans_job, {"rows_of_sources": _source, "judge_rows": _judge}),
    "delete": (expire_job, {"delete_on_worker": _delete, "_FRAGMENTS_OF_TASK": 1}),
    "copy": (backup_jobs, {"copy_on_worker": _copy}),
    "restore": (backup_jobs, {"restore_on_worker": _restore}),
}


if __name__ == "__main__":
    module, names = _JOBS[HELD]
    vars(module).update(names)
    parts._PART_FILES = int(os.environ["FILES_OF_PART"])
    if DIES:
        threading.Thread(target=_die, daemon=True).start()
    sys.exit(application.main())
