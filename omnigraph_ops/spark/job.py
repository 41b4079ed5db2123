"""What a job of the Spark application is."""

from __future__ import annotations

import contextlib
import gc
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import ParamSpec, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph_ops import serde
from omnigraph_ops.errors import InvalidInput, StorageError
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.storage.location import AMBIENT

P = ParamSpec("P")
T = TypeVar("T")
Order = TypeVar("Order")
_REASON = re.compile(r"^omnigraph_ops\.(?:\w+\.)*(\w+): (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(\w[\w.]*: .+)$", re.MULTILINE)
"""What a worker's Python raised that is no error of ours, such as one that lacks a package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The distributed form of the heavy part of one stage."""

    name: str
    """The first argument of the application."""
    summary: str
    """One line of help."""
    subject: str
    """The argument that the application is named after in Spark's own pages."""
    arguments: Callable[[ArgumentParser], object]
    """Declares the arguments of the job."""
    work: Callable[[SparkSession, Namespace], object]
    """Does the work and returns its outcome, a dataclass. Raises `OpsError` when the work failed."""

    def run(self, spark: SparkSession, arguments: Namespace) -> object:
        """The outcome of the work; raises `OpsError`, for what Spark raises too. The effect of the job."""
        with spark_errors():
            return self.work(spark, arguments)


def open_table(uri: str, version: int) -> Dataset:
    """A version of a table by what the environment of this process says: no credentials come with a task. Reads."""
    return LanceGateway(AMBIENT.lance(uri)).open(uri, version=version)


def in_tasks(work: Callable[P, T]) -> Callable[P, T]:
    """Prepare work for the tasks of a job: every function that a worker runs goes through here. Pure.

    After each task PySpark collects garbage in its worker. That looks at everything that was imported, for some 50 ms,
    which is more than most small tasks take. So the first task of a worker excludes what is there from collection.
    """
    return partial(_settled, work)


def _settled(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    _leave_imports_alone()
    return work(*args, **kwargs)


_leave_imports_alone = cache(gc.freeze)


def run_tasks(context: SparkContext, work: Callable[[Order], T], orders: Sequence[Order]) -> list[T]:
    """What a task for each order returned, in their order; raises as `spark_errors` does. The effect of the work."""
    with spark_errors():
        return context.parallelize(orders, max(len(orders), 1)).map(in_tasks(work)).collect()


FOUND = "found string not null"
"""The columns of rows that are what a task found, as JSON."""


def found_row(value: object) -> pa.RecordBatch:
    """What a task found, as its one row. Pure."""
    return pa.RecordBatch.from_pydict({"found": [serde.dumps(value)]})


def tries_of(context: SparkContext) -> int:
    """How often Spark tries a task before it gives up the job. Pure."""
    return int(context.getConf().get("spark.task.maxFailures", "4"))


def attempt() -> int:
    """Which attempt of its task this is, from 0 on; 0 outside of a task, too. Pure."""
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def shared_rate(context: SparkContext, parts: int, bytes_per_second: int | None) -> tuple[int, int | None]:
    """Tasks for so many parts, and the bytes per second of each. Pure.

    With a bound no more tasks are made than run at once now: together they keep to it, whatever the cluster grows to.
    """
    if bytes_per_second is None:
        return parts, None
    tasks = min(parts, max(context.defaultParallelism, 1))
    return tasks, max(bytes_per_second // tasks, 1)


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Say in one sentence what Spark raises in many lines.

    Raises:
        InvalidInput: a task refused what it was given.
        StorageError: a task failed, or Spark gave up the job.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        # The JVM's own errors arrive as they are, with the call before them.
        text = str(error.java_exception if isinstance(error, Py4JJavaError) else error).strip()
        found = _REASON.findall(str(error))
        kind, reason = found[-1] if found else ("", _told_by_python(str(error)) or text.partition("\n")[0])
        raise (InvalidInput if kind == InvalidInput.__name__ else StorageError)(reason) from None


def _told_by_python(text: str) -> str:
    """The last error of Python in the text of one of Spark's, empty where there is none. Pure."""
    found: list[str] = _PYTHON.findall(text)
    if not found:
        return ""
    lacks = found[-1].startswith("ModuleNotFoundError")
    return f"a task failed: {found[-1]}" + ("; docs/how-to/spark.md says what the workers need" if lacks else "")
