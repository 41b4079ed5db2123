"""One standalone cluster for all tests, and a session in the process of the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.spark_cluster import Cluster, cluster
from tests.support.spark_session import local_spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers; a test that kills one starts another."""
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    """A driver with two local workers, for which a shuffle into hundreds of partitions would take most of the time."""
    with local_spark(**{"sql.shuffle.partitions": "2"}) as made:
        yield made
