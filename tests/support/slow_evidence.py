"""The Spark application with slow reads that leave a mark each; only a test submits it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark import Accumulator

from omnigraph_ops.spark import application, evidence_job

MARKS = os.environ["MARKS"]
_real = evidence_job._read_all


def _slow(
    uri: str,
    reads: Sequence[evidence_job.FragmentRead],
    counted: Accumulator[int],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    Path(MARKS, uuid4().hex).touch()
    time.sleep(1.5)
    yield from _real(uri, reads, counted, batches)


if __name__ == "__main__":
    evidence_job._read_all = _slow
    sys.exit(application.main())
