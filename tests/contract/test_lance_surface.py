"""What this project relies on in pylance 13, one behaviour per test. A new pin starts here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.optimize import Compaction

from omnigraph_ops.graph.lance_manifest import (
    UnreadableTransaction,
    manifest_message,
    version_record,
    with_message,
)
from omnigraph_ops.graph.layout import manifest_file_name
from omnigraph_ops.lance.fragment_rows import fragment_id, fragments_in
from omnigraph_ops.lance.gateway import CommitConflict, CommitContention, lance_errors
from omnigraph_ops.storage.store import Storage

KEY = {b"lance-schema:unenforced-primary-key": b"true"}
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False, metadata=KEY), pa.field("n", pa.int64())])
VECTORS = pa.schema([pa.field("id", pa.string()), pa.field("v", pa.list_(pa.float32(), 4))])


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": [f"r{n}" for n in numbers], "n": list(numbers)}, schema=SCHEMA)


def vectors(first: int, count: int) -> pa.Table:
    values = [[float(n), 0.0, 1.0, float(n % 7)] for n in range(first, first + count)]
    return pa.table({"id": [f"r{n}" for n in range(first, first + count)], "v": values}, schema=VECTORS)


def dataset_of(folder: Path, parts: Sequence[pa.Table]) -> lance.LanceDataset:
    uri, mode = str(folder / "t"), "create"
    for part in parts:
        lance.write_dataset(part, uri, mode=mode, enable_stable_row_ids=True, data_storage_version="2.2")
        mode = "append"
    return lance.dataset(uri)


def ten(folder: Path, count: int = 5) -> lance.LanceDataset:
    return dataset_of(folder, [rows(n * 10, 10) for n in range(count)])


def versions(uri: str) -> list[int]:
    return [v["version"] for v in lance.dataset(uri).versions()]


def results(dataset: lance.LanceDataset) -> list[Any]:
    return [task.execute(dataset) for task in Compaction.plan(dataset, {}).tasks]


def test_the_pin() -> None:
    assert lance.__version__ == "13.0.0"


@pytest.mark.parametrize("wanted", [[2], [1, 3], [1, 2, 3, 4]])
def test_cleanup_of_named_versions_removes_exactly_those_however_young(tmp_path: Path, wanted: list[int]) -> None:
    dataset = ten(tmp_path)
    dataset.delete("n < 3")
    explained = dataset.explain_cleanup_old_versions(versions=wanted, error_if_tagged_old_versions=False)
    assert versions(dataset.uri) == [1, 2, 3, 4, 5, 6]
    removed = dataset.cleanup_old_versions(versions=wanted, delete_unverified=False, error_if_tagged_old_versions=False)
    assert versions(dataset.uri) == [v for v in range(1, 7) if v not in wanted]
    assert (removed.old_versions, removed.bytes_removed) == (len(wanted), explained.stats.bytes_removed)
    assert lance.dataset(dataset.uri).count_rows() == 47


def test_cleanup_of_named_versions_spares_tags_branch_points_and_unverified_files(tmp_path: Path) -> None:
    dataset = ten(tmp_path)
    dataset.tags.create("hold", 2)
    dataset.create_branch("b", 3)
    orphan = Path(dataset.uri, "data", "orphan.lance")
    orphan.write_bytes(b"of a write in progress")
    dataset.cleanup_old_versions(versions=[1, 2, 3, 4], delete_unverified=False, error_if_tagged_old_versions=False)
    assert versions(dataset.uri) == [2, 3, 5]
    assert orphan.exists()
    assert dataset.checkout_version(("b", None)).count_rows() == 30


def test_merge_insert_moves_its_handle_to_its_own_version(tmp_path: Path) -> None:
    dataset = ten(tmp_path, 1)
    lance.dataset(dataset.uri).update_config({"somebody": "else"})
    merge(dataset, rows(200, 1))
    assert dataset.version == lance.dataset(dataset.uri).version == 3
    assert dataset.count_rows() == 11


def merge(dataset: lance.LanceDataset, new: pa.Table) -> None:
    with lance_errors("merge"):
        (
            dataset.merge_insert(["id"])
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .conflict_retries(0)
            .use_index(False)
            .execute(new)
        )


def test_a_lost_swap_is_contention_and_leaves_nothing(tmp_path: Path) -> None:
    left = ten(tmp_path, 1)
    right = lance.dataset(left.uri)
    merge(left, rows(50, 1))
    with pytest.raises(CommitContention):
        merge(right, rows(50, 1))
    assert versions(left.uri) == [1, 2]
    assert lance.dataset(left.uri).count_rows() == 11


def test_a_compaction_is_reserve_fragments_then_rewrite(tmp_path: Path) -> None:
    dataset = ten(tmp_path)
    Compaction.commit(dataset, results(dataset))
    storage = Storage(str(tmp_path))
    assert [version_record(storage, "t", v).operation for v in (6, 7)] == ["ReserveFragments", "Rewrite"]
    assert versions(dataset.uri) == [1, 2, 3, 4, 5, 6, 7]


def test_a_failed_commit_leaves_its_reserve_fragments_version(tmp_path: Path) -> None:
    dataset = ten(tmp_path)
    done = results(dataset)
    lance.dataset(dataset.uri).delete("n = 1")
    with pytest.raises(CommitConflict), lance_errors("commit"):
        Compaction.commit(dataset, done)
    storage = Storage(str(tmp_path))
    assert [version_record(storage, "t", v).operation for v in (6, 7)] == ["Delete", "ReserveFragments"]
    assert lance.dataset(dataset.uri).count_rows() == 49


def test_an_operation_that_nobody_knows_is_never_taken_for_another(tmp_path: Path) -> None:
    ten(tmp_path)
    storage, name = Storage(str(tmp_path)), f"t/_versions/{manifest_file_name(1)}"
    message = manifest_message(storage.read(name))
    message.ClearField("transaction_section")
    message.transaction_file = "later.txn"
    storage.write(name, with_message(storage.read(name), message))
    storage.write("t/_transactions/later.txn", b"\xf2\x09\x00")
    assert version_record(storage, "t", 1).operation == "Unknown(158)"
    storage.write("t/_transactions/later.txn", b"\xa2\x06\x00\xaa\x06\x00")
    with pytest.raises(UnreadableTransaction, match="expected one operation, found 2"):
        version_record(storage, "t", 1)


def test_committing_twice_is_refused_and_the_live_files_stay(tmp_path: Path) -> None:
    dataset = ten(tmp_path)
    done = results(dataset)
    Compaction.commit(dataset, done)
    with pytest.raises(CommitConflict), lance_errors("commit again"):
        Compaction.commit(lance.dataset(dataset.uri), done)
    assert lance.dataset(dataset.uri).to_table().num_rows == 50


def test_a_rewrite_survives_a_concurrent_append(tmp_path: Path) -> None:
    dataset = ten(tmp_path)
    done = results(dataset)
    lance.write_dataset(rows(900, 1), dataset.uri, mode="append")
    Compaction.commit(dataset, done)
    assert lance.dataset(dataset.uri).count_rows() == 51


def test_fragments_are_ordered_by_id_so_a_rewrite_moves_behind_what_it_did_not_touch(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, [rows(0, 10), rows(10, 10), rows(20, 100)])
    dataset.optimize.compact_files(target_rows_per_fragment=50)
    assert [f.count_rows() for f in dataset.get_fragments()] == [100, 20]
    found = dataset.to_table(with_row_id=True, scan_in_order=True)
    assert found.column("n").to_pylist() == [*range(20, 120), *range(20)]
    assert found.column("_rowid").to_pylist() == found.column("n").to_pylist()


def test_scalar_indexes_are_of_the_version_that_both_engines_read(tmp_path: Path) -> None:
    dataset = ten(tmp_path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("id", "INVERTED", name="text")
    lance.write_dataset(rows(500, 5), dataset.uri, mode="append")
    dataset = lance.dataset(dataset.uri)
    dataset.optimize.optimize_indices()
    found = {i.name: {s.index_version for s in i.segments} for i in lance.dataset(dataset.uri).describe_indices()}
    assert found == {"id_idx": {0}, "text": {2}}


@pytest.mark.parametrize("segments", [1, 2, 4])
def test_merging_all_segments_leaves_one_that_covers_everything(tmp_path: Path, segments: int) -> None:
    dataset = dataset_of(tmp_path, [vectors(0, 50)])
    dataset.create_index("v", "IVF_FLAT", name="v_idx", metric="L2", num_partitions=1)
    for number in range(1, segments):
        lance.write_dataset(vectors(number * 50, 50), dataset.uri, mode="append")
        dataset = lance.dataset(dataset.uri)
        dataset.optimize.optimize_indices(index_names=["v_idx"], num_indices_to_merge=0)
    assert shape(dataset.uri) == (segments, set(range(segments)))
    lance.write_dataset(vectors(900, 5), dataset.uri, mode="append")
    dataset = lance.dataset(dataset.uri)
    before = dataset.version
    dataset.optimize.optimize_indices(index_names=["v_idx"], num_indices_to_merge=segments)
    assert shape(dataset.uri) == (1, set(range(segments + 1)))
    assert lance.dataset(dataset.uri).version == before + 1


def shape(uri: str) -> tuple[int, set[int]]:
    (index,) = lance.dataset(uri).describe_indices()
    return len(index.segments), {f for s in index.segments for f in s.fragment_ids}


def test_compaction_keeps_stable_row_ids_and_index_coverage(tmp_path: Path) -> None:
    dataset = ten(tmp_path)
    dataset.create_scalar_index("n", "BTREE", name="n_idx")
    dataset.delete("n % 10 = 3")
    before = dataset.to_table(with_row_id=True)
    dataset.optimize.compact_files()
    after = lance.dataset(dataset.uri)
    assert after.to_table(with_row_id=True) == before
    assert shape(dataset.uri)[1] >= {f.fragment_id for f in after.get_fragments()}


def test_a_missing_dataset_version_or_branch_is_told_apart(tmp_path: Path) -> None:
    from omnigraph_ops.lance.gateway import DatasetMissing, LanceGateway

    uri = ten(tmp_path, 1).uri
    gateway = LanceGateway(None)
    for arguments in ({"uri": str(tmp_path / "no")}, {"uri": uri, "version": 9}, {"uri": uri, "branch": "no"}):
        with pytest.raises(DatasetMissing):
            gateway.open(**arguments)


def test_a_referenced_parent_branch_is_not_deleted(tmp_path: Path) -> None:
    dataset = ten(tmp_path, 1)
    dataset.create_branch("a")
    dataset.checkout_version(("a", None)).create_branch("a/b")
    with pytest.raises(OSError, match="referenced"):
        dataset.branches.delete("a")
    assert set(dataset.branches.list()) == {"a", "a/b"}


def test_commit_times_are_whole_nanoseconds_since_the_epoch(tmp_path: Path) -> None:
    # `versions()` makes naive local times of them, which an hour that is repeated makes ambiguous.
    before = time.time_ns()
    dataset = dataset_of(tmp_path, [rows(0, 1), rows(1, 1)])
    listed: Any = dataset._ds.versions()
    assert [v["version"] for v in listed] == [1, 2]
    for version in listed:
        assert type(version["timestamp"]) is int
        assert before <= version["timestamp"] <= time.time_ns()
        recorded = version_record(Storage(str(tmp_path)), "t", version["version"]).committed_at_us
        assert recorded == version["timestamp"] // 1000


def test_the_message_of_a_manifest_tells_a_fragment_that_changed_from_one_that_did_not(tmp_path: Path) -> None:
    dataset = ten(tmp_path)

    def described() -> dict[int, bytes]:
        fragments = fragments_in(dataset._ds.serialized_manifest())
        assert len(fragments) == dataset._ds.count_fragments()
        found = {fragment_id(fragment): fragment for fragment in fragments}
        assert list(found) == [fragment.fragment_id for fragment in dataset.get_fragments()]
        return found

    before = described()
    dataset.delete("n = 12")
    after = described()
    assert {number for number in after if after[number] != before[number]} == {1}
    dataset.delete("n = 13")
    assert {number for number, said in described().items() if said != after[number]} == {1}
    dataset.insert(rows(100, 10))
    assert {number: said for number, said in described().items() if number in before and number != 1} == {
        number: said for number, said in before.items() if number != 1
    }
    dataset.optimize.compact_files()
    assert not set(described().values()) & {*before.values(), *after.values()}
