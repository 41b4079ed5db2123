"""Addresses as people and programs spell them, and whether Lance and this tool's store find the same files there."""

from __future__ import annotations

import lance
import pyarrow as pa
from hypothesis import strategies as st

from omnigraph_ops.storage.location import AMBIENT, GraphLocation
from omnigraph_ops.storage.store import Storage

_TRICKY = " %?#[]*{}\\^`|<>\"'~@:;,+=&$!()é日\u0301\u00a0\u2028\u200b\u202e\x00\x01\n\x7f\x85\ufffe\U0001f600"
_SEGMENTS = st.one_of(
    st.sampled_from(["", ".", "..", "a", "g.omni", "a%20b", "a%2Fb", "%2e%2e", "a?versionId=1", "a//b", "...", "~"]),
    st.text(st.sampled_from("ab." + _TRICKY), min_size=1, max_size=5),
    st.text(min_size=1, max_size=4),
)
KEYS = st.lists(_SEGMENTS, min_size=0, max_size=4).map("/".join)
"""What may stand behind a bucket, or be a relative path."""
_ONE_ROW = pa.table({"n": [1]})


def assert_one_place(place: GraphLocation) -> None:
    """What Lance writes the store reads under the same names, and the other way round. Writes, and removes it."""
    storage = Storage(place.root)
    options = AMBIENT.lance(place.root)
    lance.write_dataset(_ONE_ROW, storage.uri("written.lance"), storage_options=options)
    for folder, suffix in (("_versions", ".manifest"), ("data", ".lance")):
        (name,) = (n for n in storage.list(f"written.lance/{folder}") if n.endswith(suffix))
        path = f"written.lance/{folder}/{name}"
        assert storage.exists(path)
        data = storage.read(path)
        assert storage.stat(path).size == len(data)
        storage.write(f"copied.lance/{folder}/{name}", data)
    assert lance.dataset(storage.uri("copied.lance"), storage_options=options).count_rows() == 1
    for name in ("written.lance", "copied.lance"):
        storage.delete_tree(name)
        assert not storage.exists(name)
