"""Index work that another writer overtakes, and index work on many segments."""

from __future__ import annotations

from functools import partial
from typing import Any

import lance
import pytest
from lance.dataset import DatasetOptimizer

from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.tables import index_facts
from omnigraph_ops.lance.text_indexer import TextIndexProcess
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged
from tests.support.edges import when_asked
from tests.support.rows import rows_of
from tests.support.writers import Change, copies, entry_of, write

pytestmark = pytest.mark.slow

PERSON, DOC = "node:Person", "node:Doc"
PEOPLE = {"node_types": 1, "loads": 3, "rows": 12}


def folds_the_same(dataset: Dataset) -> None:
    dataset.optimize.optimize_indices(index_names=["name_idx"], num_indices_to_merge=9)


def builds_the_same(dataset: Dataset) -> None:
    dataset.create_scalar_index("name", "INVERTED", name="name_idx", replace=True)


def updates_a_row(dataset: Dataset) -> None:
    dataset.update({"name": "'renamed'"}, where="id = 'p1'")


def overtaken(monkeypatch: pytest.MonkeyPatch, graph: Graph, change: Change) -> None:
    """Let another writer commit and publish right before the text index of names is written."""
    act = partial(write, open_graph(graph.uri), PERSON, change)
    when_asked(monkeypatch, TextIndexProcess, "ask", act, about="^(fold|build) index name_idx")


@pytest.mark.night("combinations")
@pytest.mark.parametrize(
    ("change", "preempted"),
    # An update deletes a row of a fragment that the same window rewrites; added fragments are the next run's.
    [(folds_the_same, 1), (builds_the_same, 1), (updates_a_row, 1), (copies("rival-"), 0)],
)
def test_a_commit_that_lands_before_the_fold_converges(
    demo_graph: DemoGraph, stamp: int, change: Change, preempted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, twin = demo_graph(stamp=stamp, **PEOPLE), demo_graph(stamp=stamp, **PEOPLE, name="twin.omni")
    write(twin, PERSON, change)
    overtaken(monkeypatch, graph, change)
    heard: list[str] = []
    stats = optimize_table(graph, PERSON, progress=Lines(heard.append))
    assert len([text for text in heard if "preempted, planning again" in text]) == preempted
    assert (stats.committed, stats.skipped, stats.error) == (True, None, None)
    assert not optimize_all(graph).failed
    assert not optimize_all(twin).failed
    assert sorted_rows(graph) == sorted_rows(twin)
    assert_converged(graph)


@pytest.mark.parametrize("small_table_bytes", [0, 1 << 26], ids=["fold window", "one window"])
def test_an_index_folded_over_an_update_finds_the_new_value_only(
    demo_graph: DemoGraph, stamp: int, small_table_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    graph = open_graph(graph.uri, graph.settings.model_copy(update={"small_table_bytes": small_table_bytes}))
    old = graph.open_pinned(entry_of(graph, PERSON)).to_table(filter="id = 'p1'")["name"][0].as_py()
    assert (finds(graph, old), finds(graph, "renamed")) == (True, False)
    overtaken(monkeypatch, graph, updates_a_row)
    optimize_table(graph, PERSON)
    assert (finds(graph, old), finds(graph, "renamed")) == (False, True)


def merges_only(monkeypatch: pytest.MonkeyPatch, segments: int) -> None:
    """Let Lance merge no more than so many segments of an index, whatever it is asked for."""
    fold = DatasetOptimizer.optimize_indices

    def fold_few(optimizer: DatasetOptimizer, **how: Any) -> None:
        fold(optimizer, **how | {"num_indices_to_merge": segments})

    monkeypatch.setattr(DatasetOptimizer, "optimize_indices", fold_few)


def finds(graph: Graph, text: str) -> bool:
    """Whether the text index leads from that name to the row that is updated."""
    table = graph.open_pinned(entry_of(graph, PERSON))
    return "p1" in table.to_table(full_text_query={"columns": ["name"], "query": text})["id"].to_pylist()


def sorted_rows(graph: Graph) -> list[dict[str, object]]:
    rows = graph.open_pinned(entry_of(graph, PERSON)).to_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


def uuids(dataset: Dataset) -> dict[str, set[str]]:
    return {index.name: {s.uuid for s in index.segments} for index in dataset.describe_indices()}


@pytest.mark.parametrize(("merge", "rebuilt"), [(None, 0), (1, 2)], ids=["all segments", "only one"])
def test_folding_all_segments_needs_no_rebuild(
    demo_graph: DemoGraph, stamp: int, merge: int | None, rebuilt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five segments each of a vector, a scalar and two text indexes; merging one of the first two would leave five."""
    graph = demo_graph(stamp=stamp, loads=1, rows=60)

    def grow(dataset: Dataset) -> None:
        for number in range(4):
            copies(f"delta-{number}-", 8)(dataset)
            dataset = lance.dataset(dataset.uri)
            dataset.optimize.optimize_indices(num_indices_to_merge=0)
            dataset = lance.dataset(dataset.uri)
        copies("uncovered-", 4)(dataset)

    write(graph, DOC, grow)
    before = graph.open_pinned(entry_of(graph, DOC))
    kinds = {i.name: i.details for i in index_facts(before)}
    assert {i.name: i.segments for i in index_facts(before)} == dict.fromkeys(kinds, 5)
    rows, known, heard = rows_of(graph), uuids(before), list[str]()
    if merge is not None:
        merges_only(monkeypatch, merge)
    optimize_table(graph, DOC, progress=Lines(heard.append))
    after = graph.open_pinned(entry_of(graph, DOC))
    assert len([text for text in heard if text.endswith(" anew")]) == rebuilt
    assert {i.name: (i.details, i.segments) for i in index_facts(after)} == {n: (k, 1) for n, k in kinds.items()}
    assert all(not new & known[name] for name, new in uuids(after).items())
    assert rows_of(graph) == rows
