"""Indexes that Spark tasks made of groups of fragments: the engine reads, folds and writes them as its own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import lance
import pytest

from omnigraph_ops.graph import open_graph
from omnigraph_ops.lance.tables import index_facts
from tests.interop.engine import engine
from tests.interop.test_answers import WORDS, assert_kept, in_tasks, loaded, look
from tests.support.writers import entry_of, write

pytestmark = pytest.mark.interop


def _drop_indexes(dataset: lance.LanceDataset) -> None:
    for index in dataset.describe_indices():
        dataset.drop_index(index.name)


def _segments(graph: Path, key: str) -> dict[str, tuple[int, int]]:
    """How many segments each index has, and how many fragments it covers. Reads."""
    opened = open_graph(str(graph))
    return {i.name: (i.segments, len(i.covered)) for i in index_facts(opened.open_pinned(entry_of(opened, key)))}


@pytest.mark.parametrize("stamp", [3, 6])
def test_the_engine_reads_and_folds_what_was_joined_of_parts(
    tmp_path: Path, stamp: int, capsys: pytest.CaptureFixture[str]
) -> None:
    oracle, graph = engine(stamp), tmp_path / "g.omni"
    oracle.init(graph)
    step = len(WORDS) // 5
    for start in range(0, 4 * step, step):
        oracle.load(graph, loaded(range(start, start + step)))
    oracle.delete_person(graph, "p7")
    opened, keys = open_graph(str(graph)), ("node:Person", "node:Project", "edge:Likes")
    for key in keys:
        write(opened, key, _drop_indexes)
        assert not _segments(graph, key)
    # Without an index the engine finds stop words, too: what it builds itself is the measure.
    shutil.copytree(graph, twin := tmp_path / "twin.omni")
    oracle.optimize(twin)
    before = look(oracle, twin)

    built = {name for row in in_tasks(graph, **{"default.parallelism": "12"}) for name in row.indexes_built}
    said = capsys.readouterr().out
    parts = {key: re.search(rf"{key}: folding .* tasks, (\d+) parts of (.*)", said) for key in keys}
    # A column without a value has no part.
    assert all(found is not None and int(found[1]) >= 2 * len(found[2].split(", ")) > 2 for found in parts.values()), (
        said
    )
    assert {"id_idx", "bio_idx", "face_idx", "src_idx", "dst_idx"} <= built
    for key in keys:
        # Both build on the small fragments, and compact afterwards.
        assert _segments(graph, key) == _segments(twin, key)
        assert {segments for segments, _ in _segments(graph, key).values()} == {1}
    after = look(oracle, graph)
    assert_kept(before, after, "parts")
    assert after.found == before.found
    assert not [key for key, table in oracle.optimize(graph).items() if table["committed"] and ":" in key]

    for each in (graph, twin):
        oracle.load(each, loaded(range(4 * step, 5 * step)))
        oracle.optimize(each)
    folded, own = look(oracle, graph), look(oracle, twin)
    assert not any("error:" in row for rows in own.rows.values() for row in rows)
    assert_kept(own, folded, "folded by the engine")
    assert folded.found == own.found
