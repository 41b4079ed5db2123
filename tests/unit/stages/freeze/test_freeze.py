"""Pins, tags, ages and relocated manifests: what a freeze decides without looking at a graph."""

from __future__ import annotations

import csv
import io
import struct
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.coordination.freezes import contract_folder, covers, freeze_of_tag, frozen_text, tag_name
from omnigraph_ops.coordination.holds import FreezeTerms, Hold, HoldKind
from omnigraph_ops.errors import CorruptGraph, InvalidInput
from omnigraph_ops.graph.lance_manifest import StoredIndex, index_uuids, manifest_message, with_message
from omnigraph_ops.lance.gateway import BranchRef
from omnigraph_ops.models.freeze import CutFileKind, CutFiles, FileRow, FrozenCut, FrozenPin, PinRole
from omnigraph_ops.quantities import age
from omnigraph_ops.stages.freeze.observe import PinnedDataset, dataset_pins, fork_points
from omnigraph_ops.stages.freeze.roots import recorded_roots, rename_roots
from omnigraph_ops.stages.freeze.stage import files_view
from omnigraph_ops.stages.freeze.take import LONGEST_TTL_SECONDS, check_ttl
from omnigraph_ops.views.view import csv_tables

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def ref(name: str, parent: str | None, version: int) -> BranchRef:
    return BranchRef(name=name, parent_branch=parent, parent_version=version, identifier=((version, name),))


def hold(*tables: str) -> Hold:
    return Hold(
        hold_id=ULID,
        kind=HoldKind.FREEZE,
        owner="ann@host",
        reason="backup",
        created_at=0,
        expires_at=1e9,
        versions=(),
        freeze=FreezeTerms(tables=tables),
    )


def test_only_our_own_tags_are_taken_for_a_freeze() -> None:
    assert freeze_of_tag(tag_name(ULID, 12)) == ULID
    for name in (
        "v1",
        ULID,
        f"omnigraph-ops.freeze.{ULID}",
        f"omnigraph-ops.freeze.{ULID}.x",
        "omnigraph-ops.freeze.a.1",
    ):
        assert freeze_of_tag(name) is None
    assert contract_folder(ULID) == f"__maintenance/freezes/{ULID}"


def test_every_fork_point_down_to_main_is_part_of_a_cut() -> None:
    refs = [ref("a", None, 3), ref("a/b", "a", 5), ref("other", None, 9)]
    assert fork_points([("a/b", 7), (None, 12)], refs) == {("a", 5), (None, 3)}
    assert fork_points([(None, 12)], refs) == set()
    orphan = [ref("child", "gone", 4)]
    assert fork_points([("child", 6)], orphan) == set()


def test_pins_have_a_tag_each_and_remember_the_lifetime_of_their_branch() -> None:
    subject = PinnedDataset(role=PinRole.TABLE, table_key="node:A", path="nodes/1")
    pins = dataset_pins(ULID, subject, {(None, 8), ("a", 5), (None, 6)}, [ref("a", None, 3)])
    assert [(p.role, p.branch, p.version) for p in pins] == [
        (PinRole.TABLE, None, 6),
        (PinRole.TABLE, None, 8),
        (PinRole.TABLE, "a", 5),
        (PinRole.FORK, None, 3),
    ]
    assert len({p.tag for p in pins}) == 4
    assert pins[2].lifetime == ((3, "a"),)
    with pytest.raises(CorruptGraph, match="which is gone"):
        dataset_pins(ULID, subject, {("b", 1)}, [])


def test_a_version_that_is_published_and_a_fork_point_is_pinned_once() -> None:
    subject = PinnedDataset(role=PinRole.TABLE, table_key="node:A", path="nodes/1")
    pins = dataset_pins(ULID, subject, {(None, 3), ("a", 5)}, [ref("a", None, 3)])
    assert [(p.branch, p.version, p.role) for p in pins] == [(None, 3, PinRole.TABLE), ("a", 5, PinRole.TABLE)]


