"""The Spark application with slow verdicts that leave a mark each, and every task twice; only a test submits it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from omnigraph_ops.spark import application, orphans_job
from omnigraph_ops.spark.orphans_tasks import Judging, Source, judge_rows, rows_of_sources

MARKS = os.environ["MARKS"]


def _slow(judging: Judging, sources: Sequence[Source], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    Path(MARKS, uuid4().hex).touch()
    time.sleep(0.5)
    yield from rows_of_sources(judging, sources, batches)


def _twice(judging: Judging, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As when a speculative copy of the task comes second: its parts are there, and its outcome is not taken."""
    Path(MARKS, f"judge-{uuid4().hex}").touch()
    kept = list(batches)
    list(judge_rows(judging, kept))
    time.sleep(1.5)
    yield from judge_rows(judging, kept)


if __name__ == "__main__":
    vars(orphans_job).update(rows_of_sources=_slow, judge_rows=_twice)
    sys.exit(application.main())
