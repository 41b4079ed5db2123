"""Who wrote the versions of a graph, by which text indexes are written for the engine that reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.graph.stamp import certifying_engine
from omnigraph_ops.storage.store import Storage


def test_a_version_is_read_once_however_many_tables_ask_who_wrote_it(tmp_path: Path) -> None:
    write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=3, loads=2, rows=1))
    graph = open_graph(str(tmp_path / "g"), Settings())
    reads = Counter[str]()

    class Counting(Storage):
        def read(self, path: str) -> bytes:
            reads[path] += 1
            return graph.storage.read(path)

    context = replace(graph.context, storage=Counting(graph.storage.root))
    tables = graph.state().entries
    assert [certifying_engine(context, entry.path, entry.version) for entry in tables] == [None] * len(tables)
    assert any(path.startswith(MANIFEST_DIR) for path in reads)
    assert any(path.startswith(tables[0].path) for path in reads)
    assert max(reads.values()) == 1
