"""Row ids of what a compaction made, as every Lance masks them right."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph_ops.lance.row_ids import RowIdSegment, RowIdSequence, safe_row_ids, with_safe_row_ids

# The stubs of pylance 13 lack some of their methods.
Compaction: Any = lance.optimize.Compaction
RewriteResult: Any = lance.optimize.RewriteResult
KINDS = ("range", "range_with_holes", "range_with_bitmap", "sorted_array", "array")
WIDTHS = {"u16_array": 16, "u32_array": 32, "u64_array": 64}


def packed(ids: list[int], width: str) -> dict[str, object]:
    base = 0 if width == "u64_array" else min(ids, default=0)
    offsets = np.array([number - base for number in ids], f"<u{WIDTHS[width] // 8}")
    return {width: {"base": base, "content": offsets.tobytes()}}


def segment(kind: str, ids: list[int], width: str = "u64_array") -> object:
    if kind in ("array", "sorted_array"):
        return RowIdSegment(**{kind: packed(ids, width)})
    ends = {"start": ids[0], "end": ids[-1] + 1}
    span, held = range(ids[0], ids[-1] + 1), set(ids)
    if kind == "range_with_holes":
        return RowIdSegment(range_with_holes={**ends, "holes": packed([i for i in span if i not in held], width)})
    if kind == "range_with_bitmap":
        bits = np.packbits([i in held for i in span], bitorder="little")
        return RowIdSegment(range_with_bitmap={**ends, "bitmap": bits.tobytes()})
    assert list(span) == ids
    return RowIdSegment(range=ends)


def written(*segments: object) -> bytes:
    return bytes(RowIdSequence(segments=segments).SerializeToString())


def numbers(array: Any) -> list[int]:
    ((kind, found),) = array.ListFields()
    width = WIDTHS[kind.name] // 8
    content = found.content
    return [found.base + int.from_bytes(content[i : i + width], "little") for i in range(0, len(content), width)]


def read(data: bytes) -> list[tuple[str, list[int], set[int]]]:
    """Of each segment its kind, its row ids, and those that it says are missing between its first and last."""
    found = []
    for each in RowIdSequence.FromString(data).segments:
        ((kind, value),) = each.ListFields()
        if kind.name in ("array", "sorted_array"):
            found.append((kind.name, numbers(value), set()))
            continue
        span = range(value.start, value.end)
        gaps: set[int] = set()
        if kind.name == "range_with_holes":
            gaps = set(numbers(value.holes))
        elif kind.name == "range_with_bitmap":
            gaps = {i for n, i in enumerate(span) if not value.bitmap[n // 8] >> n % 8 & 1}
        found.append((kind.name, [i for i in span if i not in gaps], gaps))
    return found


def assert_safe(before: bytes, after: bytes) -> None:
    """No segment has a gap where an earlier one has a row, nor has one when Lance writes it without some of its rows.

    Of what is left of a list it makes a segment with gaps; what is left of a range has gaps that were its own.
    """
    assert [i for _, ids, _ in read(after) for i in ids] == [i for _, ids, _ in read(before) for i in ids]
    earlier: set[int] = set()
    for kind, ids, _ in read(after):
        assert kind == "range" or not any(min(ids) < number < max(ids) for number in earlier)
        earlier.update(ids)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["range_with_holes", "range_with_bitmap", "sorted_array", "array"])
def test_a_gap_where_an_earlier_segment_has_a_row_is_gone(kind: str, width: str) -> None:
    before = written(segment("range", [47, 48]), segment(kind, [44, 45, 46, 49], width))
    after = safe_row_ids(before)
    assert_safe(before, after)
    assert not any(gaps for _, _, gaps in read(after))


def test_runs_become_ranges_and_with_too_many_of_them_all_is_one_list() -> None:
    runs, scattered = [*range(100), *range(200, 300)], [*range(0, 2**17 + 2, 2)]
    for ids, kinds in ((runs, ["array", "range", "range"]), (scattered, ["array"])):
        before = written(segment("array", [101]), segment("range_with_bitmap", ids))
        assert_safe(before, safe_row_ids(before))
        assert [kind for kind, _, _ in read(safe_row_ids(before))] == kinds


@pytest.mark.parametrize(("apart", "width"), [(2**20, "u32_array"), (2**32, "u64_array")])
def test_one_list_of_all_is_as_narrow_as_its_ids_allow(apart: int, width: str) -> None:
    before = written(
        segment("array", [1000 + apart, 1002]), segment("sorted_array", [*range(1000, 2**19, 4), 2**19 + 1])
    )
    after = safe_row_ids(before)
    assert_safe(before, after)
    (only,) = RowIdSequence.FromString(after).segments
    ((kind, _),) = only.array.ListFields()
    assert kind.name == width


@pytest.mark.parametrize("kind", ["range_with_holes", "range_with_bitmap", "sorted_array"])
def test_what_no_reader_takes_wrong_stays(kind: str) -> None:
    gapped = segment(kind, [44, 45, 46, 49])
    untouched = [written(), written(gapped), written(gapped, segment("range", [47, 48]))]
    untouched.append(written(segment("array", [43, 50, 7]), gapped, segment("range", [47, 48])))
    for before in untouched:
        assert safe_row_ids(before) == before


@pytest.mark.parametrize("kind", ["range_with_holes", "range_with_bitmap", "sorted_array", "array"])
def test_a_gap_where_another_fragment_has_a_row_is_gone(kind: str) -> None:
    before = written(segment("range", [7, 8, 9]), segment(kind, [44, 45, 46, 49]))
    assert safe_row_ids(before, [(10, 43), (50, 60)]) == before
    after = safe_row_ids(before, [(10, 43), (46, 60)])
    assert_safe(before, after)
    assert {kind for kind, _, _ in read(after)} == {"range"}
    scattered = written(segment(kind, list(range(0, 2**17 + 2, 2)), "u32_array"))
    assert safe_row_ids(scattered, [(0, 9)]) == scattered, "too many"


def test_any_sequence_keeps_its_ids_and_loses_its_unsafe_gaps() -> None:
    draw = random.Random(11)
    for _ in range(300):
        ids = draw.sample(range(draw.choice([60, 400])), 40)
        ends = sorted(draw.sample(range(1, 40), draw.randrange(6)))
        parts = [ids[start:end] for start, end in pairwise([0, *ends, 40])]
        before = written(*(drawn(draw, part) for part in parts))
        assert_safe(before, safe_row_ids(before))
        assert safe_row_ids(safe_row_ids(before)) == safe_row_ids(before)


def drawn(draw: random.Random, ids: list[int]) -> object:
    kind, width = draw.choice(KINDS), draw.choice(list(WIDTHS))
    if kind != "array":
        ids = sorted(ids)
    if kind == "range":
        ids = [ids[0]]
    return segment(kind, ids, width)


def test_a_compaction_of_updated_rows_keeps_their_ids(tmp_path: Path) -> None:
    """Lance makes of the updated rows of a later fragment a segment with gaps that are rows of an earlier one."""
    rows = pa.table({"id": pa.array(range(60)), "v": pa.array(range(60))})
    dataset = lance.write_dataset(rows, tmp_path / "t.lance", enable_stable_row_ids=True)
    for ids in (range(10, 20), [4, 5, 30, 33, 34, 35, 39, 41], range(30, 33), [6, 7, 9, *range(21, 26)]):
        updated = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([-1] * len(ids), pa.int64())})
        dataset.merge_insert("id").when_matched_update_all().execute(updated)
    (task,) = Compaction.plan(dataset, {"target_rows_per_fragment": 1_000_000}).tasks
    result = task.execute(dataset).json()
    ((before,), (after,)) = (inline(result), inline(with_safe_row_ids(result)))
    with pytest.raises(AssertionError):
        assert_safe(before, before)
    assert_safe(before, after)
    kept = [i for _, ids, _ in read(after) for i in ids]
    Compaction.commit(dataset, [RewriteResult.from_json(with_safe_row_ids(result))])
    assert lance.dataset(dataset.uri).to_table(with_row_id=True)["_rowid"].to_pylist() == kept


def test_gaps_go_where_a_fragment_that_stays_has_rows(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(60)), "v": pa.array(range(60))})
    dataset = lance.write_dataset(rows, tmp_path / "t.lance", enable_stable_row_ids=True)
    for ids in ([4, 5, 30, 39], [41, 43, 44, 47]):
        updated = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([-1] * 4, pa.int64())})
        dataset.merge_insert("id").when_matched_update_all().execute(updated)
    options = {"target_rows_per_fragment": 1_000_000, "excluded_fragment_ids": [0]}
    (task,) = Compaction.plan(dataset, options).tasks
    result = task.execute(dataset).json()
    assert inline(with_safe_row_ids(result)) == inline(result)
    (after,) = inline(with_safe_row_ids(result, [f.metadata for f in dataset.get_fragments()]))
    assert {kind for kind, _, _ in read(after)} == {"range"}
    assert [i for _, ids, _ in read(after) for i in ids] == [i for _, ids, _ in read(inline(result)[0]) for i in ids]


def inline(result: str) -> list[bytes]:
    return [bytes(fragment["row_id_meta"]["Inline"]) for fragment in json.loads(result)["new_fragments"]]


def test_fragments_without_row_ids_stay(tmp_path: Path) -> None:
    for mode in ("create", "append"):
        dataset = lance.write_dataset(pa.table({"v": [1]}), tmp_path / "t.lance", mode=mode)
    (task,) = Compaction.plan(dataset, {}).tasks
    result = task.execute(dataset).json()
    assert json.loads(with_safe_row_ids(result)) == json.loads(result)
