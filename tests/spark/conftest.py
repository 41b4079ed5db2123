"""One standalone cluster for all tests, and a session in their own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph_ops.spark.submit import Submitter
from tests.support.spark_cluster import Cluster, cluster
from tests.support.spark_session import local_spark, submit_in


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers; a test that kills one starts another."""
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def spark(standalone: Cluster) -> Iterator[Cluster]:
    """The cluster, free again after the test, also where the test failed with its tasks at the gate."""
    yield standalone
    standalone.end_submits()


@pytest.fixture(scope="package")
def session() -> Iterator[SparkSession]:
    """A driver with two local workers, for which a shuffle into hundreds of partitions would take most of the time."""
    with local_spark(**{"sql.shuffle.partitions": "2"}) as made:
        yield made


@pytest.fixture
def submits_here(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told `--spark` submits to that session: a submit of its own keeps a core busy for eight seconds."""
    submit = submit_in(session)

    def call(self: Submitter, job: str, arguments: Sequence[str], value: type[Any], check: Callable[[], None]) -> Any:
        self.progress(f"{job} on {self.master}")
        return submit(job, arguments, value, check)

    monkeypatch.setattr(Submitter, "__call__", call)
