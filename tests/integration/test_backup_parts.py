"""A backup whose files are copied in parts by other processes: the same record, the same files, nothing left over."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.errors import CorruptGraph, OpsError, StorageError
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.backup import BackupRecord, BackupReport, CopyDone, CopyOrder, Tally
from omnigraph_ops.outcomes.backups import backup_of, list_backups, read_record
from omnigraph_ops.stages.backup import parts
from omnigraph_ops.stages.backup.parts import SubmittedCopy, copy_part, joined, read_order
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.conftest import DemoGraph
from tests.support.backups import flip, killed_backup, restored
from tests.support.edges import copied, raising, when_copied
from tests.support.rows import rows_everywhere, tree_of
from tests.support.writers import copies, write

pytestmark = pytest.mark.slow

PERSON = "node:Person"
SPEC: dict[str, Any] = {"node_types": 1, "loads": 2, "rows": 12, "deletes": 2, "written_branches": 1}
Work = Callable[[str, CopyOrder, int], CopyDone]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_PART_FILES", 7)


def once(root: str, order: CopyOrder, number: int) -> CopyDone:
    return copy_part(root, order, number, None, again=False)


def submitted(work: Work = once) -> SubmittedCopy:
    """A submit whose parts are worked off in this process."""

    def submit(job: str, arguments: Sequence[str], value: type[Any], check: Callable[[], None]) -> Any:
        assert (job, arguments[0], value) == ("copy", "--backup", CopyDone)
        check()
        storage, backup_id = backup_of(arguments[1])
        order = read_order(storage, backup_id)
        return functools.reduce(joined, (work(storage.root, order, n) for n in range(1, order.parts + 1)))

    return SubmittedCopy(submit=submit)


def record(report: BackupReport) -> BackupRecord:
    """The record without what is of this very run."""
    found = read_record(*backup_of(report.backup))
    return replace(found, backup_id="", started_at=0, finished_at=0, digest="", incremental_from=None)


def assert_clean(report: BackupReport) -> None:
    assert {re.split("[.-]", p.name)[0] for p in Path(report.backup).iterdir()} <= {
        "files",
        "backup",
        "started",
        "lease",
    }
    assert not list(Path(report.backup).rglob("*.part"))
    assert verify_backup(report.backup).problems == ()


def both(graph: Graph, tmp_path: Path, work: Work = once) -> tuple[BackupReport, BackupReport]:
    """The same cut in process and in parts."""
    options = BackupOptions(freeze_id=freeze_graph(graph).freeze_id)
    here = backup_graph(graph, str(tmp_path / "here"), options)
    there = backup_graph(graph, str(tmp_path / "there"), options, copier=submitted(work))
    return here, there


def test_parts_make_the_backup_that_one_process_makes(demo_graph: DemoGraph, tmp_path: Path, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SPEC)
    here, there = both(graph, tmp_path)
    assert record(here) == record(there)
    assert tree_of(f"{here.backup}/files") == tree_of(f"{there.backup}/files")
    assert (here.total, here.copied, here.linked, here.kept) == (there.total, there.copied, there.linked, there.kept)
    assert_clean(there)
    assert rows_everywhere(restored(there.backup, tmp_path / "restored")) == rows_everywhere(graph)


def test_an_incremental_backup_in_parts_links_what_one_process_links(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    first, _ = both(graph, tmp_path / "first")
    write(graph, PERSON, copies("later-"))
    options = BackupOptions(freeze_id=freeze_graph(graph).freeze_id, incremental_from=first.backup)
    here = backup_graph(graph, str(tmp_path / "here"), options)
    there = backup_graph(graph, str(tmp_path / "there"), options, copier=submitted())
    assert here.linked.files > 0
    assert (record(here), here.copied, here.linked) == (record(there), there.copied, there.linked)
    assert_clean(there)


def test_what_the_earlier_backup_lost_is_copied_and_counted_so(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    first, _ = both(graph, tmp_path / "first")

    def without(root: str, order: CopyOrder, number: int) -> CopyDone:
        shutil.rmtree(first.backup, ignore_errors=True)
        return once(root, order, number)

    options = BackupOptions(incremental_from=first.backup)
    report = backup_graph(graph, str(tmp_path / "there"), options, copier=submitted(without))
    assert (report.linked.files, report.copied) == (0, report.total)
    assert_clean(report)


def test_a_job_that_ends_without_a_file_finishes_no_backup(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, target = demo_graph(**SPEC), str(tmp_path / "there")

    def all_but_the_first(root: str, order: CopyOrder, number: int) -> CopyDone:
        return once(root, order, number) if number > 1 else CopyDone(copied=Tally(), linked=Tally(), kept=Tally())

    with pytest.raises(StorageError, match=r"the job copy ended without .*; the backup stays unfinished"):
        backup_graph(graph, target, copier=submitted(all_but_the_first))
    (stray,) = Path(target).glob("*/files")
    (stray / "of-another-cut").write_bytes(b"?")
    report = backup_graph(graph, target, copier=submitted())
    assert (report.resumed, report.kept.files > 0) == (True, True)
    assert_clean(report)


@pytest.mark.parametrize("in_parts", [False, True], ids=["in process", "in parts"])
def test_a_file_that_an_unfinished_backup_took_before_the_damage_was_found_is_copied_anew(
    demo_graph: DemoGraph, tmp_path: Path, failing: Callable[[int], list[str]], in_parts: bool
) -> None:
    graph, target = demo_graph(**SPEC), str(tmp_path / "there")
    first = backup_graph(graph, target)
    files = Path(first.backup, "files")
    file = str(min(files.rglob("data/*.lance")).relative_to(files))
    options = BackupOptions(freeze_id=freeze_graph(graph).freeze_id, incremental_from=first.backup)
    failing(1)
    with pytest.raises(StorageError, match="the store is away"):
        backup_graph(graph, target, options)
    (left,) = [b.backup for b in list_backups(target).backups if b.backup != first.backup]
    assert Path(left, "files", file).samefile(files / file)
    flip(first.backup, file, shared=True)
    assert len(verify_backup(first.backup).problems) == 1
    again = options.model_copy(update={"incremental_from": None})
    second = backup_graph(graph, target, again, **({"copier": submitted()} if in_parts else {}))
    assert (second.backup, second.kept.files > 0) == (left, True)
    assert_clean(second)


def test_a_part_that_is_done_twice_changes_nothing(demo_graph: DemoGraph, tmp_path: Path) -> None:
    """As by a speculative task."""
    graph = demo_graph(**SPEC)

    def twice(root: str, order: CopyOrder, number: int) -> CopyDone:
        once(root, order, number)
        return once(root, order, number)

    here, there = both(graph, tmp_path, twice)
    assert (record(here), here.copied) == (record(there), there.copied)
    assert_clean(there)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[str]]]:
    """Lets the so-manyeth copy of a file fail once; the files that were copied until then, and since."""

    def arm(number: int) -> list[str]:
        away = raising(StorageError("the store is away"))
        return when_copied(monkeypatch, away, skip=number - 1)

    yield arm


def test_a_part_that_is_repeated_copies_only_what_is_missing(
    demo_graph: DemoGraph, tmp_path: Path, failing: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a lost executor."""
    graph = demo_graph(**SPEC)
    monkeypatch.setattr(parts, "THREADS", 1)
    options = BackupOptions(freeze_id=freeze_graph(graph).freeze_id)
    here = backup_graph(graph, str(tmp_path / "here"), options)
    seen = failing(12)

    def repeated(root: str, order: CopyOrder, number: int) -> CopyDone:
        try:
            return once(root, order, number)
        except StorageError:
            # What a worker that is killed leaves beside the files that it finished.
            Path(root, order.backup_id, "files", f"x.{'0' * 32}.part").write_bytes(b"half")
            return copy_part(root, order, number, None, again=True)

    there = backup_graph(graph, str(tmp_path / "there"), options, copier=submitted(repeated))
    assert not set(copied(seen[:11])) & set(copied(seen[11:])), "what was finished is not copied again"
    assert record(here) == record(there)
    assert_clean(there)


