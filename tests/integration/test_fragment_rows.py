"""The rows of a dataset that is read after every commit are those that Lance reads, however it changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.publish import publish
from omnigraph_ops.lance.fragment_rows import FragmentRows
from tests.conftest import DemoGraph
from tests.support.edges import nothing, when_asked


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = str(tmp_path / "rows.lance")
    for start in (0, 10, 20):
        lance.write_dataset(numbers(start), path, mode="append" if start else "create", enable_stable_row_ids=True)
    return path


def numbers(start: int, count: int = 10) -> pa.Table:
    return pa.table({"n": range(start, start + count), "text": [f"t{n}" for n in range(start, start + count)]})


def same(rows: FragmentRows, dataset: lance.LanceDataset) -> bool:
    found = rows.of(dataset)
    return bool(found.equals(dataset.to_table().combine_chunks()) and found.schema == dataset.schema)


def test_it_follows_appends_deletes_updates_merges_and_compaction(place: str) -> None:
    rows, dataset = FragmentRows(), lance.dataset(place)
    assert same(rows, dataset)
    lance.write_dataset(numbers(30), dataset, mode="append")
    assert same(rows, lance.dataset(place))
    dataset = lance.dataset(place)
    dataset.delete("n = 12")
    assert same(rows, dataset)
    dataset.delete("n < 10")
    assert same(rows, dataset), "a fragment without rows"
    dataset.update({"text": "'new'"}, where="n = 13")
    assert same(rows, dataset)
    merge = dataset.merge_insert(["n"]).when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"n": [14, 99], "text": ["x", "y"]}))
    assert same(rows, dataset)
    dataset.optimize.compact_files()
    assert same(rows, dataset)
    dataset.add_columns({"more": "n * 2"})
    assert same(rows, dataset)


def test_another_row_deleted_after_a_restore_is_another_fragment(place: str) -> None:
    rows, dataset = FragmentRows(), lance.dataset(place)
    before = dataset.version
    dataset.delete("n = 12")
    assert same(rows, dataset)
    lance.dataset(place, version=before).restore()
    dataset = lance.dataset(place)
    dataset.delete("n = 13")
    assert same(rows, dataset)


def test_branches_take_turns_with_main(place: str) -> None:
    rows, dataset = FragmentRows(), lance.dataset(place)
    branch = dataset.create_branch("b")
    lance.write_dataset(numbers(100), branch, mode="append")
    lance.write_dataset(numbers(200), dataset, mode="append")
    for _ in range(2):
        assert same(rows, lance.dataset(place).checkout_version(("b", None)))
        assert same(rows, lance.dataset(place))


def test_branches_are_kept_as_far_as_they_are_not_too_many_bytes(place: str) -> None:
    dataset = lance.dataset(place)
    dataset.create_branch("b")
    branch = dataset.checkout_version(("b", None))
    size = dataset.to_table().nbytes
    for most, kept in ((2 * size, True), (2 * size - 1, False)):
        rows = FragmentRows(most_bytes=most)
        first = rows.of(dataset)
        assert rows.of(branch, "b").equals(first)
        assert (rows.of(lance.dataset(place)) is first) is kept


@pytest.mark.slow
def test_a_state_is_decoded_once(demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=6, lazy_branches=1)
    (branch,) = graph.branches()
    before = [graph.state(), graph.state(branch)]
    assert [graph.state(), graph.state(branch)] == before
    assert graph.state() is before[0]
    assert graph.state(branch) is before[1]
    person = graph.published("node:Person")
    assert person is not None
    assert graph.published("node:Person") is person
    assert graph.published("edge:Knows") != person
    published = publish(graph, (), actor=None)
    assert graph.state().manifest_version == published.manifest_version


def test_a_dataset_without_rows(tmp_path: Path) -> None:
    dataset = lance.write_dataset(numbers(0, 0), str(tmp_path / "none.lance"))
    assert same(FragmentRows(), dataset)


def test_a_branch_that_was_made_anew_has_other_rows_at_the_same_version(place: str) -> None:
    rows, dataset = FragmentRows(), lance.dataset(place)
    for start in (100, 200):
        branch = dataset.create_branch("b")
        lance.write_dataset(numbers(start), branch, mode="append")
        assert same(rows, dataset.checkout_version(("b", None)))
        dataset.branches.delete("b")


def test_a_version_is_looked_at_once(place: str) -> None:
    rows, dataset = FragmentRows(), lance.dataset(place)
    assert rows.of(dataset) is rows.of(lance.dataset(place))
    lance.write_dataset(numbers(30), dataset, mode="append")
    assert rows.of(lance.dataset(place)).num_rows == 40


@pytest.mark.slow
def test_a_graph_that_was_restored_in_its_place_is_another_one_at_the_same_version(
    demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph, backup = demo_graph(stamp=6), tmp_path / "backup"
    shutil.copytree(graph.uri, backup)
    publish(graph, (), actor=None)
    before = graph.state()
    shutil.rmtree(graph.uri)
    shutil.copytree(backup, graph.uri)
    published = publish(open_graph(graph.uri), (), actor=None)
    assert published.manifest_version == before.manifest_version
    assert graph.state().head_commit_id == published.commit_id


def test_each_fragment_is_read_once(place: str) -> None:
    rows, dataset = FragmentRows(), lance.dataset(place)
    assert same(rows, dataset)
    read = list(Path(place, "data").iterdir())
    lance.write_dataset(numbers(30), dataset, mode="append")
    expected = lance.dataset(place).to_table()
    for file in read:
        file.unlink()
    assert rows.of(lance.dataset(place)).equals(expected)


def test_many_bytes_are_not_kept(place: str) -> None:
    rows = FragmentRows(most_bytes=10)
    assert same(rows, lance.dataset(place))
    for file in Path(place, "data").iterdir():
        file.unlink()
    with pytest.raises(pa.ArrowInvalid):
        rows.of(lance.dataset(place))


def test_each_fragment_is_looked_at_once_however_many_versions_share_it(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old versions of a graph are read one after another, and each has all fragments of the one before."""
    for start in range(30, 130, 10):
        lance.write_dataset(numbers(start), place, mode="append")
    rows, versions = FragmentRows(), [lance.dataset(place, version=n) for n in range(1, 14)]
    looked_at = when_asked(monkeypatch, lance.LanceFragment, "__init__", nothing, times=None)
    assert [rows.of(dataset).num_rows for dataset in versions] == list(range(10, 140, 10))
    assert len(looked_at) <= 2 * len(versions), "pylance makes two objects of one that is named by its id"


def test_what_a_version_shares_with_the_one_before_is_not_joined_again(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(30, 130, 10):
        lance.write_dataset(numbers(start), place, mode="append")
    rows, real, joined = FragmentRows(), pa.concat_tables, list[int]()

    def noted(tables: Iterable[pa.Table]) -> pa.Table:
        parts = list(tables)
        joined.append(len(parts))
        return real(parts)

    monkeypatch.setattr(pa, "concat_tables", noted)
    for version in [*range(1, 14), 5, 13, 1]:
        dataset = lance.dataset(place, version=version)
        assert rows.of(dataset).equals(dataset.to_table().combine_chunks())
    assert max(joined[:13]) == 2
