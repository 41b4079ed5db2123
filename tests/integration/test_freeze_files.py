"""The file list of a freeze: precisely these files, elsewhere, are the graph as it was, with all branches."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.coordination.freezes import unfreeze
from omnigraph_ops.coordination.holds import hold_path
from omnigraph_ops.errors import CorruptGraph, InvalidInput
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.freeze import CutFileKind
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.freeze.files import cut_files, with_checksums
from omnigraph_ops.stages.freeze.observe import stored_manifest
from omnigraph_ops.stages.freeze.roots import rename_roots
from omnigraph_ops.stages.freeze.stage import file_list
from omnigraph_ops.stages.freeze.take import freeze_graph, read_freeze
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from tests.conftest import DemoGraph
from tests.integration.test_freeze import collect_like_an_engine
from tests.support.backups import restored
from tests.support.converged import assert_converged
from tests.support.edges import when_asked
from tests.support.freezes import copy_cut, freeze_tags, make_branch_anew
from tests.support.orphans import KNOWS, PERSON, WEEK, age, drop
from tests.support.plain import answers, append, content, indexed, opened, rows
from tests.support.rows import rows_everywhere
from tests.support.shell import Cli
from tests.support.writers import copies, delete_first, drift, entry_of, write

SMALL = {"loads": 3, "rows": 9, "node_types": 1}
BRANCHED = {**SMALL, "lazy_branches": 1, "written_branches": 2, "deletes": 2}
KEEP_1 = RetentionPolicy(keep_versions=1)


def life_goes_on(graph: Graph) -> None:
    """Loads, deletes, a rewrite and cleanups by others. Writes and destroys."""
    for key in (PERSON, KNOWS):
        write(graph, key, copies("late"))
        write(graph, key, delete_first(2))
        write(graph, key, lambda d: d.optimize.compact_files())
    collect_like_an_engine(graph)


@pytest.mark.slow
def test_a_copy_elsewhere_is_the_graph_at_the_freeze(demo_graph: DemoGraph, stamp: int, tmp_path: Path) -> None:
    graph = demo_graph(stamp=stamp, **BRANCHED)
    optimize_all(graph)
    write(graph, PERSON, copies("more"))
    rows, versions = rows_everywhere(graph), {b.branch: b for b in freeze_graph(graph).cut.branches}
    freeze = read_freeze(graph, freeze_graph(graph).freeze_id)
    life_goes_on(graph)
    copy = copy_cut(graph, freeze, tmp_path / "elsewhere" / "a copy.omni")
    # What still read the original would fail now.
    Path(graph.uri).rename(tmp_path / "gone.omni")
    assert rows_everywhere(copy) == rows
    assert {b: copy.state(b).manifest_version for b in versions} == {b: v.manifest_version for b, v in versions.items()}
    assert check(copy).status.exit_code == 0
    assert freeze_tags(copy.uri) == set()
    assert not optimize_all(copy).failed
    assert_converged(copy)
    cleanup_all(copy, plan_cleanup(copy, KEEP_1))
    write(copy, PERSON, copies("after"))
    assert {b: r for b, r in rows_everywhere(copy).items() if b} == {b: r for b, r in rows.items() if b}
    age(copy.uri)
    plan = plan_orphans(copy, older_than_seconds=WEEK)
    assert (plan.skipped, plan.unknown) == ((), ())
    assert rows_everywhere(copy_cut(copy, freeze_graph(copy), tmp_path / "third.omni")).keys() == rows.keys()


@pytest.mark.slow
def test_every_file_is_listed_once_with_where_it_is_and_what_it_is(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **BRANCHED)
    optimize_all(graph)
    freeze = freeze_graph(graph)
    seen: list[str] = []
    files = with_checksums(graph, cut_files(graph, freeze), Lines(seen.append))
    assert seen[-1] == f"reading: {len(files)} of {len(files)} files"
    assert [f.file for f in files] == sorted({f.file for f in files})
    for row in file_list(graph, freeze.freeze_id, files).files:
        data = Path(row.normalized).read_bytes()
        assert (row.size, row.checksum) == (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")
    kinds = {f.kind for f in files}
    assert kinds >= {CutFileKind.CONTRACT, CutFileKind.REFERENCE, CutFileKind.MANIFEST, CutFileKind.DATA}
    assert kinds >= {CutFileKind.INDEX, CutFileKind.TRANSACTION}
    assert not [f.file for f in files if "__maintenance" in f.file or "__recovery" in f.file or "hint" in f.file]


def test_the_schema_of_the_freeze_goes_with_it(demo_graph: DemoGraph, stamp: int, tmp_path: Path) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    source = Path(graph.uri, "_schema.pg").read_text()
    freeze = freeze_graph(graph)
    for name in ("_schema.pg", "_schema.ir.json", "__schema_state.json"):
        Path(graph.uri, name).write_text("another schema")
    copy = copy_cut(graph, freeze, tmp_path / "copy.omni")
    assert Path(copy.uri, "_schema.pg").read_text() == source


def test_only_names_of_types_that_were_dropped_before_are_taken_along(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(stamp=3, **SMALL)
    dropped, made = drop(graph, KNOWS), "nodes/0123456789abcdef"
    freeze = freeze_graph(graph)
    lance.write_dataset(pa.table({"id": ["a"]}), Path(graph.uri, made))
    copy = copy_cut(graph, freeze, tmp_path / "copy.omni")
    assert (Path(copy.uri, dropped).exists(), Path(copy.uri, made).exists()) == (True, False)
    record = json.loads(graph.storage.read(hold_path(freeze.freeze_id)))
    del record["freeze"]["cut"]["dropped"]
    graph.storage.write(hold_path(freeze.freeze_id), json.dumps(record).encode())
    listed = {file.file for file in cut_files(graph, read_freeze(graph, freeze.freeze_id))}
    assert any(file.startswith(dropped) for file in listed), "a freeze of an earlier release is read, too"


def test_a_drifted_table_is_copied_as_it_is_published(demo_graph: DemoGraph, stamp: int, tmp_path: Path) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    drift(graph, PERSON, copies("unpublished"))
    rows = rows_everywhere(graph)
    copy = copy_cut(graph, freeze_graph(graph), tmp_path / "copy.omni")
    assert copy.open_head(entry_of(copy, PERSON)).version == entry_of(graph, PERSON).version
    assert rows_everywhere(copy) == rows


def test_somebodys_tag_on_the_cut_is_copied_and_one_on_older_versions_is_not(
    demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph = demo_graph(**SMALL)
    head = graph.open_head(entry_of(graph, PERSON))
    head.tags.create("release", head.version)
    head.tags.create("first", 1)
    copy = copy_cut(graph, freeze_graph(graph), tmp_path / "copy.omni")
    assert set(copy.open_head(entry_of(copy, PERSON)).tags.list()) == {"release"}


def test_a_file_that_is_gone_is_named(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    freeze = freeze_graph(graph)
    victim = next(f for f in cut_files(graph, freeze) if f.kind is CutFileKind.DATA and f.file.startswith("nodes/"))
    Path(graph.uri, victim.source).unlink()
    with pytest.raises(CorruptGraph, match=victim.file):
        cut_files(graph, freeze)


def test_a_version_that_is_gone_is_named(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    freeze = freeze_graph(graph)
    entry = entry_of(graph, PERSON)
    write(graph, PERSON, copies("late"))
    pin = next(f for f in cut_files(graph, freeze) if f.kind is CutFileKind.MANIFEST and f.file.startswith(entry.path))
    Path(graph.uri, pin.source).unlink()
    with pytest.raises(CorruptGraph, match=f"version {entry.version} of {PERSON} is gone"):
        cut_files(graph, freeze)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_branch_made_anew_is_not_listed_as_the_frozen_one(
    demo_graph: DemoGraph, stamp: int, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new branch has the pinned version too."""
    graph = demo_graph(stamp=stamp, **SMALL, lazy_branches=1)
    freeze = freeze_graph(graph)
    (name,) = graph.branches()
    (pin,) = (p for p in freeze.cut.pins if p.branch == name and p.path == "__manifest")

    if when == "before":
        make_branch_anew(graph, name, pin.version)
        assert stored_manifest(graph, pin.path, name, pin.version) is not None
    else:
        found = when_asked(monkeypatch, os, "scandir", about=f"/__manifest/tree/{name}/_versions$", times=None)

        def meanwhile() -> None:
            assert found, "its files are looked for first"
            make_branch_anew(graph, name, pin.version)

        when_asked(monkeypatch, LanceGateway, "branches", meanwhile, about="/__manifest$")
    with pytest.raises(CorruptGraph, match="another one of that name was made"):
        cut_files(graph, freeze)


