"""Blobs as 0.9.0 prints them, before and after our rewrite, and what is stored."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.repair import Classification, EvidenceTier
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.interop.engine import Engine, engine
from tests.support.rows import scan
from tests.support.writers import drift, entry_of

pytestmark = pytest.mark.interop
SCHEMA = "node Photo {\n    code: String @key\n    image: Blob?\n}\n"
SMALL, LARGE = b"\x00lance\xff", bytes(range(256)) * 400


def load(oracle: Engine, root: Path, start: int, *images: bytes | None) -> None:
    rows: list[dict[str, object]] = []
    for number, image in enumerate(images, start):
        text = None if image is None else "base64:" + base64.b64encode(image).decode()
        rows.append({"type": "Photo", "data": {"code": f"i{number}", "image": text}})
    oracle.load(root, rows)


def printed(oracle: Engine, root: Path) -> dict[str, str | None]:
    """Code to blob as the engine exports it."""
    rows = [json.loads(line)["data"] for line in oracle.export(root)]
    return {row["code"]: row.get("image") for row in rows}


def stored(graph: Graph) -> dict[str, bytes | None]:
    """Code to blob as pylance reads it."""
    rows = scan(graph.open_pinned(entry_of(graph, "node:Photo"))).to_pylist()
    return {row["code"]: row["image"] for row in rows}


def test_a_rewrite_keeps_every_blob(tmp_path: Path) -> None:
    oracle, root = engine(6), tmp_path / "g.omni"
    oracle.init(root, SCHEMA)
    load(oracle, root, 0, SMALL, None, LARGE)
    load(oracle, root, 3, None, LARGE[1:], b"x")
    before, graph = printed(oracle, root), open_graph(str(root), Settings(exclusive=True))
    bytes_before = stored(graph)
    assert bytes_before == {"i0": SMALL, "i1": None, "i2": LARGE, "i3": None, "i4": LARGE[1:], "i5": b"x"}
    assert (before["i0"], before["i1"]) == ("base64:" + base64.b64encode(SMALL).decode(), None)
    (photos,) = [t for t in optimize_all(graph).tables if t.table_key == "node:Photo"]
    assert (photos.committed, photos.fragments_removed, photos.fragments_added) == (True, 2, 1)
    assert printed(oracle, root) == before
    assert stored(graph) == bytes_before
    assert not oracle.optimize(root)["node:Photo"]["committed"]


def places(graph: Graph) -> dict[str, tuple[int, int] | None]:
    """Code to position and size of its blob, None for null."""
    table = graph.open_pinned(entry_of(graph, "node:Photo")).to_table(blob_handling="all_descriptions")
    return {r["code"]: r["image"] and (r["image"]["position"], r["image"]["size"]) for r in table.to_pylist()}


def test_an_empty_blob_stays_empty_however_the_engine_prints_it(tmp_path: Path) -> None:
    """Lance 9 takes a blob of size 0 at position 0 for null; at any other position it reads it as empty.

    The engine writes every empty blob at 0. A rewrite puts it where its file happens to be, so the
    engine prints it as null or as empty, while what is stored was empty all along.
    """
    oracle, root = engine(6), tmp_path / "g.omni"
    oracle.init(root, SCHEMA)
    load(oracle, root, 0, b"", SMALL)
    load(oracle, root, 2, b"", None)
    graph = open_graph(str(root), Settings(exclusive=True))
    before, shown = stored(graph), printed(oracle, root)
    assert before == {"i0": b"", "i1": SMALL, "i2": b"", "i3": None}
    assert (places(graph)["i0"], places(graph)["i2"], places(graph)["i3"]) == ((0, 0), (0, 0), None)
    assert (shown["i0"], shown["i2"]) == (None, None)
    assert not optimize_all(graph).failed
    assert stored(graph) == before
    after, moved = printed(oracle, root), places(graph)["i2"]
    assert moved is not None
    assert (moved[0] > 0, moved[1]) == (True, 0)
    assert after == shown | {"i2": "base64:"}
    assert not oracle.optimize(root)["node:Photo"]["committed"]
    assert stored(graph) == before


def test_drift_that_makes_null_blobs_empty_for_the_engine_is_not_verified(tmp_path: Path) -> None:
    oracle, root = engine(3), tmp_path / "g.omni"
    oracle.init(root, SCHEMA)
    for start in (0, 2, 4):
        load(oracle, root, start, SMALL, None)
    before, graph = printed(oracle, root), open_graph(str(root))
    drift(graph, "node:Photo", lambda head: head.optimize.compact_files())
    (seen,) = preview_repair(graph, evidence=EvidenceTier.FULL).rows
    assert (seen.classification, seen.evidence and seen.evidence.content_equal) == (Classification.SUSPICIOUS, None)
    apply_repair(graph, preview_repair(graph), force=True)
    after = printed(oracle, root)
    assert {after[code] for code, image in before.items() if image is None} >= {"base64:"}


@pytest.mark.parametrize("change", ["update", "delete"])
def test_a_branch_that_changed_rows_with_blobs_merges_after_an_optimize(tmp_path: Path, change: str) -> None:
    """0.9.0 compares where blobs lie: a rewrite would make every row of main with one a changed one."""
    oracle, root = engine(6), tmp_path / "g.omni"
    oracle.init(root, SCHEMA.replace("    image", "    note: String?\n    image"))
    for start in (0, 3, 6):
        load(oracle, root, start, SMALL, None, LARGE)
    oracle.run("branch", "create", "--uri", str(root), "--from", "main", "topic")
    query = {"update": 'update Photo set { note: "new" } where code = "i2"', "delete": 'delete Photo where code = "i2"'}
    words = ("-e", f"query q() {{ {query[change]} }}", "--quiet")
    oracle.run("mutate", "--store", str(root), "--branch", "topic", *words)
    wanted = oracle.export(root, "topic")
    assert not optimize_all(open_graph(str(root), Settings(exclusive=True))).failed
    oracle.run("branch", "merge", "topic", "--into", "main", "--uri", str(root))
    assert oracle.export(root) == wanted
