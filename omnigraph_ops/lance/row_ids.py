"""Row ids of compaction results, written so that the Lance of every engine masks them right.

A fragment that was made of several has the row ids of each as a segment, and most kinds of segment say which ids
between their first and last are missing. Before Lance 9 (rust/lance-table/src/rowids.rs, `From<&RowIdSequence>`) a
reader that masks deleted rows takes these gaps out of what earlier segments named. An updated row keeps its id, so
after any compaction of updated rows indexed searches lost hits, and a merge by key inserted rows a second time. A list
has no gaps, but its rest has when an engine rewrites the fragment without the rows that were deleted since. Where it
merges the fragment with others, their rows are the earlier ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph_ops.lance.gateway import BYTES, MANY, NUMBER, message_classes

_MADE = message_classes(
    "omnigraph_ops.row_ids",
    {
        "Sequence": {"segments": (1, "Segment", MANY)},
        "Segment": {
            "range": (1, "Range"),
            "range_with_holes": (2, "RangeWithHoles"),
            "range_with_bitmap": (3, "RangeWithBitmap"),
            "sorted_array": (4, "Numbers"),
            "array": (5, "Numbers"),
        },
        "Range": {"start": (1, NUMBER), "end": (2, NUMBER)},
        "RangeWithHoles": {"start": (1, NUMBER), "end": (2, NUMBER), "holes": (3, "Numbers")},
        "RangeWithBitmap": {"start": (1, NUMBER), "end": (2, NUMBER), "bitmap": (3, BYTES)},
        "Numbers": {"u16_array": (1, "Packed"), "u32_array": (2, "Packed"), "u64_array": (3, "Packed")},
        "Packed": {"base": (1, NUMBER), "content": (2, BYTES)},
    },
)
"""Of Lance's rowids.proto."""
RowIdSequence, RowIdSegment = _MADE["Sequence"], _MADE["Segment"]
_WIDTHS = {"u16_array": "<u2", "u32_array": "<u4", "u64_array": "<u8"}
_BYTES_OF_A_RANGE = 12
_MOST_RANGES = 2**14
"""Of a fragment: each manifest has the row ids of all of them."""
Ids = npt.NDArray[np.uint64]


def with_safe_row_ids(result: str, fragments: Iterable[Any] = ()) -> str:
    """A compaction result whose fragments list their row ids so that every Lance keeps them; the same ids. Pure.

    Args:
        fragments: of the table. An engine may merge those that stay with what was made, and behind them.
    """
    found = json.loads(result)
    written = ((fragment.get("row_id_meta") or {}).get("Inline") for fragment in found["new_fragments"])
    made = {number: bytes(ids) for number, ids in enumerate(written) if ids is not None}
    spans: list[tuple[int, int]] = []
    if any(not segment.HasField("range") for ids in made.values() for segment in _segments(ids)):
        gone = {int(fragment["id"]) for fragment in found["original_fragments"]}
        others = (f.row_id_meta.asdict().get("Inline") for f in fragments if f.row_id_meta and int(f.id) not in gone)
        spans += (span for ids in others if ids is not None for span in _spans(bytes(ids)))
    for number, ids in made.items():
        found["new_fragments"][number]["row_id_meta"] = {"Inline": list(safe_row_ids(ids, spans))}
        spans += _spans(ids)
    return json.dumps(found)


def _segments(written: bytes) -> Sequence[Any]:
    segments: Sequence[Any] = RowIdSequence.FromString(written).segments
    return segments


def _spans(written: bytes) -> Iterator[tuple[int, int]]:
    """The first and the last row id of each segment. Pure."""
    for segment in _segments(written):
        ((kind, value),) = segment.ListFields()
        if kind.name not in ("array", "sorted_array"):
            yield int(value.start), int(value.end) - 1
        elif len(ids := _numbers(value)):
            yield int(ids.min()), int(ids.max())


