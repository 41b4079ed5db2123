"""Fixtures shared by all tests: graphs of both generations, made once and copied."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import guards, pace
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.graph import Graph, open_graph
from tests.support.by_day import pytest_addoption, pytest_collection_modifyitems
from tests.support.quick_java import java_options, learn_in_background
from tests.support.s3 import bucket, s3, s3_graph, s3_server
from tests.support.scratch import write_to_memory
from tests.support.shell import Cli, runner
from tests.support.templates import Templates

# Hooks, and one S3 server per worker, for all folders of tests.
__all__ = ["bucket", "pytest_addoption", "pytest_collection_modifyitems", "s3", "s3_graph", "s3_server"]

# Tests decide their settings themselves; what a developer exported must not change them.
_FOREIGN = ("OMNIGRAPH_OPS_", "AWS_", "AIRFLOW_", "LANCE_", "SPARK_", "PYSPARK_")
_FOREIGN_NAMES = {"OMNIGRAPH_MAINTENANCE_CONCURRENCY", "OMNIGRAPH_GRAPH", "OMNIGRAPH_GRAPHS_FILE"}
for _name in [n for n in os.environ if n.startswith(_FOREIGN) or n in _FOREIGN_NAMES]:
    del os.environ[_name]
write_to_memory()
# Airflow writes below its home as soon as it is imported, and that must not be the developer's.
_AIRFLOW_HOME = tempfile.mkdtemp(prefix="omnigraph-airflow-test-")
atexit.register(shutil.rmtree, _AIRFLOW_HOME, ignore_errors=True)
os.environ.update(
    AIRFLOW_HOME=_AIRFLOW_HOME,
    # No profile of a home folder, and no question to the network for a role.
    AWS_CONFIG_FILE=os.devnull,
    AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    AWS_EC2_METADATA_DISABLED="true",
    # The servers of the tests are on this machine, and no proxy stands between.
    NO_PROXY="127.0.0.1,localhost",
    no_proxy="127.0.0.1,localhost",
    JDK_JAVA_OPTIONS=java_options(),
)
# How long an example takes is a matter of what else this machine does.
settings.register_profile("omnigraph", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# By day always the same ones, as the histories of `property/`: what only the examples of one run meet is for the night.
settings.register_profile("by day", settings.get_profile("omnigraph"), derandomize=True)

# What a test writes as another writer is no reason to give way to one: unit/coordination/test_pace.py is about that.
pace._ACTIVE_SECONDS = 0.0
# Nor is it over in a moment: integration/test_writers_at_work.py is about what is.
guards._LOOK_SECONDS = 0.0
guards._MOST_LOOKS = guards._LOOKS

DemoGraph = Callable[..., Graph]


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples before the modules of the tests are imported, which take the profile with them."""
    settings.load_profile("by day" if config.getoption("by_day") else "omnigraph")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where Spark is started many times, let it start sooner."""
    if any(item.get_closest_marker("spark") for item in session.items):
        learn_in_background()


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """Demo graphs of this worker, written once per spec."""
    return Templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture
def demo_graph(templates: Templates, tmp_path: Path) -> DemoGraph:
    """Makes a private demo graph: `demo_graph(stamp=3, loads=4)`; `settings=` goes to the open graph."""

    def make(*, settings: Settings | None = None, name: str = "graph.omni", **fields: object) -> Graph:
        root = tmp_path / name
        templates.copy(DemoSpec(**fields), root)
        return open_graph(str(root), settings or Settings())

    return make


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line of this process."""
    return runner(capsys)


@pytest.fixture(params=[3, 6], ids=["stamp3", "stamp6"])
def stamp(request: pytest.FixtureRequest) -> int:
    """Both generations."""
    return int(request.param)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process in the background of a shell ignores interrupts, and so do its tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
