"""Demo graphs are what the engine would have written: contract, pins, rows, branches, drift."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph_ops.demo import DemoSpec, DemoSummary, write_demo_graph
from omnigraph_ops.demo.contract import contract, digest, schema_shape
from omnigraph_ops.demo.spec import demo_types
from omnigraph_ops.errors import InvalidInput

pytestmark = pytest.mark.slow

# From graphs that the real engines wrote for the same schema sources.
SHAPE_HASH = "sha256:0f481eae761c8b6425e979bb03114c8205de66d4f109632f2162ba0a063d1cc1"
SHAPE_HASH_WITH_BLOBS = "sha256:ce0fcf979d846e60057193cbdb1bbe41b6d395d3330b9a9ea34fd1429d59f2e0"
IR_HASH_3 = "sha256:b3e9f650b01d011524f4469bd5362638de5fb5dc5cc22d1e450801b21fb981fc"
IR_HASH_6 = "sha256:7a78c6b26385e197cf0808b0b0eb7fc93549894e2ef46c2c40e9732ab10b8f11"
DOMAIN_6 = "01M7Y0CCC5R671YPMTKSCM8M4H"

Write = Callable[[DemoSpec], DemoSummary]
SMALL = DemoSpec(loads=3, rows=20)
FULL = replace(
    SMALL,
    node_types=4,
    deletes=2,
    updates=5,
    lazy_branches=1,
    written_branches=1,
    index_after_load=2,
    blobs=True,
)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Writes a graph once per spec; nobody may change it."""
    folder, count = tmp_path_factory.mktemp("written"), itertools.count()
    return functools.cache(lambda spec: write_demo_graph(str(folder / f"g{next(count)}"), spec))


def manifest_rows(root: str, branch: str | None = None) -> list[dict[str, Any]]:
    manifest = lance.dataset(f"{root}/__manifest")
    return list((manifest if branch is None else manifest.checkout_version((branch, None))).to_table().to_pylist())


def version_rows(root: str, branch: str | None = None) -> list[dict[str, Any]]:
    return [r for r in manifest_rows(root, branch) if r["object_type"] == "table_version"]


def locations(root: str) -> dict[str, str]:
    return {r["table_key"]: r["location"] for r in manifest_rows(root) if r["object_type"] == "table"}


def pins(root: str, branch: str | None = None) -> dict[str, dict[str, Any]]:
    rows = sorted(version_rows(root, branch), key=lambda r: r["table_version"])
    return {r["table_key"]: r for r in rows}


def open_version(root: str, row: dict[str, Any]) -> Any:
    dataset = lance.dataset(f"{root}/{locations(root)[row['table_key']]}")
    return dataset.checkout_version((row["table_branch"], row["table_version"]))


def test_shape_hash_is_the_engines() -> None:
    assert digest(schema_shape(demo_types(DemoSpec()))) == SHAPE_HASH
    assert digest(schema_shape(demo_types(DemoSpec(blobs=True)))) == SHAPE_HASH_WITH_BLOBS


@pytest.mark.parametrize(("number", "expected"), [(3, IR_HASH_3), (6, IR_HASH_6)])
def test_ir_hash_is_the_engines(number: int, expected: str) -> None:
    built = contract(demo_types(DemoSpec(stamp=number)), number, DOMAIN_6)
    compact = json.dumps(json.loads(built.ir_json), separators=(",", ":"), ensure_ascii=False)
    assert f"sha256:{hashlib.sha256(compact.encode()).hexdigest()}" == expected
    assert json.loads(built.state_json)["schema_ir_hash"] == expected


def test_pins_are_heads_and_counts_are_right(written: Write, stamp: int) -> None:
    summary = written(replace(FULL, stamp=stamp))
    published = pins(summary.root)
    assert set(published) == {table.table_key for table in summary.tables}
    for table in summary.tables:
        dataset = lance.dataset(f"{summary.root}/{table.path}")
        row = published[table.table_key]
        assert (row["table_version"], row["row_count"]) == (dataset.version, dataset.count_rows())
        assert (table.version, table.rows) == (dataset.version, dataset.count_rows())
        assert dataset.data_storage_version == "2.2"
        assert dataset.has_stable_row_ids
        assert dataset.config() == {}
    for row in version_rows(summary.root):
        assert open_version(summary.root, row).count_rows() == row["row_count"], row["object_id"]


