"""What a backup decides without a graph: copy, take, keep or prove; pace; records; copies that do not end."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops.errors import CorruptGraph, InvalidInput, OpsError
from omnigraph_ops.models.backup import BackedFile, BackupRecord, BackupStart, JournalledFile, JournalledFiles
from omnigraph_ops.models.freeze import CutFile, CutFileKind
from omnigraph_ops.outcomes.backups import backup_of, read_record, write_record, write_start
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.backup.transfer import CopyJournal, CopyPace, Earlier, plan_copy, read_journal
from omnigraph_ops.storage.copying import Expected, copy_file, copy_within, link_file
from omnigraph_ops.storage.store import Storage

ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
DATA = CutFile(file="nodes/1/data/a.lance", source="nodes/1/data/a.lance", size=10, kind=CutFileKind.DATA)
MANIFEST = CutFile(file="nodes/1/_versions/7", source="nodes/1/_versions/7", size=5, kind=CutFileKind.MANIFEST)
SUM = "sha256:" + "a" * 64


def record(*files: BackedFile) -> BackupRecord:
    return BackupRecord(
        backup_id=ID,
        uri="/graph",
        stamp=6,
        freeze_id=ID,
        started_at=1,
        cut_at=2,
        finished_at=3,
        tool_version="0",
        incremental_from=None,
        one_instant=True,
        branches=(),
        files=files,
        roots=(),
        rows=(),
    )


def earlier(file: CutFile, *, size: int | None = None, checksum: str | None = SUM) -> Earlier:
    backed = BackedFile(file=file.file, size=file.size, kind=file.kind, checksum=checksum)
    present = {file.file: file.size if size is None else size}
    return Earlier(storage=Storage("/backups"), record=record(backed), present=present)


def journal(*files: CutFile, freeze_id: str = "one", checksum: str | None = SUM) -> list[JournalledFiles]:
    noted = tuple(JournalledFile(file=f.file, size=f.size, checksum=checksum) for f in files)
    return [JournalledFiles(freeze_id=freeze_id, files=noted)]


def test_everything_is_copied_where_nothing_is() -> None:
    plan = plan_copy([DATA, MANIFEST], freeze_id="one", present={})
    assert (plan.copy, plan.link, plan.keep, plan.unproven, plan.remove) == ((DATA, MANIFEST), (), (), (), ())


def test_of_an_earlier_backup_only_files_that_are_never_written_twice_are_taken() -> None:
    taken = plan_copy([DATA], freeze_id="one", present={}, earlier=earlier(DATA))
    assert taken.link == (replace(DATA, checksum=SUM),)
    assert plan_copy([MANIFEST], freeze_id="one", present={}, earlier=earlier(MANIFEST)).copy == (MANIFEST,)


def test_an_earlier_file_that_changed_or_has_no_checksum_when_one_is_needed_is_read_again() -> None:
    assert plan_copy([DATA], freeze_id="one", present={}, earlier=earlier(DATA, size=9)).copy == (DATA,)
    bare = earlier(DATA, checksum=None)
    assert plan_copy([DATA], freeze_id="one", present={}, earlier=bare).link == (DATA,)
    assert plan_copy([DATA], freeze_id="one", present={}, earlier=bare, need_checksums=True).copy == (DATA,)


def test_a_damaged_file_is_neither_taken_nor_kept_nor_proven() -> None:
    here, damaged = {DATA.file: 10}, {DATA.file}
    old = earlier(DATA)
    plans = [
        plan_copy([DATA], freeze_id="one", present={}, earlier=old, damaged=damaged),
        plan_copy([DATA], freeze_id="one", present=here, journal=journal(DATA), damaged=damaged),
        plan_copy([DATA], freeze_id="one", present=here, damaged=damaged),
    ]
    assert [(p.copy, p.link, p.keep, p.unproven) for p in plans] == [((DATA,), (), (), ())] * 3
    assert [p.remove for p in plans] == [(), (DATA.file,), (DATA.file,)]


def test_what_the_journal_names_and_is_there_stays() -> None:
    present = {DATA.file: 10, MANIFEST.file: 5}
    plan = plan_copy([DATA, MANIFEST], freeze_id="one", present=present, journal=journal(DATA, MANIFEST))
    assert plan.keep == (replace(DATA, checksum=SUM), replace(MANIFEST, checksum=SUM))
    assert plan_copy([DATA], freeze_id="one", present={}, journal=journal(DATA)).copy == (DATA,)
    assert plan_copy([DATA], freeze_id="one", present={DATA.file: 3}, journal=journal(DATA)).copy == (DATA,)


def test_another_cut_takes_over_data_and_reads_manifests_again() -> None:
    present = {DATA.file: 10, MANIFEST.file: 5}
    plan = plan_copy([DATA, MANIFEST], freeze_id="two", present=present, journal=journal(DATA, MANIFEST))
    assert (plan.keep, plan.copy) == ((replace(DATA, checksum=SUM),), (MANIFEST,))


def test_what_arrived_after_the_last_journal_entry_is_proven_and_not_copied() -> None:
    plan = plan_copy([DATA, MANIFEST], freeze_id="one", present={DATA.file: 10, MANIFEST.file: 5})
    assert (plan.unproven, plan.copy) == ((DATA,), (MANIFEST,))


def test_leftovers_of_an_attempt_go() -> None:
    stray = f"{DATA.file}.{'0' * 32}.part"
    assert plan_copy([DATA], freeze_id="one", present={stray: 4, "old": 1}).remove == tuple(sorted([stray, "old"]))


def test_the_journal_survives_a_damaged_part(tmp_path: Path) -> None:
    store = Storage(str(tmp_path))
    notes = CopyJournal(store, ID, "one")
    notes.note(JournalledFile(file="a", size=1, checksum=SUM))
    notes.close()
    store.write(f"{ID}/journal/{ID}.json", b"{half")
    assert [f.file for batch in read_journal(store, ID) for f in batch.files] == ["a"]


def test_a_record_is_trusted_only_as_it_was_sealed(tmp_path: Path) -> None:
    store = Storage(str(tmp_path))
    with pytest.raises(InvalidInput, match="there is no backup"):
        read_record(store, ID)
    start = BackupStart(backup_id=ID, uri="/graph", started_at=1, freeze_id=ID, own_freeze=True, tool_version="0")
    write_start(store, start)
    with pytest.raises(InvalidInput, match="unfinished and is never restored"):
        read_record(store, ID)
    sealed = write_record(store, record())
    assert read_record(store, ID) == sealed
    path = tmp_path / ID / "backup.json"
    path.write_text(path.read_text().replace('"/graph"', '"/other"'))
    with pytest.raises(CorruptGraph, match="altered after it was sealed"):
        read_record(store, ID)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(CorruptGraph, match="damaged"):
        read_record(store, ID)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "nodes/../../x", "nodes//x", ""])
def test_a_record_that_leads_out_of_the_graph_is_refused(tmp_path: Path, path: str) -> None:
    store = Storage(str(tmp_path))
    write_record(store, record(BackedFile(file=path, size=1, kind=CutFileKind.DATA)))
    with pytest.raises(CorruptGraph, match="outside of any graph"):
        read_record(store, ID)


def test_only_the_folder_of_one_backup_is_a_backup(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a backup"):
        backup_of(str(tmp_path))
    storage, backup_id = backup_of(f"{tmp_path}/{ID}/")
    assert (storage.root, backup_id) == (str(tmp_path), ID)


@pytest.mark.parametrize("size", [0, 100, 300_000])
def test_a_copy_is_what_the_source_is(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    store, seen = Storage(str(tmp_path)), list[int]()
    checksum = copy_file(
        (store, "a"), (store, "b/c"), Expected(size=size), pacing=CopyPace(250_000_000), on_bytes=seen.append
    )
    assert (tmp_path / "b" / "c").read_bytes() == (tmp_path / "a").read_bytes()
    assert sum(seen) == size
    again = Expected(size=size, checksum=checksum)
    assert copy_file((store, "a"), (store, "d"), again, pacing=CopyPace(None)) == checksum


@pytest.mark.parametrize("expected", [Expected(size=7), Expected(size=3, checksum=SUM)])
def test_what_is_not_as_expected_never_gets_its_name(tmp_path: Path, expected: Expected) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    store = Storage(str(tmp_path))
    with pytest.raises(CorruptGraph, match="instead of"):
        copy_file((store, "a"), (store, "b"), expected, pacing=CopyPace(None))
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_files_with_the_longest_names_are_written_and_copied(tmp_path: Path) -> None:
    """Those of branches that the engine makes are a few bytes shorter than a name may be."""
    store, name = Storage(str(tmp_path)), f"{'x' * 248}.json"
    store.write(name, b"abc")
    assert store.create(f"new/{name}", b"abc")
    copy_file((store, name), (store, f"copy/{name}"), Expected(size=3), pacing=CopyPace(None))
    assert store.read(f"copy/{name}") == b"abc"


def test_a_link_takes_the_place_of_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").write_bytes(b"half")
    store = Storage(str(tmp_path))
    assert link_file((store, "a"), (store, "b"))
    assert (tmp_path / "b").read_bytes() == b"abc"
    assert not link_file((store, "gone"), (store, "c"))
    assert not copy_within((store, "a"), (store, "c"), 3, pacing=CopyPace(None)), "there is no server on local disk"


def test_a_pace_spaces_what_goes_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slept, clock = list[float](), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(threading.Event, "wait", lambda _self, seconds: slept.append(seconds))
    pace = CopyPace(1_000_000)
    for _ in range(3):
        pace.wait_for(500_000)
    assert slept == [0, 0.5, 1.0]
    assert pace.chunk == 250_000
    CopyPace(None).wait_for(10**12)
    assert slept[3:] == [0]


def test_an_error_ends_copies_that_wait_for_their_turn() -> None:
    pace, waiting = CopyPace(1), threading.Event()

    def work(size: int) -> None:
        if size == 0:
            waiting.wait()
            raise KeyboardInterrupt
        pace.wait_for(size)  # at once; the next one is due in an hour
        waiting.set()
        with pytest.raises(OpsError, match="stopped"):
            pace.wait_for(1)
        ended.append(size)

    ended = list[int]()
    with pytest.raises(KeyboardInterrupt):
        in_parallel(work, [0, 3600], workers=2, on_error=pace.stop)
    assert ended == [3600]


def test_the_first_error_ends_what_came_before_it() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(item: str) -> None:
        if item == "slow":
            begun.set()
            assert ended.wait(60), "nobody told it to end"
            raise OpsError("the copy was stopped")
        assert begun.wait(60)
        raise CorruptGraph("the cause")

    with pytest.raises(CorruptGraph, match="the cause"):
        in_parallel(work, ["slow", "bad"], workers=2, on_error=ended.set)
