"""Tables whose pages were copied: the engine exports the same rows, loads more and optimizes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.optimize import BinaryCopy
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.recovery.check import check
from tests.interop.engine import engine, people
from tests.support.pages import copied, files_of
from tests.support.writers import entry_of

pytestmark = pytest.mark.interop
COPYING = Settings(small_table_bytes=0, binary_copy=BinaryCopy.ALWAYS)
TABLES = ("node:Person", "node:Project", "edge:Likes", "edge:Leads")


def pages(graph: Graph) -> dict[str, list[bytes]]:
    return {table: files_of(graph.open_pinned(entry_of(graph, table))) for table in TABLES}


def optimized(graph: Path) -> list[str]:
    """Optimize with the option on; the tables whose pages were copied."""
    opened = open_graph(str(graph), COPYING)
    before = pages(opened)
    report = optimize_all(opened)
    assert report.failed == ()
    after = pages(open_graph(str(graph), COPYING))
    return [table for table in TABLES if len(after[table]) < len(before[table]) and copied(before[table], after[table])]


@pytest.mark.parametrize("stamp", [3, 6])
def test_the_engine_reads_and_goes_on_with_copied_pages(tmp_path: Path, stamp: int) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    subject.init(graph)
    for load in range(4):
        subject.load(graph, people(load * 100, 40))
    before = subject.export(graph)
    assert optimized(graph) == list(TABLES)
    assert subject.export(graph) == before
    # Nothing is left for the engine's own optimize, and its loads and merges go on.
    assert not any(table["committed"] for key, table in subject.optimize(graph).items() if key in TABLES)
    subject.load(graph, people(1_000, 40))
    subject.load(graph, people(120, 5, bio="changed"), mode="merge")
    more = subject.export(graph)
    assert len(more) > len(before)
    subject.optimize(graph)
    assert subject.export(graph) == more
    # Encoded anew by the engine and copied again by us.
    subject.load(graph, people(2_000, 40))
    more = subject.export(graph)
    assert "edge:Likes" in optimized(graph)
    assert subject.export(graph) == more
    assert check(open_graph(str(graph), COPYING)).status is CheckStatus.CLEAN