@pytest.mark.slow
def test_a_copy_that_still_reads_the_original_is_not_taken_for_whole(
    demo_graph: DemoGraph, stamp: int, tmp_path: Path
) -> None:
    """Copied with `cp -r`: its branches read the files of the original."""
    graph = demo_graph(stamp=stamp, **BRANCHED)
    shutil.copytree(graph.uri, tmp_path / "copied.omni")
    copied = open_graph(str(tmp_path / "copied.omni"), graph.settings)
    freeze = freeze_graph(copied)
    with pytest.raises(CorruptGraph, match="another graph"):
        cut_files(copied, freeze)


@pytest.mark.slow
def test_a_root_that_is_spelled_through_a_link_is_the_same_root(
    demo_graph: DemoGraph, stamp: int, tmp_path: Path
) -> None:
    graph = demo_graph(stamp=stamp, **BRANCHED)
    rows = rows_everywhere(graph)
    (tmp_path / "link").symlink_to(tmp_path)
    through = open_graph(str(tmp_path / "link" / Path(graph.uri).name), graph.settings)
    copy = copy_cut(through, freeze_graph(through), tmp_path / "copy.omni")
    Path(graph.uri).rename(tmp_path / "gone.omni")
    assert rows_everywhere(copy) == rows


@pytest.mark.slow
def test_a_root_that_the_engine_was_given_as_a_relative_path_is_the_same_root(
    demo_graph: DemoGraph, stamp: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **BRANCHED)
    rows, home = rows_everywhere(graph), Path(graph.uri)
    for manifest in home.rglob("tree/**/*.manifest"):
        manifest.write_bytes(rename_roots(manifest.read_bytes(), lambda old: old.replace(graph.uri, home.name)))
    monkeypatch.chdir(home.parent)
    with pytest.raises(CorruptGraph, match=r"an engine was given a relative path; set OMNIGRAPH_OPS_ENGINE_ROOT"):
        cut_files(opened(home), freeze_graph(opened(home)))
    graph = opened(home, engine_root=home.name)
    copy = copy_cut(graph, freeze_graph(graph), tmp_path / "copy.omni")
    home.rename(tmp_path / "gone.omni")
    assert rows_everywhere(copy) == rows