def safe_row_ids(written: bytes, others: Sequence[tuple[int, int]] = ()) -> bytes:
    """The same row ids in the same order, without a segment that has or gets gaps where an earlier one has rows. Pure.

    Only a range gets no such gap: what is deleted of it later was its own.

    Args:
        others: first and last row ids of segments that may come to lie before these.
    """
    segments = _segments(written)
    values = [_values(segment) for segment in segments]
    unsafe = set(_unsafe(segments, values))
    ends = {number: _breaks(values[number]) for number in unsafe | set(_crossing(segments, values, others))}
    if (ranges := sum(len(breaks) + 1 for breaks in ends.values())) > _MOST_RANGES:
        ends = {number: ends[number] for number in unsafe}
        ranges = sum(len(breaks) + 1 for breaks in ends.values())
    if not ends:
        return written
    whole = np.concatenate(values)
    name, made = _width_of(whole), RowIdSequence()
    if ranges > _MOST_RANGES and _BYTES_OF_A_RANGE * ranges > np.dtype(_WIDTHS[name]).itemsize * len(whole):
        # Alone it has no earlier one.
        content = (whole - whole.min()).astype(_WIDTHS[name]).tobytes()
        made.segments.append(RowIdSegment(array={name: {"base": int(whole.min()), "content": content}}))
    else:
        for number, (segment, own) in enumerate(zip(segments, values, strict=True)):
            made.segments.extend(map(_range, np.split(own, ends[number])) if number in ends else (segment,))
    return bytes(made.SerializeToString())


def _crossing(segments: Sequence[Any], values: Sequence[Ids], others: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The segments that share a stretch of ids with another fragment, but for ranges; by number. Pure."""
    for number, own in _lists(segments, values):
        first, last = int(own.min()), int(own.max())
        if any(low <= last and first <= high for low, high in others):
            yield number


def _unsafe(segments: Sequence[Any], values: Sequence[Ids]) -> Iterator[int]:
    """The segments between whose first and last id an earlier one has ids, but for ranges; by number. Pure."""
    owners = np.repeat(np.arange(len(values)), [len(ids) for ids in values])
    ids = np.concatenate([np.zeros(0, np.uint64), *values])
    order = np.argsort(ids)
    ids, owners = ids[order], owners[order]
    for number, own in _lists(segments, values):
        between = slice(*np.searchsorted(ids, [own.min(), own.max()]))
        if (owners[between] < number).any():
            yield number


def _lists(segments: Sequence[Any], values: Sequence[Ids]) -> Iterator[tuple[int, Ids]]:
    """Numbers and ids of the segments that are no ranges. Pure."""
    for number, (segment, own) in enumerate(zip(segments, values, strict=True)):
        if len(own) and not segment.HasField("range"):
            yield number, own


def _breaks(ids: Ids) -> npt.NDArray[np.intp]:
    """Where the next id is not the one after. Pure."""
    return np.flatnonzero(ids[1:] != ids[:-1] + np.uint64(1)) + 1


def _range(run: Ids) -> Any:
    return RowIdSegment(range={"start": int(run[0]), "end": int(run[-1]) + 1})


def _width_of(ids: Ids) -> str:
    """The narrowest list that holds the distances of these ids from the lowest one. Pure."""
    span = ids.max() - ids.min()
    return next(name for name, kind in _WIDTHS.items() if span <= np.iinfo(kind).max)


def _values(segment: Any) -> Ids:
    """The row ids of a segment in the order of its rows. Pure."""
    ((kind, value),) = segment.ListFields()
    if kind.name in ("array", "sorted_array"):
        return _numbers(value)
    span = np.arange(value.start, value.end, dtype=np.uint64)
    if kind.name == "range_with_holes":
        return np.setdiff1d(span, _numbers(value.holes), assume_unique=True)
    if kind.name == "range_with_bitmap":
        bits = np.unpackbits(np.frombuffer(value.bitmap, np.uint8), count=len(span), bitorder="little")
        return np.compress(bits == 1, span)
    return span


def _numbers(array: Any) -> Ids:
    ((kind, packed),) = array.ListFields()
    numbers: Ids = np.frombuffer(packed.content, _WIDTHS[kind.name]).astype(np.uint64)
    numbers += np.uint64(packed.base)
    return numbers