def test_a_freeze_covers_its_tables_or_everything() -> None:
    assert covers(hold(), None)
    assert covers(hold(), "node:A")
    assert covers(hold("node:A"), "node:A")
    assert not covers(hold("node:A"), "node:B")
    assert not covers(hold("node:A"), None)


def test_a_freeze_covers_the_table_that_it_froze_under_whatever_name() -> None:
    pins = (
        FrozenPin(role=PinRole.GRAPH, table_key="__manifest", path="__manifest", branch=None, version=3, tag="t"),
        FrozenPin(role=PinRole.TABLE, table_key="node:A", path="nodes/1", branch=None, version=2, tag="t"),
    )
    cut = FrozenCut(stamp=6, pins=pins, contract=(), branches=(), one_instant=True)
    taken = replace(hold("node:A"), freeze=FreezeTerms(tables=("node:A",), cut=cut))
    assert covers(taken, "node:B", "nodes/1")
    assert not covers(taken, "node:A", "nodes/2")
    assert not covers(taken, "__manifest", "__manifest")
    assert covers(taken, "node:A"), "it is not live: nothing else tells"
    assert covers(hold("node:A"), "node:A", "nodes/2"), "it is still being taken"


def test_the_refusal_names_who_why_until_when_and_the_way_out() -> None:
    text = frozen_text("/g", hold("node:A"))
    for part in (
        "node:A of /g",
        "ann@host",
        "(backup) since ",
        " UTC, until 2001-09-09",
        f"`omnigraph-ops unfreeze /g {ULID}`",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59.9, "59 s"), (60, "1 min"), (7199, "1 h"), (86_399, "23 h"), (200_000, "2 d")],
)
def test_ages_are_in_their_largest_unit(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize("seconds", [0, -1, LONGEST_TTL_SECONDS + 1, float("inf"), float("nan")])
def test_a_freeze_has_an_end_that_somebody_lives_to_see(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="30 days"):
        check_ttl(seconds)


def test_csv_of_a_file_list_survives_odd_names() -> None:
    row = FileRow(file='a,"b', normalized='/g/a,"b', size=3, kind=CutFileKind.DATA, records_root=True)
    rows = list(csv.DictReader(io.StringIO(csv_tables(files_view(CutFiles(uri="/g", freeze_id=ULID, files=(row,)))))))
    expected = {
        "file": 'a,"b',
        "normalized": '/g/a,"b',
        "size": "3",
        "kind": "data",
        "records_root": "true",
        "checksum": "",
    }
    assert rows == [expected]


@pytest.fixture
def branched(tmp_path: Path) -> Path:
    """A dataset with an index and a branch that reads its rows."""
    path = tmp_path / "old" / "t.lance"
    dataset = lance.write_dataset(pa.table({"id": list(range(300))}), str(path), enable_stable_row_ids=True)
    dataset.create_scalar_index("id", "BTREE")
    branch = lance.dataset(str(path)).create_branch("team/a")
    lance.write_dataset(pa.table({"id": [1000]}), branch, mode="append")
    return path


def newest(path: Path) -> Path:
    return min((path / "tree/team/a/_versions").glob("*.manifest"))


@pytest.mark.parametrize("name", ["n", "a much longer name than before, with spaces " * 4])
def test_a_moved_branch_reads_the_moved_files(branched: Path, tmp_path: Path, name: str) -> None:
    before = lance.dataset(str(branched)).checkout_version(("team/a", None)).to_table()
    assert recorded_roots(newest(branched).read_bytes()) == (str(branched),)
    moved = tmp_path / name.strip() / "t.lance"
    moved.parent.mkdir()
    branched.rename(moved)
    for manifest in (moved / "tree/team/a/_versions").glob("*.manifest"):
        manifest.write_bytes(rename_roots(manifest.read_bytes(), lambda old: old.replace(str(branched), str(moved))))
    branch = lance.dataset(str(moved)).checkout_version(("team/a", None))
    assert branch.to_table() == before
    assert branch.to_table(filter="id = 17").num_rows == 1
    lance.write_dataset(pa.table({"id": [1001]}), branch, mode="append")


def test_an_unchanged_manifest_is_byte_for_byte_the_same(branched: Path) -> None:
    for manifest in branched.rglob("*.manifest"):
        data = manifest.read_bytes()
        assert rename_roots(data, lambda old: old) == data
    assert recorded_roots(min((branched / "_versions").glob("*.manifest")).read_bytes()) == ()


def test_a_renamed_root_leaves_every_other_field_as_it_is(branched: Path) -> None:
    data = newest(branched).read_bytes()
    # A field that this release does not know, in the message and in the root itself.
    message = manifest_message(data)
    message.MergeFromString(b"\xc2\x3e\x05later")
    message.base_paths[0].MergeFromString(b"\xc2\x3e\x05later")
    data = with_message(data, message)
    moved = rename_roots(data, lambda old: f"/somewhere/else{old}")
    assert moved.count(b"later") == 2
    back = rename_roots(moved, lambda new: new.removeprefix("/somewhere/else"))
    assert (manifest_message(back), len(back)) == (message, len(data))


def test_the_indexes_of_a_branch_are_those_that_its_manifest_names(branched: Path) -> None:
    first = {folder.name for folder in (branched / "_indices").iterdir()}
    assert index_uuids(newest(branched).read_bytes(), "m") == first
    lance.dataset(str(branched)).create_scalar_index("id", "BTREE", replace=True)
    now = min((branched / "_versions").glob("*.manifest")).read_bytes()
    # Its transaction still names the first one, which the version does not read any more.
    assert index_uuids(now, "m") == {folder.name for folder in (branched / "_indices").iterdir()} - first
    with pytest.raises(CorruptGraph, match="torn"):
        index_uuids(now[:-1], "torn")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:-20] + data[-16:],
        lambda data: data[:-16] + struct.pack("<QHH4s", 2**40, 0, 3, b"LANC"),
        lambda data: data[:-17] + b"\xff" + data[-16:],
    ],
    ids=["empty", "no footer", "truncated", "points nowhere", "torn field"],
)
def test_a_damaged_manifest_is_refused(branched: Path, damage: object) -> None:
    data = newest(branched).read_bytes()
    with pytest.raises(CorruptGraph):
        rename_roots(damage(data), lambda old: old)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("files", "covers_rows", "name", "stored", "missing"),
    [
        ({("a", 9), ("b", 9)}, True, "i", {"a": 9, "c": 9}, {"b"}),
        ({("a", 9), ("b", 9)}, True, "i", {"a": 9, "b": 8}, {"b"}),
        ({("a", 0)}, True, "i", {"a": 0}, {"a"}),
        ({("a", 0)}, True, "i", {"a": 1}, set()),
        ({("a", 9)}, False, "i", {}, {"a"}),
        (set(), True, "i", {}, {"all of its files"}),
        (set(), True, "i", {"a": 0}, {"all of its files"}),
        (set(), True, "i", {"a": 9}, set()),
        (set(), False, "i", {}, set()),
        (set(), True, "__lance_frag_reuse", {}, set()),
    ],
)
def test_what_is_missing_of_an_index(
    files: set[tuple[str, int]], covers_rows: bool, name: str, stored: dict[str, int], missing: set[str]
) -> None:
    """Old manifests do not say of which files an index consists; one that was never trained has none."""
    index = StoredIndex(uuid="u", name=name, files=frozenset(files), covers_rows=covers_rows)
    assert index.missing(stored) == missing


def test_the_pins_of_a_cut_are_told_apart_by_their_datasets() -> None:
    def pin(path: str, number: int) -> FrozenPin:
        return FrozenPin(
            role=PinRole.TABLE, table_key=path, path=path, branch=None, version=number, tag=tag_name(ULID, number)
        )

    pins = (pin("nodes/b", 1), pin("nodes/a", 1), pin("nodes/b", 2))
    cut = FrozenCut(stamp=6, branches=(), pins=pins, contract=(), one_instant=True)
    assert list(cut.by_dataset().items()) == [("nodes/a", [pins[1]]), ("nodes/b", [pins[0], pins[2]])]
    assert cut.datasets == ("nodes/a", "nodes/b")
