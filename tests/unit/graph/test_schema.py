"""The schema files of a graph, also while an apply puts new ones in place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph_ops.errors import ContractError, RecoveryPending
from omnigraph_ops.graph.layout import (
    SCHEMA_FILES,
    SCHEMA_IR_FILE,
    SCHEMA_SOURCE_FILE,
    SCHEMA_STATE_FILE,
    STAGING_SUFFIX,
)
from omnigraph_ops.graph.schema import read_contract, read_type_facts
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph

IN_ORDER = (SCHEMA_SOURCE_FILE, SCHEMA_IR_FILE, SCHEMA_STATE_FILE)


class Applied(Storage):
    """Files that an apply renames: so many whenever one of these moments comes."""

    def __init__(self, root: Path, moments: str, at_once: int) -> None:
        super().__init__(str(root))
        self._folder, self._moments, self._at_once = root, moments, at_once
        self._left: Iterator[str] = iter(IN_ORDER)
        self.listings = 0

    def read(self, path: str) -> bytes:
        if self._moments == path:
            self._rename()
        return super().read(path)

    def list(self, folder: str) -> tuple[str, ...]:
        self.listings += 1
        if self._moments == "listings":
            self._rename()
        return super().list(folder)

    def _rename(self) -> None:
        for _, name in zip(range(self._at_once), self._left, strict=False):
            (self._folder / (name + STAGING_SUFFIX)).rename(self._folder / name)


@pytest.fixture
def folder(demo_graph: DemoGraph, tmp_path: Path) -> Path:
    """The files of a graph, and those of its next schema beside them."""
    root = Path(demo_graph().uri)
    ir = json.loads((root / SCHEMA_IR_FILE).read_text()) | {"later": True}
    text = json.dumps(ir, separators=(",", ":"))
    state = json.loads((root / SCHEMA_STATE_FILE).read_text())
    state["schema_ir_hash"] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    made = tmp_path / "files"
    made.mkdir()
    for name in SCHEMA_FILES:
        (made / name).write_bytes((root / name).read_bytes())
    for name, content in zip(IN_ORDER, ("later", text, json.dumps(state)), strict=True):
        (made / (name + STAGING_SUFFIX)).write_text(content)
    return made


def later(storage: Storage) -> bool:
    return "later" in read_contract(storage, format_version=2, ir_version=2)


def test_before_and_after_an_apply_they_agree(folder: Path) -> None:
    storage = Applied(folder, "never", 0)
    assert not later(storage)
    assert storage.listings == 0
    for name in SCHEMA_FILES:
        (folder / (name + STAGING_SUFFIX)).rename(folder / name)
    assert later(storage)


def test_an_apply_between_two_reads_is_read_again(folder: Path) -> None:
    assert later(Applied(folder, SCHEMA_STATE_FILE, 3))


def test_an_apply_that_renames_them_is_waited_for(folder: Path) -> None:
    storage = Applied(folder, "listings", 1)
    storage._rename()
    storage._rename()
    assert later(storage)


def test_an_apply_that_stopped_between_them_is_for_the_engine(folder: Path) -> None:
    storage = Applied(folder, "never", 2)
    storage._rename()
    with pytest.raises(RecoveryPending, match=f"stopped before {SCHEMA_STATE_FILE}{STAGING_SUFFIX} came into place"):
        later(storage)


def test_files_that_disagree_for_good_are_named_at_once(folder: Path) -> None:
    storage = Applied(folder, "never", 3)
    storage._rename()
    ir = folder / SCHEMA_IR_FILE
    ir.write_text(ir.read_text().replace("later", "earlier"))
    with pytest.raises(ContractError, match="restore both files"):
        later(storage)
    assert storage.listings == 2


@pytest.mark.parametrize(
    "constraints",
    [
        [{"Key": ["name"]}, {"Unique": ["code"]}, {"Range": {"property": "size", "min": 1}}, {"Index": ["vec"]}],
        [
            {"kind": "key", "fields": [{"property_name": "name"}]},
            {"kind": "unique", "fields": [{"property_name": "code"}]},
            {"kind": "range", "field": {"property_name": "size"}, "min": 1},
            {"kind": "index", "fields": [{"property_name": "vec"}]},
        ],
    ],
    ids=["stamp 3", "stamp 6"],
)
def test_what_a_row_cannot_lack(demo_graph: DemoGraph, constraints: list[object]) -> None:
    def prop(name: str, scalar: object, *, enum: object = None, **more: bool) -> dict[str, object]:
        kind = {"scalar": scalar, "list": False, "nullable": False, "enum_values": enum, **more}
        return {"name": name, "prop_type": kind, "annotations": []}

    properties = [
        *(prop("name", "String"), prop("code", "String"), prop("size", "I32"), prop("title", "String")),
        *(prop("kind", "String", enum=["a", "b"]), prop("tags", "Date", list=True), prop("vec", {"Vector": 2})),
        *(prop("day", "Date"), prop("at", "DateTime"), prop("ok", "Bool"), prop("rate", "F64")),
        *(prop("scan", "Blob"), prop("note", "String", nullable=True), prop("far", {"Vector": 3}, nullable=True)),
    ]
    storage = demo_graph().storage
    node = {"name": "Doc", "properties": properties, "constraints": constraints}
    storage.write(SCHEMA_IR_FILE, json.dumps({"nodes": [node], "edges": []}).encode())
    facts = read_type_facts(storage)["node:Doc"]
    assert (facts.key, facts.judged, facts.required_blobs) == (("name",), ("code", "size"), ("scan",))
    assert (facts.plain_strings, facts.vector_bytes) == (("title", "note"), 8 + 12)
    texts = {"title": "", "kind": "a", "day": "1970-01-01", "at": "1970-01-01T00:00:00Z"}
    assert facts.blanks == {**texts, "tags": [], "vec": [1, 1], "ok": False, "rate": 0}
