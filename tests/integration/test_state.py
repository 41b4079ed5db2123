"""What a graph publishes: of all tables at once, and of one of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.support.engine_graphs import NAMES, RELEASES, unpacked


def assert_each_alone_is_as_in_all(graph: Graph) -> None:
    state = graph.state()
    for branch in (None, *graph.branches()):
        manifest = graph.manifest(branch)
        whole = graph.decode(manifest, branch)
        for entry in whole.entries:
            alone = graph.decode(manifest, branch, tables=[entry.table_key])
            assert entry in alone.entries
            assert alone.get(entry.table_key) == entry
            assert (alone.head_commit_id, alone.manifest_version) == (whole.head_commit_id, whole.manifest_version)
    assert all(graph.published(e.table_key) == e for e in state.entries)
    assert graph.published("node:Nowhere") is None


@pytest.mark.slow
@pytest.mark.parametrize("stamp", [3, 6])
def test_a_table_alone_is_as_in_all(tmp_path: Path, stamp: int) -> None:
    root = str(tmp_path / "g")
    spec = DemoSpec(stamp=stamp, loads=3, rows=10, deletes=2, updates=2, lazy_branches=1, written_branches=1)
    write_demo_graph(root, spec)
    graph = open_graph(root)
    optimize_all(graph)
    assert_each_alone_is_as_in_all(graph)


@pytest.mark.night("combinations")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", NAMES)
def test_a_table_alone_is_as_in_all_where_the_engine_wrote(tmp_path: Path, release: str, name: str) -> None:
    """Types that were renamed or dropped are among these."""
    with unpacked(release, name, tmp_path) as root:
        assert_each_alone_is_as_in_all(open_graph(str(root)))


@pytest.mark.parametrize("spoil", ["stable_table_id", "table_version"])
def test_an_old_row_without_its_key_is_refused(tmp_path: Path, spoil: str) -> None:
    root = str(tmp_path / "g")
    write_demo_graph(root, DemoSpec(loads=3, rows=5))
    graph = open_graph(root)
    rows = graph.manifest().to_table()
    (first, *_) = [n for n, kind in enumerate(rows.column("object_type").to_pylist()) if kind == "table_version"]
    values = rows.column(spoil).to_pylist()
    values[first] = None
    field = rows.schema.get_field_index(spoil)
    spoilt = rows.set_column(field, rows.schema.field(field), pa.array(values, pa.uint64()))
    with pytest.raises(CorruptGraph, match=rows.column("object_id")[first].as_py()):
        graph.format.decode(graph.context, spoilt, None, 1)