@pytest.mark.slow
def test_plain_datasets_with_branches_of_branches(tmp_path: Path) -> None:
    home = tmp_path / "db"
    indexed(home / "items.lance", stable=True)
    indexed(home / "unstable.lance", stable=False)
    item = home / "items.lance"
    first = lance.dataset(str(item)).create_branch("team/a")
    lance.write_dataset(first.to_table(limit=3), first, mode="append")
    second = lance.dataset(str(item)).create_branch("deep", ("team/a", None))
    second.delete("id < 5")
    before = {name: content(item, name) for name in (None, ("team/a", None), ("deep", None))}
    found = {name: answers(home / name) for name in ("items.lance", "unstable.lance")}
    graph = opened(home)
    freeze = freeze_graph(graph)
    append(item, 9000)
    lance.dataset(str(item)).optimize.compact_files()
    lance.dataset(str(item)).cleanup_old_versions(retain_versions=1, error_if_tagged_old_versions=False)
    copy_cut(graph, freeze, tmp_path / "moved" / "db")
    home.rename(tmp_path / "gone")
    moved = tmp_path / "moved" / "db"
    assert {name: content(moved / "items.lance", name) for name in before} == before
    assert {name: answers(moved / name) for name in found} == found


def pictures(path: Path, **bases: object) -> list[bytes]:
    """A dataset with an index and blobs above Lance's inline size, which are files beside the data file. Writes."""
    values = [bytes([n]) * (5 * 1024 * 1024) for n in range(2)]
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("payload")])
    table = pa.table([pa.array([0, 1]), lance.blob_array(values)], schema=schema)
    dataset = lance.write_dataset(table, str(path), data_storage_version="2.2", **bases)
    dataset.create_scalar_index("id", "BTREE")
    return values


def seen(path: Path) -> list[bytes]:
    """The blobs, found through the index."""
    dataset = lance.dataset(str(path))
    found = dataset.scanner(filter="id >= 0", columns=[], with_row_id=True)
    assert "ScalarIndexQuery" in found.explain_plan(True)
    rows = sorted(found.to_table().column("_rowid").to_pylist())
    return [blob.readall() for blob in dataset.take_blobs("payload", ids=rows)]