def test_manifest_is_stamped_and_keyed(written: Write, stamp: int) -> None:
    summary = written(replace(SMALL, stamp=stamp))
    manifest = lance.dataset(f"{summary.root}/__manifest")
    assert manifest.version == 3 + SMALL.loads
    assert manifest.config() == {"table_version_management": "true"}
    assert manifest.schema.metadata[b"omnigraph:internal_schema_version"] == str(stamp).encode()
    key = {b"lance-schema:unenforced-primary-key": b"true"}
    assert manifest.schema.field("object_id").metadata == key
    person = lance.dataset(f"{summary.root}/{locations(summary.root)['node:Person']}")
    assert (person.schema.field("id").metadata or {}) == (key if stamp == 6 else {})
    for row in version_rows(summary.root):
        metadata = json.loads(row["metadata"])
        path = Path("/" + metadata["manifest_path"].removeprefix("/"))
        assert metadata["manifest_path"].startswith("/") == (stamp == 6)
        assert (path.stat().st_size, metadata["naming_scheme"]) == (metadata["manifest_size"], "V2")


def test_lineage_is_one_chain(written: Write, stamp: int) -> None:
    root = written(replace(SMALL, stamp=stamp)).root
    if stamp == 3:
        rows = lance.dataset(f"{root}/_graph_commits.lance").to_table().to_pylist()
        chain = [(r["graph_commit_id"], r["parent_commit_id"], r["manifest_version"]) for r in rows]
        assert [c[2] for c in chain] == [3, 4, 5, 6]
    else:
        rows = [r for r in manifest_rows(root) if r["object_type"] == "graph_commit"]
        chain = [(r["object_id"], json.loads(r["metadata"]).get("parent_commit_id"), r["table_version"]) for r in rows]
        assert [c[2] for c in chain] == [1, 4, 5, 6]
        head = next(r for r in manifest_rows(root) if r["object_id"] == "graph_head:main")
        assert json.loads(head["metadata"])["head_commit_id"] == chain[-1][0]
    assert [c[1] for c in chain] == [None, *(c[0] for c in chain[:-1])]


def test_branches_are_readable(written: Write, stamp: int) -> None:
    summary = written(replace(FULL, stamp=stamp))
    assert summary.branches == ("lazy-1", "review/hires-1")
    assert set(lance.dataset(f"{summary.root}/__manifest").branches.list()) == set(summary.branches)
    lazy = pins(summary.root, "lazy-1")
    assert {row["table_branch"] for row in lazy.values()} == {None}
    forked = pins(summary.root, "review/hires-1")
    person = forked["node:Person"]
    assert person["table_branch"] == "review/hires-1"
    assert "/tree/review/hires-1/_versions/" in json.loads(person["metadata"])["manifest_path"]
    assert person["row_count"] == lazy["node:Person"]["row_count"] + 2
    for row in (*lazy.values(), *forked.values()):
        opened = open_version(summary.root, row)
        assert opened.to_table(columns=["id"]).num_rows == row["row_count"]


def test_later_fragments_are_not_covered(written: Write, stamp: int) -> None:
    summary = written(replace(SMALL, stamp=stamp))
    by_key = {t.table_key: t for t in summary.tables}
    found = {
        key: {(i.name, i.index_type.upper()) for i in lance.dataset(f"{summary.root}/{t.path}").describe_indices()}
        for key, t in by_key.items()
    }
    assert found["node:Person"] == {
        *(("id_idx", "BTREE"), ("tier_idx", "BTREE")),
        *(("bio_idx", "INVERTED"), ("name_idx", "INVERTED")),
    }
    assert {name for name, _ in found["node:Doc"]} == {"id_idx", "slug_idx", "title_idx", "embedding_idx"}
    assert {name for name, _ in found["edge:Knows"]} == {"id_idx", "src_idx", "dst_idx"}
    for index in lance.dataset(f"{summary.root}/{by_key['node:Doc'].path}").describe_indices():
        assert {f for s in index.segments for f in s.fragment_ids} == {0}
    assert {table.fragments for table in summary.tables} == {3}


