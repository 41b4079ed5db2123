"""How much of a table a compaction task holds in memory at once."""

from __future__ import annotations

import json
import random
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.lance.rewrites import TaskLimits, limited
from omnigraph_ops.lance.tables import plan_tasks

LIMITS = TaskLimits(num_threads=1, batch_size=4096, io_buffer_size=2**27)


def task_over(folder: Path, *, row_bytes: int, rows: int) -> str:
    """The task that makes one fragment of two loads."""
    draw = random.Random(7)  # what repeats takes less room in the file
    values = pa.table({"v": pa.array([draw.randbytes(row_bytes) for _ in range(rows)], pa.large_binary())})
    for mode in ("create", "append"):
        dataset = lance.write_dataset(values, folder / "t.lance", mode=mode)
    (task,) = plan_tasks(dataset, 1_048_576)
    return task.payload


def batch_of(payload: str) -> int | None:
    found: int | None = json.loads(payload)["options"]["batch_size"]
    return found


@pytest.mark.parametrize("limits", [None, LIMITS])
def test_rows_of_a_megabyte_are_read_a_few_at_a_time(tmp_path: Path, limits: TaskLimits | None) -> None:
    task = task_over(tmp_path, row_bytes=2**20, rows=4)
    assert 14 <= (batch_of(limited(task, limits)) or 0) <= 16


@pytest.mark.parametrize(("limits", "batch"), [(None, None), (LIMITS, 4096)])
def test_ordinary_rows_are_read_as_before(tmp_path: Path, limits: TaskLimits | None, batch: int | None) -> None:
    assert batch_of(limited(task_over(tmp_path, row_bytes=100, rows=50), limits)) == batch


@pytest.mark.slow
def test_a_row_beyond_any_batch_is_read_alone(tmp_path: Path) -> None:
    assert batch_of(limited(task_over(tmp_path, row_bytes=2**25, rows=1))) == 1