@pytest.mark.parametrize("place", ["own", "clone", "root", "folder"])
def test_blobs_and_indexes_are_listed_wherever_they_lie(tmp_path: Path, place: str) -> None:
    """In a shallow clone they are the original's, and a registered base has data files and their blobs."""
    home, bases = tmp_path / "db", {}
    if place in {"root", "folder"}:
        (home / "elsewhere").mkdir(parents=True)
        base = lance.DatasetBasePath(str(home / "elsewhere"), name="x", is_dataset_root=place == "root")
        bases = {"initial_bases": [base], "target_bases": ["x"]}
    values = pictures(home / "b.lance", **bases)
    if place == "clone":
        original = lance.dataset(str(home / "b.lance"))
        original.shallow_clone(str(home / "c.lance"), original.version)
        original.delete("true")  # so only the clone reads them
    graph = opened(home)
    freeze = freeze_graph(graph)
    files = [f.file for f in cut_files(graph, freeze)]
    assert [f for f in files if f.endswith(".blob")]
    assert len(files) == len(set(files)), "what two datasets read is listed once"
    copy_cut(graph, freeze, tmp_path / "copy")
    home.rename(tmp_path / "gone")
    assert seen(tmp_path / "copy" / ("c.lance" if place == "clone" else "b.lance")) == values


def test_blobs_that_are_files_of_a_base_are_listed(tmp_path: Path) -> None:
    """Lance lists them nowhere; of a blob outside of every base the dataset has only the URI."""
    home, files = tmp_path / "db", {"ext/a.bin": b"a", "ext/b c/d.bin": b"b", "elsewhere.bin": b"c"}
    for name, data in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)
    blobs = [*(lance.Blob.from_uri((home / name).as_uri().replace("%20", " ")) for name in files), b"inline", None]
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("payload")])
    lance.write_dataset(
        pa.table([pa.array(range(5)), lance.blob_array(blobs)], schema=schema),
        str(home / "items.lance"),
        data_storage_version="2.2",
        initial_bases=[lance.DatasetBasePath(str(home / "ext"), name="x", is_dataset_root=False)],
        allow_external_blob_outside_bases=True,
    )
    graph = opened(home)
    freeze = freeze_graph(graph)
    assert {f.file for f in cut_files(graph, freeze) if f.file.endswith(".bin")} == {"ext/a.bin", "ext/b c/d.bin"}
    copy_cut(graph, freeze, tmp_path / "copy")
    (home / "ext").rename(tmp_path / "gone")
    read = lance.dataset(str(tmp_path / "copy" / "items.lance")).take_blobs("payload", indices=[0, 1, 2, 3])
    assert [blob.readall() for blob in read] == [b"a", b"b", b"c", b"inline"]
    with pytest.raises(
        CorruptGraph, match=r"ext/a.bin and 1 more of the cut is gone; .*; version 1 of items.lance needs"
    ):
        cut_files(graph, freeze)


@pytest.mark.parametrize("base", ["the folder", "a URI", "outside"])
def test_a_base_that_nothing_or_the_folder_itself_is_in_is_no_obstacle(tmp_path: Path, base: str) -> None:
    home = tmp_path / "db"
    (home / "there").mkdir(parents=True)
    place = {"the folder": str(home), "a URI": (home / "there").as_uri(), "outside": str(tmp_path / "outside")}[base]
    used = {} if base == "outside" else {"target_bases": ["x"]}
    bases = [lance.DatasetBasePath(place, name="x", is_dataset_root=False)]
    lance.write_dataset(rows(0, 9), str(home / "items.lance"), initial_bases=bases, **used)
    before = content(home / "items.lance")
    report = backup_graph(opened(home), str(tmp_path / "backups"))
    restored(report.backup, tmp_path / "restored")
    copy_cut(opened(home), freeze_graph(opened(home)), tmp_path / "copy")
    home.rename(tmp_path / "gone")
    assert content(tmp_path / "copy" / "items.lance") == before
    assert content(tmp_path / "restored" / "items.lance") == before


@pytest.mark.parametrize("lost", ["page_lookup.lance", "all of its files"])
def test_an_index_that_is_not_all_there_is_told_and_keeps_no_rows_from_being_copied(tmp_path: Path, lost: str) -> None:
    home = tmp_path / "db"
    pictures(home / "b.lance")
    original = lance.dataset(str(home / "b.lance"))
    original.shallow_clone(str(home / "c.lance"), original.version)
    shutil.rmtree(home / "b.lance" / "_versions")
    (folder,) = (home / "b.lance" / "_indices").iterdir()
    graph = opened(home)
    freeze = freeze_graph(graph)
    if lost == "page_lookup.lance":
        (folder / lost).unlink()
    else:
        shutil.rmtree(folder)
    first = "page_lookup" if "." in lost else "page_data"
    told: list[str] = []
    copied = [file.file for file in cut_files(graph, freeze, told.append)]
    (said,) = (line for line in told if "lacks" in line)
    assert said.startswith(f"table:c: the index id_idx lacks {first}")
    assert said.endswith("; it goes into the copy like that, where every row can be read")
    assert [file for file in copied if file.startswith("b.lance/data/")]
    assert not [file for file in copied if file.endswith("page_lookup.lance")]


