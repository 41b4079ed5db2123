"""A rewrite that readers could not read is not committed, whichever way it comes: the table stays as it is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.models.optimize import BinaryCopy, SkipReason
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.optimize.observe import policy_of
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from tests.conftest import DemoGraph
from tests.support import plain
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.reader_limits import ROWS, VALUE, notes, one_note
from tests.support.rewrites import TABLE, unreferenced
from tests.support.rows import tree_of
from tests.support.writers import entry_of, write

AT_ONCE_OR_IN_ROUNDS = pytest.mark.parametrize("small", [1 << 30, 0], ids=["at_once", "in_rounds"])


def one_tier(dataset: Dataset) -> None:
    """Other rows in the place of all, without a tier but for one of them."""
    empty = dataset.schema.empty_table()
    dataset.delete("true")
    for load, tiers in enumerate(notes()):
        ids = pa.array([f"q{load}_{n}" for n in range(len(tiers))])
        rows = {name: pa.nulls(len(tiers), empty.schema.field(name).type) for name in empty.column_names}
        rows |= {"id": ids, "name": ids, "tier": pa.array(tiers, pa.string())}
        lance.write_dataset(pa.table(rows, schema=empty.schema), dataset, mode="append")


def as_it_was(dataset: Dataset, column: str) -> None:
    """The fragments are those that were written, and what is read of them fits into memory."""
    assert [f.count_rows() for f in dataset.get_fragments()] == list(ROWS)
    found = dataset.to_table(columns=[column]).column(column)
    assert found.drop_null().to_pylist() == [VALUE]
    assert found.nbytes < 10 * len(VALUE) * ROWS[-1]


@AT_ONCE_OR_IN_ROUNDS
def test_a_table_of_a_graph_stays_readable(demo_graph: DemoGraph, stamp: int, small: int) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, loads=1, rows=2, settings=Settings(small_table_bytes=small))
    write(graph, TABLE, one_tier)
    said: list[str] = []
    report = optimize_all(graph, tables=[TABLE], progress=Lines(said.append))
    (stats,) = report.tables
    assert (stats.error, stats.skipped, stats.fragments_removed) == (None, SkipReason.UNREADABLE, 0)
    assert stats.indexes_folded, "the indexes do not wait for it"
    assert "readers would fail" in str(said)
    assert "each null of tier" in str(said)
    as_it_was(graph.open_pinned(entry_of(graph, TABLE)), "tier")
    assert_pins_are_heads(graph)
    assert_no_leftovers(graph)
    assert not unreferenced(graph)


@AT_ONCE_OR_IN_ROUNDS
def test_no_way_to_commit_leads_around_it(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, stamp: int, small: int
) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, loads=1, rows=2, settings=Settings(small_table_bytes=small))
    write(graph, TABLE, one_tier)
    for module in ("omnigraph_ops.stages.optimize.units", "omnigraph_ops.coordination.rewrites"):
        monkeypatch.setattr(f"{module}.swollen", lambda *_: {})
    assert "each null of tier" in str(optimize_all(graph, tables=[TABLE]).failed)
    as_it_was(graph.open_pinned(entry_of(graph, TABLE)), "tier")
    assert_pins_are_heads(graph)


@AT_ONCE_OR_IN_ROUNDS
@pytest.mark.parametrize("stable", [True, False])
def test_a_plain_dataset_stays_readable(tmp_path: Path, stable: bool, small: int) -> None:
    path = tmp_path / "d.lance"
    one_note(path, stable=stable)
    before = tree_of(path)
    (stats,) = optimize_all(plain.opened(path, small_table_bytes=small)).tables
    assert (stats.error, stats.skipped, stats.committed) == (None, SkipReason.UNREADABLE, False)
    as_it_was(lance.dataset(str(path)), "note")
    assert {name for name in tree_of(path) if name.startswith("data/")} == {n for n in before if n.startswith("data/")}


def test_of_a_table_in_rounds_the_other_groups_are_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "d.lance"
    one_note(path)
    for load in range(2):
        rows = {"id": range(20_000), "note": [f"{load} {n}" for n in range(20_000)]}
        lance.write_dataset(pa.table(rows), str(path), mode="append")
    graph = plain.opened(path, small_table_bytes=0, target_rows_per_fragment=33_010)
    (stats,) = optimize_all(graph).tables
    assert (stats.error, stats.skipped, stats.fragments_removed) == (None, SkipReason.UNREADABLE, 2)
    assert [f.count_rows() for f in lance.dataset(str(path)).get_fragments()] == [*ROWS, 40_000]


@pytest.mark.slow
@pytest.mark.night("all but one")
@AT_ONCE_OR_IN_ROUNDS
def test_fragments_of_long_texts_are_merged_as_far_as_readers_can_hold_them(tmp_path: Path, small: int) -> None:
    path = tmp_path / "d.lance"
    sizes = random.Random(7)
    for load in range(12):
        texts = [sizes.randbytes(50_000).hex() * 10 for _ in range(100)]
        rows = {"id": range(load * 100, load * 100 + 100), "note": texts}
        lance.write_dataset(pa.table(rows), str(path), mode="append" if load else "create")
    graph = plain.opened(path, small_table_bytes=small)
    (stats,) = optimize_all(graph).tables
    assert (stats.error, stats.skipped, stats.fragments_removed) == (None, None, 12)
    merged = lance.dataset(str(path))
    assert [f.count_rows() for f in merged.get_fragments()] == [500, 500, 200]
    assert merged.to_table(columns=["id"]).column("id").to_pylist() == list(range(1200))
    (again,) = optimize_all(graph).tables
    assert not again.committed, "a second pass has nothing to do"
    assert health(graph).tables[0].small_fragments == 1


def test_fragments_are_divided_for_engines_that_ask_for_bytes(
    demo_graph: DemoGraph, stamp: int, tmp_path: Path
) -> None:
    assert policy_of(demo_graph(stamp=stamp, node_types=1, loads=1, rows=2)).reads_by_bytes is (stamp == 6)
    lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "d.lance"))
    assert not policy_of(plain.opened(tmp_path / "d.lance")).reads_by_bytes


@pytest.mark.slow
@pytest.mark.night("all but one")
@pytest.mark.parametrize(("small", "copy"), [(1 << 30, BinaryCopy.AUTO), (0, BinaryCopy.ALWAYS)])
def test_a_fragment_that_readers_cannot_read_is_divided(tmp_path: Path, small: int, copy: BinaryCopy) -> None:
    path, draw = tmp_path / "d.lance", random.Random(7)

    def rows() -> Iterator[pa.RecordBatch]:
        for start in range(0, 2_500, 100):
            notes = [draw.randbytes(10_000).hex() * 50 for _ in range(100)]
            yield pa.record_batch({"id": pa.array(range(start, start + 100)), "note": pa.array(notes)})

    schema = pa.schema({"id": pa.int64(), "note": pa.string()})
    dataset = lance.write_dataset(rows(), str(path), schema, data_storage_version="2.2", enable_stable_row_ids=True)
    assert len(dataset.get_fragments()) == 1
    dataset.delete("id < 300")
    graph = plain.opened(path, small_table_bytes=small, binary_copy=copy)
    (planned,) = plan_optimize(graph).tables
    assert "divide 1 fragment with more text than readers can read" in planned.reason
    (stats,) = optimize_all(graph).tables
    assert (stats.error, stats.skipped, stats.fragments_removed) == (None, None, 1)
    assert min(stats.fragments_added, planned.fragments_after) > 3
    healed = lance.dataset(str(path))
    assert healed.count_rows("length(note) = 1000000") == 2_200
    assert healed.to_table(columns=["id"]).column("id").to_pylist() == list(range(300, 2_500))
    (again,) = optimize_all(graph).tables
    assert not again.committed


@pytest.mark.slow
@pytest.mark.night("all but one")
@pytest.mark.parametrize(("texts", "version"), [(5, "2.2"), (400, "2.2")])
def test_texts_that_take_little_room_in_files_are_measured_once_they_are_merged(
    tmp_path: Path, texts: int, version: str
) -> None:
    path = tmp_path / "d.lance"
    part = pa.table({"note": [chr(97 + n % texts % 26) * (450_000 + n % texts) for n in range(400)]})
    for load in range(11):
        lance.write_dataset(part, str(path), mode="append" if load else "create", data_storage_version=version)
    said: list[str] = []
    (stats,) = optimize_all(plain.opened(path), progress=Lines(said.append)).tables
    assert (stats.error, stats.skipped, stats.committed) == (None, SkipReason.UNREADABLE, False)
    assert "merged, the texts of note would be more than a reader can hold" in str(said)
