"""Fixtures shared by all tests: graphs of both generations, made once and copied."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.settings import Settings
from tests.support.shell import Cli, runner
from tests.support.templates import Templates

# Tests decide their settings themselves; what a developer exported must not change them.
for _name in [n for n in os.environ if n.startswith("OMNIGRAPH_OPS_")] + ["OMNIGRAPH_MAINTENANCE_CONCURRENCY"]:
    os.environ.pop(_name, None)

DemoGraph = Callable[..., Graph]


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
