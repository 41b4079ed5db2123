"""Backups: whole, resumable, incremental, verifiable; restored they are the cut; nothing stays frozen."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.coordination.freezes import sweep_ended, unfreeze
from omnigraph_ops.coordination.holds import freezes, write_hold
from omnigraph_ops.coordination.state import HOLDS_DIR, RESTORE_LEASE_PATH, RESTORING_PATH
from omnigraph_ops.errors import CorruptGraph, InvalidInput, LeaseHeld, NotAGraph, RecoveryPending, StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import BACKUP_RECORD, MANIFEST_DIR, SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.models.backup import BackupReport, BackupState, FileProblem
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.outcomes.backups import list_backups, read_record
from omnigraph_ops.progress import SILENT, Meter
from omnigraph_ops.stages.backup import claim
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.transfer import CopyPace
from omnigraph_ops.stages.backup.verify import FileLook, FileReader, compare_rows, verify_backup
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support import plain
from tests.support.backups import flip, hide, killed_backup, restored
from tests.support.edges import copied, raising, when_asked, when_copied
from tests.support.freezes import freeze_tags
from tests.support.leases import take_over
from tests.support.orphans import KNOWS, below, drop, name_mark
from tests.support.rows import rows_everywhere, tree_of
from tests.support.shell import Cli, assert_refused
from tests.support.waits import stop_lease_clock
from tests.support.writers import Change, copies, delete_first, write

pytestmark = pytest.mark.slow

PERSON = "node:Person"
SPEC: dict[str, Any] = {
    "node_types": 1,
    "loads": 2,
    "rows": 12,
    "deletes": 2,
    "lazy_branches": 1,
    "written_branches": 1,
}
CHANGES: tuple[Callable[[int], Change], ...] = (
    lambda number: copies(f"late-{number}-"),
    lambda _number: delete_first(),
    lambda _number: lambda dataset: dataset.optimize.compact_files(),
)


def assert_released(graph: Graph) -> None:
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())


def files_of(report: BackupReport) -> dict[str, str]:
    return {name: kind for name, kind in tree_of(f"{report.backup}/files").items() if kind != "folder"}


def test_a_restored_graph_is_the_cut_although_everything_went_on(
    demo_graph: DemoGraph, tmp_path: Path, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **SPEC)
    rows = rows_everywhere(graph)
    busy = itertools.count()

    def others_work() -> None:
        number = next(busy)
        write(graph, PERSON, CHANGES[number % 3](number))
        place = next(e.path for e in graph.state().entries if e.table_key == PERSON)
        lance.dataset(f"{graph.uri}/{place}").cleanup_old_versions(
            older_than=timedelta(0), error_if_tagged_old_versions=False
        )

    when_copied(monkeypatch, others_work, times=6)
    one = open_graph(graph.uri, Settings(concurrency=1))
    report = backup_graph(one, str(tmp_path / "backups"))
    assert rows_everywhere(graph) != rows
    assert_released(graph)
    assert verify_backup(report.backup, graph=graph).problems == ()
    hide(graph)
    again = restored(report.backup, tmp_path / "restored")
    assert rows_everywhere(again) == rows
    write(again, PERSON, copies("on-"))
    record = read_record(Storage(str(tmp_path / "backups")), report.backup_id)
    gone, new = (problem.reason for problem in compare_rows(again, record))
    assert gone.startswith(f"{PERSON} on main has no rows at version "), gone
    assert new.endswith("instead of no"), new
    assert not cleanup_all(again, plan_cleanup(again, RetentionPolicy(keep_versions=1))).failed


def test_plain_lance(tmp_path: Path) -> None:
    root = plain.database(tmp_path / "db")
    rows = {
        name: (plain.content(root / name), plain.answers(root / name)) for name in ("stable.lance", "unstable.lance")
    }
    lance.dataset(str(root / "stable.lance")).create_branch("work")
    report = backup_graph(plain.opened(root), str(tmp_path / "backups"))
    again = restored(report.backup, tmp_path / "restored")
    assert_released(again)
    place = tmp_path / "restored"
    (tmp_path / "db").rename(tmp_path / "hidden")
    assert {name: (plain.content(place / name), plain.answers(place / name)) for name in rows} == rows
    assert list(lance.dataset(str(place / "stable.lance")).branches.list()) == ["work"]


def test_an_incremental_backup_reads_only_what_is_new(demo_graph: DemoGraph, tmp_path: Path, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SPEC)
    first = backup_graph(graph, str(tmp_path / "backups"))
    before = files_of(first)
    write(graph, PERSON, copies("later-"))
    rows = rows_everywhere(graph)
    options = BackupOptions(incremental_from=first.backup)
    second = backup_graph(graph, str(tmp_path / "backups"), options)
    lasting = {f for f in files_of(second) if "/data/" in f or "/_indices/" in f or "_deletions" in f or ".txn" in f}
    assert second.linked.files == len(lasting & set(before))
    assert second.copied.files == len(files_of(second)) - second.linked.files
    assert second.copied.bytes < first.copied.bytes
    assert files_of(first) == before
    assert verify_backup(second.backup).problems == ()
    shutil.rmtree(first.backup)
    assert rows_everywhere(restored(second.backup, tmp_path / "restored")) == rows, "whole without the earlier one"


def test_a_blob_that_its_owner_replaced_under_its_name_is_copied_anew(tmp_path: Path) -> None:
    """Files of a registered base have the names that their owner gave them: name and size tell nothing."""
    home = tmp_path / "db"
    (home / "ext").mkdir(parents=True)
    picture = home / "ext" / "a.bin"
    base = lance.DatasetBasePath(str(home / "ext"), name="x", is_dataset_root=False)

    def load(mode: str, content: bytes, **bases: Any) -> None:
        picture.write_bytes(content)
        blobs = lance.blob_array([lance.Blob.from_uri(picture.as_uri())])
        schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("payload")])
        table = pa.table([pa.array([0]), blobs], schema=schema)
        lance.write_dataset(table, str(home / "items.lance"), mode=mode, data_storage_version="2.2", **bases)

    load("create", b"old", initial_bases=[base])
    first = backup_graph(plain.opened(home), str(tmp_path / "backups"))
    load("append", b"new")
    second = backup_graph(plain.opened(home), str(tmp_path / "backups"), BackupOptions(incremental_from=first.backup))
    assert (Path(first.backup) / "files/ext/a.bin").read_bytes() == b"old"
    assert (Path(second.backup) / "files/ext/a.bin").read_bytes() == b"new"
    assert verify_backup(second.backup, graph=plain.opened(home)).problems == ()


def test_a_backup_that_could_not_begin_leaves_nothing(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, target = demo_graph(**SPEC), tmp_path / "backups"
    graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
    with pytest.raises(RecoveryPending):
        backup_graph(graph, str(target))
    assert (list_backups(str(target)).backups, list(target.rglob("*"))) == ((), [])


@pytest.mark.night("combinations")
@pytest.mark.parametrize(
    ("point", "number"),
    [("copy_file", 2), ("fsync", 24), ("copy_file", 30), ("write_record", 1)],
)
def test_a_killed_backup_is_never_restored_and_goes_on(
    demo_graph: DemoGraph, tmp_path: Path, point: str, number: int
) -> None:
    graph, target = demo_graph(**SPEC), tmp_path / "backups"
    rows = rows_everywhere(graph)
    killed_backup(graph.uri, target, point, number)
    (left,) = list_backups(str(target)).backups
    assert left.state is BackupState.UNFINISHED
    with pytest.raises(InvalidInput, match="unfinished and is never restored"):
        restore_backup(left.backup, str(tmp_path / "no"))
    assert not (tmp_path / "no").exists()
    (hold,) = freezes(graph.storage)
    there = {p: p.stat().st_ino for p in (target / left.backup_id / "files").rglob("*") if p.is_file()}
    write(graph, PERSON, copies("later-"))
    report = backup_graph(graph, str(target))
    assert (report.backup_id, report.resumed, report.freeze_id) == (left.backup_id, True, hold.hold_id)
    lasting = {p: inode for p, inode in there.items() if p.suffix == ".lance"}
    assert {p: p.stat().st_ino for p in lasting} == lasting, "what was there was not copied again"
    assert report.kept.files >= len(lasting)
    assert not list(target.rglob("*.part"))
    assert_released(graph)
    assert verify_backup(report.backup).problems == ()
    assert rows_everywhere(restored(report.backup, tmp_path / "restored")) == rows, "the cut of the killed attempt"


def test_a_backup_that_was_killed_before_it_began_is_taken_over(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, target = demo_graph(**SPEC), tmp_path / "backups"
    killed_backup(graph.uri, target, "fsync", 2)
    report = backup_graph(graph, str(target))
    assert [b.backup_id for b in list_backups(str(target)).backups] == [report.backup_id]
    assert verify_backup(report.backup).problems == ()
    sweep_ended(graph)
    assert_released(graph)


@pytest.mark.parametrize("given", [False, True], ids=["its own freeze", "the freeze of a caller"])
def test_a_backup_that_was_killed_before_it_noted_its_freeze_leaves_none(
    demo_graph: DemoGraph, tmp_path: Path, given: bool
) -> None:
    graph, target = demo_graph(**SPEC), tmp_path / "backups"
    killed_backup(graph.uri, target, "write_start")
    (left,) = freezes(graph.storage)
    options = BackupOptions(freeze_id=freeze_graph(graph).freeze_id if given else None)
    report = backup_graph(graph, str(target), options)
    assert report.freeze_id == (options.freeze_id or left.hold_id)
    assert [hold.hold_id for hold in freezes(graph.storage)] == ([options.freeze_id] if given else [])
    assert [b.backup_id for b in list_backups(str(target)).backups] == [report.backup_id]
    assert verify_backup(report.backup).problems == ()


def test_a_backup_that_was_killed_after_it_was_finished_leaves_nothing_to_the_next_one(
    demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph, target = demo_graph(**SPEC), tmp_path / "backups"
    killed_backup(graph.uri, target, "tidy")
    (left,), (journal,) = list_backups(str(target)).backups, target.glob("*/journal")
    assert (left.state, len(freezes(graph.storage))) == (BackupState.FINISHED, 1)
    theirs = freeze_graph(graph, reason=f"backup {left.backup_id}")
    backup_graph(graph, str(tmp_path / "elsewhere"))
    assert len(freezes(graph.storage)) == 2, "of a backup to another place, which may be at work"
    assert not backup_graph(graph, str(target)).resumed
    assert [hold.hold_id for hold in freezes(graph.storage)] == [theirs.freeze_id], "only the reason is the same"
    assert not journal.exists()
    assert verify_backup(left.backup).problems == ()


def test_after_its_freeze_expired_a_killed_backup_goes_on_with_another_cut(
    demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph, target = demo_graph(**SPEC), tmp_path / "backups"
    killed_backup(graph.uri, target, "copy_file", 25)
    (hold,) = freezes(graph.storage)
    assert hold.expires_at - time.time() <= claim.OWN_TTL_SECONDS
    write_hold(graph.storage, replace(hold, expires_at=time.time() - 1))
    assert sweep_ended(graph) == (hold.hold_id,)
    assert_released(graph)
    write(graph, PERSON, copies("later-"))
    rows = rows_everywhere(graph)
    report = backup_graph(graph, str(target))
    assert report.resumed
    assert report.freeze_id != hold.hold_id
    assert report.kept.files > 0
    assert verify_backup(report.backup).problems == ()
    assert rows_everywhere(restored(report.backup, tmp_path / "restored")) == rows


def test_a_killed_backup_of_a_branch_that_was_deleted_goes_on_with_another_cut(
    demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph, target = demo_graph(**SPEC), tmp_path / "backups"
    entry = next(e for name in graph.branches() for e in graph.state(name).entries if e.branch is not None)
    killed_backup(graph.uri, target, "copy_file", 25)
    (hold,) = freezes(graph.storage)
    for path in (entry.path, MANIFEST_DIR):
        delete_branch(graph, replace(entry, path=path))
    report = backup_graph(open_graph(graph.uri), str(target))
    assert report.resumed
    assert report.freeze_id != hold.hold_id
    assert freezes(graph.storage) == ()
    assert verify_backup(report.backup).problems == ()
    assert rows_everywhere(restored(report.backup, tmp_path / "restored")) == rows_everywhere(open_graph(graph.uri))


@pytest.mark.parametrize("error", [StorageError("disk full"), KeyboardInterrupt()], ids=["failed", "interrupted"])
def test_the_freeze_ends_with_a_backup_that_fails(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    graph = demo_graph(**SPEC)
    when_copied(monkeypatch, raising(error), times=None)
    with pytest.raises(type(error)):
        backup_graph(graph, str(tmp_path / "backups"))
    assert_released(graph)
    assert [b.state for b in list_backups(str(tmp_path / "backups")).backups] == [BackupState.UNFINISHED]


def test_its_own_freeze_lasts_as_long_as_it_works(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, ends = demo_graph(**SPEC), list[float]()

    def slow() -> None:
        ends.append(freezes(graph.storage)[0].expires_at)
        when_asked(monkeypatch, Storage, "write", raising(StorageError("Slow Down")), about=f"^{HOLDS_DIR}/")
        while freezes(graph.storage)[0].expires_at == ends[0]:
            time.sleep(0.05)

    when_asked(monkeypatch, lance.LanceDataset, "count_rows", slow)
    monkeypatch.setattr(claim, "OWN_TTL_SECONDS", 6.0)
    backup_graph(graph, str(tmp_path / "backups"))
    assert ends
    assert_released(graph)


def test_the_callers_freeze_stays(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    freeze = freeze_graph(graph)
    report = backup_graph(graph, str(tmp_path / "backups"), BackupOptions(freeze_id=freeze.freeze_id))
    assert report.freeze_id == freeze.freeze_id
    assert [h.hold_id for h in freezes(graph.storage)] == [freeze.freeze_id]
    unfreeze(graph, freeze.freeze_id)
    with pytest.raises(InvalidInput, match="has no freeze"):
        backup_graph(graph, str(tmp_path / "backups"), BackupOptions(freeze_id=freeze.freeze_id))
    part = freeze_graph(graph, tables=(PERSON,))
    with pytest.raises(InvalidInput, match="node:Person only"):
        backup_graph(graph, str(tmp_path / "backups"), BackupOptions(freeze_id=part.freeze_id))
    assert len(list_backups(str(tmp_path / "backups")).backups) == 1


def delete_branch(graph: Graph, entry: TableEntry) -> None:
    """As the engine does: Lance refuses to delete a branch with tags, the engine removes its files."""
    place, branch = Path(graph.table_uri(entry)), str(entry.branch)
    (place / "_refs" / "branches" / f"{quote(branch, safe='')}.json").unlink()
    shutil.rmtree(place / "tree" / branch)


def test_a_freeze_that_lost_a_branch_is_said_before_anything_is_copied(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    entry = next(e for name in graph.branches() for e in graph.state(name).entries if e.branch is not None)
    freeze = freeze_graph(graph)
    delete_branch(graph, entry)
    said = f"has lost something of what it keeps: branch {entry.branch} of {entry.path} .*nothing was copied"
    with pytest.raises(CorruptGraph, match=said):
        backup_graph(graph, str(tmp_path / "backups"), BackupOptions(freeze_id=freeze.freeze_id))
    assert not (tmp_path / "backups").exists()


def test_a_branch_that_somebody_deletes_meanwhile_is_named(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SPEC)
    entry = next(e for name in graph.branches() for e in graph.state(name).entries if e.branch is not None)
    branch = str(entry.branch)
    entries = [e for name in (None, *graph.branches()) for e in graph.state(name).entries]
    last = len({(e.path, e.branch, e.version) for e in entries}) - 1
    # The last that is read of the graph are its rows: only the look at the end can tell.
    deleted = partial(delete_branch, graph, entry)
    when_asked(monkeypatch, lance.LanceDataset, "count_rows", deleted, skip=last, after=True)
    with pytest.raises(CorruptGraph, match=f"branch {branch} of {entry.path} .*its branch was deleted"):
        backup_graph(graph.with_settings(Settings(concurrency=1)), str(tmp_path / "backups"))
    assert_released(graph)
    assert [b.state for b in list_backups(str(tmp_path / "backups")).backups] == [BackupState.UNFINISHED]


def test_a_copy_that_is_gone_before_the_end_is_no_backup(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SPEC)

    def lost() -> None:
        next((tmp_path / "backups").rglob("data/*.lance")).unlink()

    when_asked(monkeypatch, lance.LanceDataset, "count_rows", lost)
    with pytest.raises(CorruptGraph, match="is not in the backup as it was copied"):
        backup_graph(graph, str(tmp_path / "backups"))
    assert [b.state for b in list_backups(str(tmp_path / "backups")).backups] == [BackupState.UNFINISHED]


def test_verify_names_every_file_that_is_not_as_backed_up(demo_graph: DemoGraph, tmp_path: Path, cli: Cli) -> None:
    graph = demo_graph(**SPEC)
    report = backup_graph(graph, str(tmp_path / "backups"))
    assert cli("verify", report.backup).code == 0
    base = Path(report.backup, "files")
    flipped, gone, longer = [f for f in sorted(files_of(report)) if f.endswith(".lance")][:3]
    whole = {name: (base / name).read_bytes() for name in (gone, longer)}
    data = bytearray((base / flipped).read_bytes())
    data[len(data) // 2] ^= 1
    (base / flipped).write_bytes(data)
    (base / gone).unlink()
    with (base / longer).open("ab") as handle:
        handle.write(b"!")
    (base / "stray").write_bytes(b"?")
    outcome = cli("verify --json", report.backup)
    assert outcome.code == 1
    found = {p["file"]: p["reason"] for p in outcome.json["problems"]}
    assert set(found) == {flipped, gone, longer, "stray"}
    assert "checksum" in found[flipped]
    assert found[gone] == "is missing"
    assert "bytes instead of" in found[longer]
    for name, content in whole.items():
        (base / name).write_bytes(content)
    instead = f"there is no graph at {tmp_path}/restored, .* restore an earlier backup to another, empty place"
    with pytest.raises(CorruptGraph, match=rf"has the checksum .* instead of .*; it was not copied; {instead}"):
        restore_backup(report.backup, str(tmp_path / "restored"), settings=Settings())
    assert not (tmp_path / "restored" / "__manifest" / "_versions").exists(), "nobody takes it for a graph"
    flip(report.backup, flipped)
    record = json.loads(Path(report.backup, "backup.json").read_text())
    flip(report.backup, next(file["file"] for file in record["files"] if file["records_root"]))
    with pytest.raises(CorruptGraph, match=f"of the backup is not what was backed up; {instead}"):
        restore_backup(report.backup, str(tmp_path / "restored"), settings=Settings())


def test_verify_reads_what_the_graph_still_has(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    report = backup_graph(graph, str(tmp_path / "backups"))
    name = next(f for f in sorted(files_of(report)) if f.endswith(".lance"))
    place = Path(graph.uri, name)
    data = bytearray(place.read_bytes())
    data[-1] ^= 1
    place.write_bytes(data)
    (problem,) = verify_backup(report.backup, graph=graph).problems
    assert problem.file == name
    assert problem.reason.startswith("in the graph it has the checksum")


def test_what_a_cleanup_takes_from_the_graph_during_a_verify_is_no_damage(
    demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph = demo_graph(node_types=1, loads=3, rows=12)
    report = backup_graph(graph, str(tmp_path / "backups"))
    names = [f for f in sorted(files_of(report)) if f.endswith(".lance")]
    whole = verify_backup(report.backup, graph=graph)
    read = FileReader(CopyPace(None), Meter(SILENT, "verifying", 0, "bytes"))

    def meanwhile(storage: Storage, looks: Sequence[FileLook], where: str = "", /) -> list[FileProblem]:
        if where:
            write(graph, PERSON, lambda dataset: dataset.optimize.compact_files())
            cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1)))
            place = next(place for name in names if (place := Path(graph.uri, name)).exists())
            place.write_bytes(place.read_bytes()[:-1] + b"!")
        return read(storage, looks, where)

    verified = verify_backup(report.backup, graph=graph, reader=meanwhile)
    gone = [name for name in names if not Path(graph.uri, name).exists()]
    assert gone
    (problem,) = verified.problems
    assert problem.reason.startswith("in the graph it has the checksum")
    assert verified.compared_with_graph <= whole.compared_with_graph - len(gone)


def test_a_restore_goes_to_an_empty_place_only(demo_graph: DemoGraph, tmp_path: Path, cli: Cli) -> None:
    graph = demo_graph(**SPEC)
    report = backup_graph(graph, str(tmp_path / "backups"))
    place = tmp_path / "place"
    place.mkdir()
    (place / "mine").write_text("keep")
    assert_refused(cli("restore", report.backup, str(place)), "there is something at")
    assert tree_of(place) == {"mine": tree_of(place)["mine"]}
    (place / "mine").unlink()
    Storage(str(place)).write(RESTORING_PATH, b"another backup")
    assert_refused(cli("restore", report.backup, str(place)), f"a restore of another backup to {place} did not end")
    (place / RESTORING_PATH).unlink()
    assert cli("restore", report.backup, str(place)).code == 0
    write(open_graph(str(place)), PERSON, copies("on-"))
    assert_refused(cli("restore", report.backup, str(place)), "there is something at")


def test_a_restore_does_not_touch_what_another_one_has_just_restored(
    demo_graph: DemoGraph, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its note would make the graph of the other one, which engines work on by then, count as half restored."""
    graph = demo_graph(**SPEC)
    place, rows = tmp_path / "place", rows_everywhere(graph)
    words = ("restore", backup_graph(graph, str(tmp_path / "backups")).backup, str(place))
    when_asked(monkeypatch, Storage, "create", lambda: cli(*words), about=RESTORE_LEASE_PATH)
    assert_refused(cli(*words), f"another restore of this backup to {place} has just ended; nothing was written")
    assert not (place / RESTORING_PATH).exists()
    assert rows_everywhere(open_graph(str(place))) == rows


