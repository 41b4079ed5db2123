"""The row ids of a fragment, written so that the Lance of every engine masks them right.

A fragment that was made of several has the row ids of each as a segment, and most kinds of segment say which ids
between their first and last are missing. Before Lance 9 (rust/lance-table/src/rowids.rs, `From<&RowIdSequence>`) a
reader that masks deleted rows takes these gaps out of what earlier segments named. An updated row keeps its id, so
after any compaction of updated rows indexed searches lost hits, and a merge by key inserted rows a second time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph_ops.lance.messages import BYTES, MANY, NUMBER, message_classes

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
Sequence, Segment = _MADE["Sequence"], _MADE["Segment"]
_WIDTHS = {"u16_array": "<u2", "u32_array": "<u4", "u64_array": "<u8"}
_BYTES_OF_A_RANGE = 12
Ids = npt.NDArray[np.uint64]


def with_safe_row_ids(result: str) -> str:
    """A compaction result whose fragments have no gap where an earlier segment has a row; the same ids. Pure."""
    found = json.loads(result)
    for fragment in found["new_fragments"]:
        written = (fragment.get("row_id_meta") or {}).get("Inline")
        if written is not None:
            fragment["row_id_meta"] = {"Inline": list(safe_row_ids(bytes(written)))}
    return json.dumps(found)


def safe_row_ids(written: bytes) -> bytes:
    """The same row ids in the same order, without a gap where an earlier segment has a row. Pure."""
    segments = Sequence.FromString(written).segments
    if len(segments) < 2:
        return written
    values = [_values(segment) for segment in segments]
    owners = np.repeat(np.arange(len(values)), [len(ids) for ids in values])
    ids = np.concatenate(values)
    order = np.argsort(ids)
    ids, owners = ids[order], owners[order]
    made = Sequence()
    for number, (segment, own) in enumerate(zip(segments, values, strict=True)):
        made.segments.extend(_safe(segment, own, number, ids, owners))
    return bytes(made.SerializeToString())


def _safe(segment: Any, own: Ids, number: int, ids: Ids, owners: npt.NDArray[np.intp]) -> Iterator[Any]:
    """A segment, or what takes its place.

    Args:
        ids: of the whole sequence, sorted; `owners` has the number of the segment of each.
    """
    if segment.HasField("sorted_array") and number:
        # Lance turns a sorted one into one with gaps when rows of it are deleted.
        yield Segment(array=segment.sorted_array)
    elif segment.HasField("range") or segment.HasField("array") or not len(own):
        yield segment
    else:
        between = slice(*np.searchsorted(ids, [own[0], own[-1]]))
        yield from _without_gaps(own) if (owners[between] < number).any() else (segment,)


def _without_gaps(own: Ids) -> Iterator[Any]:
    """Sorted row ids as ranges, or one by one where that is shorter. Pure."""
    runs = np.split(own, np.flatnonzero(np.diff(own) != 1) + 1)
    offsets = own - own[0]
    # What was a list of bits or holes spans no more than 32 bits can count.
    name = "u16_array" if offsets[-1] <= np.iinfo(np.uint16).max else "u32_array"
    if _BYTES_OF_A_RANGE * len(runs) <= np.dtype(_WIDTHS[name]).itemsize * len(own):
        yield from (Segment(range={"start": int(run[0]), "end": int(run[-1]) + 1}) for run in runs)
    else:
        packed = {"base": int(own[0]), "content": offsets.astype(_WIDTHS[name]).tobytes()}
        yield Segment(array={name: packed})


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
