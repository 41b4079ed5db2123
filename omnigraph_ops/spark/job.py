"""What a job of the Spark application is."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession


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