def test_a_restore_that_could_not_be_compared_is_compared_by_the_next_one(
    demo_graph: DemoGraph, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SPEC)
    words = ("restore", backup_graph(graph, str(tmp_path / "backups")).backup, str(tmp_path / "place"))
    with monkeypatch.context() as patch:
        when_asked(patch, lance, "dataset", raising(OSError("403 ExpiredToken")))
        late = cli(*words)
    assert_refused(late, "every file of the backup is at")
    assert "run again, compares it" in late.err
    assert "nothing was written" not in late.err
    before = tree_of(tmp_path / "place")
    compared = cli(*words)
    assert (compared.code, "0 files, 0 B" in compared.out) == (0, True)
    assert tree_of(tmp_path / "place") == before
    (tmp_path / "place" / next(p for p in before if "/data/" in p)).write_bytes(b"")
    assert_refused(cli(*words), "there is something at")


def test_a_killed_restore_goes_on(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    report = backup_graph(graph, str(tmp_path / "backups"))
    place = tmp_path / "place"
    again = restored(report.backup, place)
    rows = rows_everywhere(again)
    note = json.loads(Path(report.backup, "backup.json").read_text())["digest"]
    again.storage.write(RESTORING_PATH, note.encode())
    for lost in [*place.glob("__manifest/_versions/*"), *place.rglob("*.lance/_versions/*")]:
        lost.unlink()
    next(p for p in place.rglob("data/*.lance")).write_bytes(b"torn")
    assert rows_everywhere(restored(report.backup, place)) == rows
    assert not (place / RESTORING_PATH).exists()


def test_a_restore_that_is_killed_before_its_last_file_is_no_graph_yet(
    demo_graph: DemoGraph, stamp: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Main of the graph manifest may have several versions: with one of them alone it would open as another graph."""
    graph = demo_graph(stamp=stamp, **SPEC)
    report = backup_graph(graph, str(tmp_path / "backups"))
    with monkeypatch.context() as killing:
        when_copied(killing, raising(KeyboardInterrupt()), about=r"__schema_state\.json$")
        asked = when_copied(killing)
        with pytest.raises(KeyboardInterrupt):
            restored(report.backup, tmp_path / "place")
    *_, newest, last = copied(asked)
    assert last.endswith("__schema_state.json")
    assert newest.startswith(str(tmp_path / "place" / "__manifest" / "_versions"))
    with pytest.raises(NotAGraph, match=r"the restore to .* has not ended"):
        open_graph(str(tmp_path / "place"))
    assert rows_everywhere(restored(report.backup, tmp_path / "place")) == rows_everywhere(graph)


def test_a_backup_is_no_part_of_its_graph(demo_graph: DemoGraph, cli: Cli) -> None:
    graph = demo_graph(**SPEC)
    assert_refused(cli("backup", graph.uri, f"{graph.uri}/backups"), "is inside the graph")
    assert_released(graph)


def test_two_at_once_do_not_share_a_folder(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, target = demo_graph(**SPEC), str(tmp_path / "backups")
    inner = list[BackupReport]()
    when_asked(
        monkeypatch, Storage, "write", lambda: inner.append(backup_graph(graph, target)), about=f"/{BACKUP_RECORD}$"
    )
    outer = backup_graph(graph, target)
    assert inner[0].backup_id != outer.backup_id
    assert not inner[0].resumed
    assert_released(graph)


def test_the_list_and_the_shell(demo_graph: DemoGraph, tmp_path: Path, cli: Cli) -> None:
    graph, target = demo_graph(**SPEC), tmp_path / "backups"
    done = cli("backup", graph.uri, str(target), "--json", "--max-bytes-per-second", "1GB")
    assert done.code == 0
    first = done.json["backup"]
    assert "copying: " in done.err
    assert cli("backup", graph.uri, str(target), "--quiet", "--incremental-from", first).err == ""
    killed_backup(graph.uri, target, "copy_file", 3)
    Path(first, "backup.json").write_text("{}")
    found = {b["backup_id"]: b for b in cli("backups --json", str(target)).json["backups"]}
    assert [found[i]["state"] for i in sorted(found)] == ["damaged", "finished", "unfinished"]
    assert found[sorted(found)[1]]["incremental_from"] == done.json["backup_id"]
    text = cli("backups", str(target)).out
    assert "unfinished" in text
    (second,) = (line for line in text.splitlines() if line.startswith(f"  {sorted(found)[1]} "))
    assert done.json["backup_id"] in second
    assert_refused(cli("verify", str(target)), "is not a backup")
    assert_refused(cli("backup", graph.uri), "a graph and a destination", code=2)
    assert_refused(cli("backup", graph.uri, str(target), "--max-bytes-per-second", "0"), "at least 1", code=2)
    assert_refused(cli("backup", graph.uri, str(target), "--incremental-from", str(target / "x")), "is not a backup")
    assert_refused(cli("backup", graph.uri, str(target), "--incremental"), "No such option", code=2)
    (found,) = cli("history --json --last 1", graph.uri).json["runs"]
    assert found["header"]["verb"] == "backup"


def test_the_destination_stands_alone_where_an_option_names_the_graph(
    demo_graph: DemoGraph, tmp_path: Path, cli: Cli
) -> None:
    graph = demo_graph(**SPEC)
    assert cli("backup", str(tmp_path / "backups"), "--store", graph.uri).code == 0
    assert len(list((tmp_path / "backups").iterdir())) == 1
    assert_refused(cli("backup", "--store", graph.uri), "a graph and a destination; nothing was copied", code=2)


def test_a_backup_has_what_tells_that_the_name_of_a_dropped_table_was_used(
    demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph = demo_graph(stamp=3, node_types=1, loads=1, rows=4)
    path = drop(graph, KNOWS)
    mark = name_mark(graph, below(graph, path))
    report = backup_graph(graph, str(tmp_path / "backups"))
    assert verify_backup(report.backup).problems == ()
    assert len(mark) == 1
    # That the schema still has the dropped table is a problem of its own.
    restore_backup(report.backup, str(tmp_path / "again"), settings=Settings())
    assert {p.name for p in (tmp_path / "again" / path).rglob("*") if p.is_file()} == {Path(*mark).name}


@pytest.mark.parametrize("verb", ["backup", "restore"])
def test_who_was_taken_over_while_it_slept_writes_no_further_file(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    graph = open_graph(demo_graph(**SPEC).uri, Settings(concurrency=1))
    made, clock = backup_graph(graph, str(tmp_path / "first")), stop_lease_clock(monkeypatch)

    def sleeping() -> None:
        clock.seconds += 3600
        lease = RESTORE_LEASE_PATH
        if verb == "backup":
            (claimed,) = (tmp_path / "second").glob("*/lease-*")
            lease = f"{claimed.parent.name}/lease"
        take_over(Storage(str(tmp_path / ("second" if verb == "backup" else "place"))), lease)

    copied = when_copied(monkeypatch, sleeping, skip=1, after=True)
    with pytest.raises(LeaseHeld, match="was taken over by another run"):
        if verb == "backup":
            backup_graph(graph, str(tmp_path / "second"))
        else:
            restore_backup(made.backup, str(tmp_path / "place"), settings=Settings(concurrency=1))
    assert len(copied) == 2