def test_without_vectors_the_column_stays(tmp_path: Path, stamp: int) -> None:
    summary = write_demo_graph(str(tmp_path / "g"), replace(SMALL, stamp=stamp, vectors=False))
    doc = open_version(summary.root, pins(summary.root)["node:Doc"])
    assert doc.count_rows("embedding IS NOT NULL") == 0
    assert "embedding_idx" not in {i.name for i in doc.describe_indices()}


@pytest.mark.parametrize(
    ("kind", "operation"), [("compaction", "Rewrite"), ("delete", "Delete"), ("empty_delete", "Delete")]
)
def test_drift_moves_only_the_heads_it_names(tmp_path: Path, stamp: int, kind: str, operation: str) -> None:
    spec = replace(SMALL, stamp=stamp, drift_tables=("node:Person", "edge:Knows"), drift_kind=kind)
    summary = write_demo_graph(str(tmp_path / "g"), spec)
    drifted = set()
    for key, row in pins(summary.root).items():
        head = lance.dataset(f"{summary.root}/{locations(summary.root)[key]}")
        if head.version > row["table_version"]:
            drifted.add(key)
            assert type(head.read_transaction(head.version).operation).__name__ == operation
            assert head.count_rows() == row["row_count"] - (kind == "delete")
    assert drifted == set(spec.drift_tables)


def test_deletes_and_updates_leave_their_marks(written: Write, stamp: int) -> None:
    summary = written(replace(FULL, stamp=stamp))
    rows = {table.table_key: table.rows for table in summary.tables}
    assert rows["node:Person"] == 3 * 20 - 2
    assert rows["node:Company"] == 3 * 2 - 2
    ids = {
        key: set(open_version(summary.root, row).to_table(columns=["id"]).column("id").to_pylist())
        for key, row in pins(summary.root).items()
    }
    for edge, target in (("Knows", "Person"), ("WorksAt", "Company"), ("Wrote", "Doc")):
        dataset = open_version(summary.root, pins(summary.root)[f"edge:{edge}"])
        assert any(f.num_deletions for f in dataset.get_fragments())
        ends = dataset.to_table(columns=["src", "dst"])
        assert set(ends.column("src").to_pylist()) <= ids["node:Person"]
        assert set(ends.column("dst").to_pylist()) <= ids[f"node:{target}"]


def test_blobs_are_partly_null(tmp_path: Path, stamp: int) -> None:
    summary = write_demo_graph(str(tmp_path / "g"), replace(SMALL, stamp=stamp, rows=60, blobs=True))
    photos = open_version(summary.root, pins(summary.root)["node:Photo"])
    present = photos.count_rows("image IS NOT NULL")
    assert 0 < present < photos.count_rows()


def test_same_seed_same_rows(tmp_path: Path, stamp: int) -> None:
    spec = replace(FULL, stamp=stamp, blobs=False)

    def contents(name: str, chosen: DemoSpec) -> dict[str, list[dict[str, Any]]]:
        root = write_demo_graph(str(tmp_path / name), chosen).root
        return {key: open_version(root, row).to_table().to_pylist() for key, row in pins(root).items()}

    first = contents("a", spec)
    assert contents("b", spec) == first
    assert contents("c", replace(spec, seed=8)) != first


def test_refuses_a_directory_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInput, match="not empty"):
        write_demo_graph(str(tmp_path), SMALL)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "spec",
    [
        replace(SMALL, stamp=5),
        replace(SMALL, drift_kind="rot"),
        replace(SMALL, drift_tables=("node:Nobody",)),
        replace(SMALL, deletes=61),
        replace(SMALL, index_after_load=4),
    ],
)
def test_refuses_what_no_history_satisfies(tmp_path: Path, spec: DemoSpec) -> None:
    with pytest.raises(InvalidInput):
        write_demo_graph(str(tmp_path / "g"), spec)
    assert not (tmp_path / "g").exists()


def test_blob_column_carries_the_engines_metadata_only(tmp_path: Path, stamp: int) -> None:
    summary = write_demo_graph(str(tmp_path / "g"), replace(SMALL, stamp=stamp, blobs=True))
    photos = open_version(summary.root, pins(summary.root)["node:Photo"])
    assert "ARROW:extension:metadata" not in str(photos.lance_schema)
    assert '"ARROW:extension:name": "lance.blob.v2"' in str(photos.lance_schema)
