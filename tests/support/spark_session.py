"""A Spark session in the process of the test, and jobs whose driver that process is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph_ops import serde
from omnigraph_ops.spark.application import JOBS, _parser
from omnigraph_ops.spark.java import spark_environment
from omnigraph_ops.stages.stage import Submit
from tests.support.spark_cluster import environment


@contextlib.contextmanager
def local_spark(**conf: str) -> Iterator[SparkSession]:
    """A session with two workers for the block. Starts and ends processes."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (spark_environment() | {"PYTHONPATH": environment()["PYTHONPATH"]}).items():
            patch.setenv(name, value)
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        # By TCP, which submits use, each task of a worker waits forty milliseconds for its answer.
        sockets = "spark.python.unix.domain.socket.enabled"
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(sockets, "true")
        for name, value in conf.items():
            builder = builder.config(f"spark.{name}", value)
        made = builder.getOrCreate()
        try:
            yield made
        finally:
            made.stop()


def submit_in(spark: SparkSession) -> Submit:
    """A submit whose driver is this process."""

    def submit(job: str, arguments: Sequence[str], value: type[Any], check: Callable[[], None]) -> Any:
        check()
        chosen = next(j for j in JOBS if j.name == job)
        return serde.from_json(value, serde.dumps(chosen.run(spark, _parser().parse_args([job, *arguments]))))

    return submit