def test_a_copy_that_failed_is_gone_on_with(
    demo_graph: DemoGraph, tmp_path: Path, failing: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a lost driver: the next backup copies the rest, in parts or not."""
    graph = demo_graph(**SPEC)
    monkeypatch.setattr(parts, "THREADS", 1)
    options = BackupOptions(freeze_id=freeze_graph(graph).freeze_id)
    here = backup_graph(graph, str(tmp_path / "here"), options)
    seen = failing(12)
    with pytest.raises(StorageError, match="the store is away"):
        backup_graph(graph, str(tmp_path / "there"), options, copier=submitted())
    (left,) = list_backups(str(tmp_path / "there")).backups
    assert not Path(left.backup, "orders").exists()
    there = backup_graph(graph, str(tmp_path / "there"), options, copier=submitted())
    assert (there.backup_id, there.resumed) == (left.backup_id, True)
    assert there.kept.files >= 11
    assert not set(copied(seen[:11])) & set(copied(seen[11:]))
    assert record(here) == record(there)
    assert_clean(there)


def test_a_worker_of_an_attempt_that_is_over_writes_nothing(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, orders = demo_graph(**SPEC), list[tuple[str, CopyOrder]]()

    def noted(root: str, order: CopyOrder, number: int) -> CopyDone:
        orders.append((root, order))
        return once(root, order, number)

    report = backup_graph(graph, str(tmp_path / "there"), copier=submitted(noted))
    before = tree_of(report.backup)
    with pytest.raises(OpsError, match="was given up"):
        once(*orders[0], 1)
    assert tree_of(report.backup) == before
    with pytest.raises(OpsError, match="another attempt"):
        other = submitted(lambda root, order, number: once(root, replace(order, order_id="an earlier one"), number))
        backup_graph(graph, str(tmp_path / "else"), copier=other)


def test_a_worker_whose_attempt_ends_meanwhile_leaves_no_journal(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a submitter that was killed: its next one, on Spark or not, has finished the backup."""
    graph = demo_graph(**SPEC)
    monkeypatch.setattr(parts, "_LOOK_SECONDS", 0)
    taken = list[list[str]]()

    def overtaken(root: str, order: CopyOrder, number: int) -> CopyDone:
        orders = Path(root, order.backup_id, "orders")
        if not taken:
            taken.append(when_copied(monkeypatch, lambda: shutil.rmtree(orders, ignore_errors=True), times=None))
        return once(root, order, number)

    with pytest.raises(OpsError, match="was given up"):
        backup_graph(graph, str(tmp_path / "there"), copier=submitted(overtaken))
    (left,) = list_backups(str(tmp_path / "there")).backups
    assert 0 < len(taken[0]) <= parts._PART_FILES
    assert not Path(left.backup, "journal").exists()


def test_another_attempt_ends_the_orders_of_a_killed_one(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    killed_backup(graph.uri, tmp_path / "there", "copy_file", 20)
    (left,) = list_backups(str(tmp_path / "there")).backups
    Path(left.backup, "orders").mkdir()
    Path(left.backup, "orders", "order.json").write_text("{}")
    assert_clean(backup_graph(graph, str(tmp_path / "there")))


def test_a_file_that_went_is_final_and_named(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)

    def gone(root: str, order: CopyOrder, number: int) -> CopyDone:
        for path in Path(graph.uri).rglob("data/*.lance"):
            path.unlink()
        return once(root, order, number)

    with pytest.raises(CorruptGraph, match="is gone"):
        backup_graph(graph, str(tmp_path / "there"), copier=submitted(gone))


def test_less_than_the_threshold_is_copied_by_this_process(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    never = replace(submitted(), submit=None, from_bytes=2**40)  # type: ignore[arg-type]
    report = backup_graph(graph, str(tmp_path / "there"), copier=never)
    assert report.copied == report.total


def test_the_journal_and_the_orders_hold_no_more_than_a_part(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, most = demo_graph(**SPEC), list[int]()

    def counted(root: str, order: CopyOrder, number: int) -> CopyDone:
        part = json.loads(Path(root, order.backup_id, "orders", f"part-{number:06d}.json").read_text())
        most.append(sum(len(part[kind]) for kind in ("copy", "link", "unproven")))
        return once(root, order, number)

    backup_graph(graph, str(tmp_path / "there"), copier=submitted(counted))
    assert len(most) > 3
    assert max(most) == 7
