"""Which results of a rewrite would make readers fail; none of these tests reads such a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import optimize

from omnigraph_ops.lance.gateway import Dataset, LanceFailure
from omnigraph_ops.lance.reader_limits import divided, most_task_bytes, refuse_swollen, swollen
from omnigraph_ops.lance.rewrites import RewriteResult, data_bytes
from omnigraph_ops.lance.tables import execute_task, plan_tasks
from tests.support.reader_limits import one_note

NULLS, FEW = 33_000, 10


def results(dataset: Dataset) -> list[str]:
    return [execute_task(dataset, task.payload) for task in plan_tasks(dataset, 1 << 20)]


def merging(path: Path, values: list[Any], kind: Any, version: str = "2.2") -> tuple[Dataset, list[str]]:
    """The merge of a fragment with these values and one that repeats the last of them, not committed."""
    for part in (pa.array(values, kind), pa.array(values[-1:] * NULLS, kind)):
        mode = "append" if path.exists() else "create"
        lance.write_dataset(pa.table({"v": part}), str(path), mode=mode, data_storage_version=version)
    dataset = lance.dataset(str(path))
    made = results(dataset)
    assert len(made) == 1
    return dataset, made


def merged(path: Path, values: list[Any], kind: Any) -> dict[int, str]:
    """What is said of that."""
    return swollen(*merging(path, values, kind))


def test_the_nulls_of_one_long_note_are_told_before_they_are_committed(tmp_path: Path) -> None:
    one_note(tmp_path / "d.lance")
    dataset = lance.dataset(str(tmp_path / "d.lance"))
    made = results(dataset)
    assert list(swollen(dataset, made)) == [0]
    with pytest.raises(LanceFailure, match=r"each null of note .* nothing was committed"):
        refuse_swollen(dataset, "table:d", made)


def test_another_note_makes_the_page_harmless(tmp_path: Path) -> None:
    one_note(tmp_path / "d.lance", other="short")
    dataset = lance.dataset(str(tmp_path / "d.lance"))
    assert swollen(dataset, results(dataset)) == {}


def one(value: Any) -> list[Any]:
    return [value] + [None] * (FEW - 1)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (one(b"h" * 70_000), pa.binary()),
        (one({"a": "h" * 70_000, "b": 1}), pa.struct({"a": pa.string(), "b": pa.int64()})),
        ([["h" * 70_000], [None]], pa.list_(pa.string())),
    ],
)
def test_bytes_and_nested_texts_count_as_well(tmp_path: Path, values: list[Any], kind: Any) -> None:
    assert merged(tmp_path / "d.lance", values, kind)[0].startswith("each null of v would")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (one(["h" * 70_000]), pa.list_(pa.string())),
        (one(b"h" * 70_000), pa.large_binary()),
        (one("h" * 500), pa.string()),
        ([None], pa.string()),
    ],
)
def test_what_readers_can_hold_is_no_matter(tmp_path: Path, values: list[Any], kind: Any) -> None:
    assert merged(tmp_path / "d.lance", values, kind) == {}, "null lists hold no text, wide offsets do not overflow"


@pytest.mark.parametrize(("size", "version"), [(70_000, "2.1"), (5_000, "2.2")], ids=["older_format", "small_table"])
def test_no_footer_is_read_where_none_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, version: str
) -> None:
    dataset, made = merging(tmp_path / "d.lance", one("h" * size), pa.string(), version)
    monkeypatch.setattr("omnigraph_ops.lance.reader_limits.LanceFileReader", None)
    assert swollen(dataset, made) == {}


def test_of_several_results_those_are_kept_that_fit_together(tmp_path: Path) -> None:
    path = str(tmp_path / "d.lance")
    for load in range(6):
        notes = pa.array(one("h" * 40_000) if load % 2 else [None] * 16_000, pa.string())
        mode = "append" if load else "create"
        lance.write_dataset(pa.table({"note": notes}), path, mode=mode, data_storage_version="2.2")
    dataset = lance.dataset(path)
    made = [execute_task(dataset, task.payload) for task in plan_tasks(dataset, 16_010)]
    assert len(made) == 3, "each takes 0.6 GB"
    assert set(swollen(dataset, made)) == {1, 2}
    optimize.Compaction.commit(dataset, [RewriteResult.from_json(made[0])])
    now = lance.dataset(path)
    assert set(swollen(now, made[1:])) == {0, 1}, "what is committed stays"


def loads(path: Path, *parts: Any, version: str = "2.2") -> Dataset:
    """A dataset with a fragment of each of these arrays."""
    for part in parts:
        mode = "append" if path.exists() else "create"
        lance.write_dataset(pa.table({"v": part}), str(path), mode=mode, data_storage_version=version)
    return lance.dataset(str(path))


@pytest.mark.parametrize("rows", [10, 5_000], ids=["few", "many"])
def test_files_of_the_oldest_format_are_rewritten(tmp_path: Path, rows: int) -> None:
    dataset = loads(tmp_path / "d.lance", *[random_texts(rows, 100)] * 3, version="legacy")
    made = results(dataset)
    assert (len(made), swollen(dataset, made), most_task_bytes(dataset)) == (1, {}, None)


def random_texts(rows: int, size: int) -> pa.Array:
    letters = np.random.default_rng(rows).integers(32, 127, (rows, size), dtype=np.uint8)
    return pa.array([row.tobytes().decode() for row in letters])


@pytest.mark.parametrize(("rows", "length"), [(20, 500_000), (200, 20_000), (600, 3_000)])
def test_what_becomes_one_fragment_is_bound_where_texts_are_long(tmp_path: Path, rows: int, length: int) -> None:
    dataset = loads(tmp_path / "d.lance", random_texts(rows, length), random_texts(rows + 10, length))
    bound = most_task_bytes(dataset)
    assert bound is not None
    assert 2**28 < bound < 2**29 + 2**20, "what is stored is hardly shorter than half a GiB of texts"


def test_a_fragment_is_divided_for_readers_that_ask_for_bytes_only_where_there_are_any(tmp_path: Path) -> None:
    dataset = loads(tmp_path / "d.lance", random_texts(20_000, 100))
    (fragment,) = dataset.get_fragments()
    most = data_bytes(fragment.metadata) // 5
    assert divided(dataset, most, by_bytes=False) == {}, "8,192 rows of it fit into an array"
    assert divided(dataset, most, by_bytes=True).keys() == {fragment.fragment_id}


@pytest.mark.slow
def test_a_fragment_that_is_rewritten_alone_is_not_held_back(tmp_path: Path) -> None:
    batch = pa.record_batch({"v": pa.array(["h" * 70_000] * 1_000)})
    path = str(tmp_path / "d.lance")
    lance.write_dataset(iter([batch] * 33), path, batch.schema, data_storage_version="2.2")
    dataset = lance.dataset(path)
    (task,) = plan_tasks(dataset, 1 << 20, deleted_share=-1.0)
    made = [execute_task(dataset, task.payload)]
    assert swollen(dataset, made) == {}, "readers had it before"


def test_rows_are_not_bound_by_vectors_or_by_short_texts(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(np.random.default_rng(1).random(20 * 200_000, np.float32), 200_000)
    assert most_task_bytes(loads(tmp_path / "vectors.lance", vectors, vectors)) is None
    assert most_task_bytes(loads(tmp_path / "short.lance", *[random_texts(1_000, 1_500)] * 2)) is None
    assert most_task_bytes(loads(tmp_path / "few.lance", random_texts(10, 50_000))) is None
