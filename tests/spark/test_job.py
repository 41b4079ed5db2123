"""What every task of a job has in common."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph_ops.errors import StorageError
from omnigraph_ops.spark import job

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-local")]
_GIVES_TASKS_WORK = {"map", "mapInArrow"}


def left_alone(_: int) -> int:
    return gc.get_freeze_count()


def test_what_a_worker_imported_is_not_looked_at_after_each_task(session: SparkSession) -> None:
    tasks = session.sparkContext.parallelize(range(8), 8)
    assert min(tasks.map(job.in_tasks(left_alone)).collect()) > 10_000
    assert gc.get_freeze_count() == 0, "the driver collects as ever"


def lacking(batches: Iterable[object]) -> Iterator[object]:
    raise ModuleNotFoundError("No module named 'omnigraph_ops'")
    yield from batches


@pytest.mark.parametrize("by", ["tasks", "rows"])
def test_what_the_python_of_a_worker_lacks_is_told(session: SparkSession, by: str) -> None:
    sentence = r"^a task failed: ModuleNotFoundError: No module named 'omnigraph_ops'; docs/how-to/spark.md says"
    with pytest.raises(StorageError, match=sentence):
        if by == "tasks":
            job.run_tasks(session.sparkContext, lambda order: list(lacking([order])), [1])
        with job.spark_errors():
            session.range(1).mapInArrow(job.in_tasks(lacking), "id long").collect()


def test_no_job_gives_tasks_bare_work() -> None:
    bare = []
    for path in sorted(Path(job.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text())
        told = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and "in_tasks(" in ast.unparse(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                work = ast.unparse(node.args[0]) if node.args else ""
                if node.func.attr in _GIVES_TASKS_WORK and work not in told and "in_tasks(" not in work:
                    bare.append(f"{path.name}:{node.lineno} {ast.unparse(node)[:80]}")
    assert bare == []