def test_whoever_lists_the_files_is_told_of_an_index_that_is_not_all_there(tmp_path: Path, cli: Cli) -> None:
    indexed(tmp_path / "db" / "items.lance", stable=True)
    freeze = freeze_graph(opened(tmp_path / "db"))
    (lost,) = (tmp_path / "db" / "items.lance" / "_indices").glob("*/page_lookup.lance")
    lost.unlink()
    shown = cli(f"files --freeze {freeze.freeze_id}", str(tmp_path / "db"))
    assert shown.code == 0
    assert "lacks page_lookup.lance" in " ".join(shown.err.split())


def test_an_index_that_covers_no_row_may_have_no_file(tmp_path: Path) -> None:
    indexed(tmp_path / "db" / "items.lance", stable=True)
    dataset = lance.dataset(str(tmp_path / "db" / "items.lance"))
    dataset.create_index("vector", "IVF_FLAT", name="later", num_partitions=2, train=False)
    (entry,) = [i for i in dataset.describe_indices() if i.name == "later"]
    assert entry.num_rows_indexed == 0
    graph = opened(tmp_path / "db")
    copy = copy_cut(graph, freeze_graph(graph), tmp_path / "copy")
    assert content(Path(copy.uri, "items.lance")) == content(tmp_path / "db" / "items.lance")


def test_tags_of_plain_datasets_come_with_what_they_keep(tmp_path: Path) -> None:
    home = tmp_path / "db"
    indexed(home / "items.lance", stable=True)
    item = lance.dataset(str(home / "items.lance"))
    item.tags.create("release", 2)
    work = item.create_branch("work")
    work.tags.create("draft", ("work", work.version))
    lance.write_dataset(work.to_table(limit=3), work, mode="append")
    item.optimize.compact_files()
    item.tags.create("gone", 3)
    next((home / "items.lance" / "_versions").glob(f"{2**64 - 1 - 3}.manifest")).unlink()
    marks = (None, "release", "draft", ("work", None))
    rows = [content(home / "items.lance", mark) for mark in marks]
    graph = opened(home)
    copy_cut(graph, freeze_graph(graph), tmp_path / "copy")
    home.rename(tmp_path / "gone")
    copied = tmp_path / "copy" / "items.lance"
    assert [content(copied, mark) for mark in marks] == rows
    assert sorted(lance.dataset(str(copied)).tags.list()) == ["draft", "release"]


def test_a_branch_that_lance_stores_outside_of_its_dataset_is_refused_and_named(tmp_path: Path) -> None:
    append(tmp_path / "db" / "a?b.lance", 0)
    graph = opened(tmp_path / "db")
    copy_cut(graph, freeze_graph(graph), tmp_path / "copy")
    assert content(tmp_path / "copy" / "a?b.lance") == content(tmp_path / "db" / "a?b.lance")
    lance.dataset(str(tmp_path / "db" / "a?b.lance")).create_branch("work")
    with pytest.raises(InvalidInput, match=r"a\?b.lance has a branch and a '\?' in its path"):
        freeze_graph(graph)


@pytest.mark.slow
def test_a_fork_point_whose_transaction_was_collected_before_is_no_loss(
    demo_graph: DemoGraph, stamp: int, tmp_path: Path
) -> None:
    """Lance keeps the manifest of a version where a branch begins, and not its transaction."""
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    write(graph, PERSON, copies("more"))
    rows = rows_everywhere(graph)
    person = entry_of(graph, PERSON).path
    pins = [p for p in freeze_graph(graph).cut.pins if p.path == person and p.branch is None]
    fork = min(pins, key=lambda pin: pin.version)
    (transaction,) = Path(graph.uri, fork.path, "_transactions").glob(f"{fork.version - 1}-*.txn")
    transaction.unlink()
    copy = copy_cut(graph, freeze_graph(graph), tmp_path / "copy.omni")
    Path(graph.uri).rename(tmp_path / "gone.omni")
    assert rows_everywhere(copy) == rows


@pytest.mark.slow
def test_unfreezing_frees_what_only_the_freeze_kept(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    freeze = freeze_graph(graph)
    life_goes_on(graph)
    frozen = {f.source for f in cut_files(graph, freeze)}
    unfreeze(graph, freeze.freeze_id)
    cleanup_all(graph, plan_cleanup(graph, KEEP_1))
    assert [f for f in frozen if not Path(graph.uri, f).exists()]
