"""What a job of the Spark application is."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_REASON = re.compile(r"^omnigraph_ops\.(?:\w+\.)*(\w+): (.+)$", re.MULTILINE)


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
    run: Callable[[SparkSession, Namespace], object]
    """Does the work and returns its outcome, a dataclass. Raises `OpsError` when the work failed."""


def shared_rate(context: SparkContext, parts: int, bytes_per_second: int | None) -> tuple[int, int | None]:
    """Tasks for so many parts, and the bytes per second of each. Pure.

    With a bound no more tasks are made than run at once now: together they keep to it, whatever the cluster grows to.
    """
    if bytes_per_second is None:
        return parts, None
    tasks = min(parts, max(context.defaultParallelism, 1))
    return tasks, max(bytes_per_second // tasks, 1)


def reason_of_worker(error: PySparkException) -> tuple[str, str]:
    """The class and the sentence of our own error in a worker, else no class and the first line of Spark's. Pure."""
    found = _REASON.findall(str(error))
    return found[-1] if found else ("", str(error).strip().partition("\n")[0])
