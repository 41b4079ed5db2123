"""Bytes rewritten against bytes that others loaded since the last run; unknown is never counted as nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import RECOVERY_DIR
from omnigraph_ops.lance.tables import fragment_facts, index_facts
from omnigraph_ops.models.optimize import TableStats
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.edges import when_asked
from tests.support.writers import copies, delete_first, entry_of, write

pytestmark = pytest.mark.slow

PERSON = "node:Person"
STATE = "__maintenance/ingest/node.Person.json"


def data_bytes(graph: Graph) -> list[int]:
    return [f.data_bytes for f in fragment_facts(graph.open_pinned(entry_of(graph, PERSON)))]


def folded_bytes(graph: Graph, stats: TableStats) -> int:
    indexes = index_facts(graph.open_pinned(entry_of(graph, PERSON)))
    return sum(i.size_bytes for i in indexes if i.name in stats.indexes_folded)


@pytest.mark.parametrize("settings", [Settings(), Settings(small_table_bytes=0)], ids=["one_window", "two_windows"])
def test_what_was_loaded_and_what_was_written_are_told_exactly(
    demo_graph: DemoGraph, stamp: int, settings: Settings
) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, loads=2, rows=30, settings=settings)
    first = optimize_table(graph, PERSON)
    assert (first.bytes_ingested, first.write_amplification) == (None, None)
    assert first.bytes_rewritten > first.index_bytes_rewritten > 0
    write(graph, PERSON, copies("a", 5))
    write(graph, PERSON, copies("b", 5))
    write(graph, PERSON, delete_first(1))
    loaded = sum(data_bytes(graph)[1:])
    second = optimize_table(graph, PERSON)
    assert second.bytes_ingested == loaded > 0
    assert second.index_bytes_rewritten == folded_bytes(graph, second) > 0
    assert second.bytes_rewritten == sum(data_bytes(graph)) + second.index_bytes_rewritten
    assert second.write_amplification == round(second.bytes_rewritten / loaded, 3)


def test_what_somebody_loads_right_after_a_publish_is_of_the_next_run(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(node_types=1, loads=2, rows=10)
    when_asked(
        monkeypatch, Storage, "delete", lambda: write(graph, PERSON, copies("a", 5)), about=RECOVERY_DIR, after=True
    )
    first = optimize_table(graph, PERSON)
    assert (first.committed, entry_of(graph, PERSON).version) == (True, (first.published_version or 0) + 1)
    loaded = data_bytes(graph)[-1]
    assert optimize_table(graph, PERSON).bytes_ingested == loaded


@pytest.mark.parametrize("damage", ["lost", "damaged", "of another dataset"])
def test_without_a_record_it_is_unknown_for_one_run(demo_graph: DemoGraph, damage: str) -> None:
    graph = demo_graph(node_types=1, loads=2, rows=10)
    optimize_table(graph, PERSON)
    state = Path(graph.uri, STATE)
    if damage == "lost":
        state.unlink()
    else:
        state.write_text("{" if damage == "damaged" else state.read_text().replace("nodes/", "nodes/other"))
    write(graph, PERSON, copies("a", 5))
    assert optimize_table(graph, PERSON).bytes_ingested is None
    write(graph, PERSON, copies("b", 5))
    assert optimize_table(graph, PERSON).bytes_ingested is not None


def test_a_rewrite_by_somebody_else_is_no_ingest(demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=1, loads=1, rows=30)
    optimize_table(graph, PERSON)
    write(graph, PERSON, copies("a", 5))
    write(graph, PERSON, lambda dataset: dataset.optimize.compact_files())
    write(graph, PERSON, copies("b", 5))
    assert optimize_table(graph, PERSON).bytes_ingested is None


def test_the_graph_sums_up_and_a_run_without_work_writes_nothing(demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=1, loads=2, rows=10)
    optimize_all(graph)
    write(graph, PERSON, copies("a", 5))
    report = optimize_all(graph)
    (person,) = [t for t in report.tables if t.committed]
    assert (report.bytes_rewritten, report.bytes_ingested) == (person.bytes_rewritten, person.bytes_ingested)
    assert report.write_amplification == person.write_amplification
    before = Path(graph.uri, STATE).read_text()
    idle = optimize_all(graph)
    assert (idle.bytes_rewritten, idle.bytes_ingested, idle.write_amplification) == (0, None, None)
    assert Path(graph.uri, STATE).read_text() == before


def test_a_store_that_refuses_the_record_costs_only_the_figure(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_ops.errors import StorageError
    from omnigraph_ops.storage.store import Storage

    genuine = Storage.write

    def refusing(self: Storage, path: str, data: bytes) -> None:
        if path == STATE:
            raise StorageError("read only")
        genuine(self, path, data)

    graph = demo_graph(node_types=1, loads=2, rows=10)
    monkeypatch.setattr(Storage, "write", refusing)
    stats = optimize_table(graph, PERSON)
    assert stats.committed
    assert stats.error is None
