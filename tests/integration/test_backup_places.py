"""Places that a backup or a restore must not take, and what of an interrupted one is nobody's loss."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.coordination.holds import freezes
from omnigraph_ops.coordination.state import RESTORE_LEASE_PATH, RESTORING_PATH
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import CorruptGraph, InvalidInput, LeaseHeld, NotAGraph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.backup import BackedFile
from omnigraph_ops.models.freeze import CutFileKind
from omnigraph_ops.outcomes.backups import backup_of, read_record
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.backup import restore
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.freeze.roots import relocation
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.backups import killed_backup
from tests.support.edges import copied, when_asked, when_copied
from tests.support.freezes import freeze_tags
from tests.support.leases import take_over
from tests.support.rows import tree_of
from tests.support.shell import Cli, assert_refused

SMALL = {"node_types": 1, "loads": 2, "rows": 12}


@pytest.mark.parametrize("target", ["s3://", "s3:///", "S3://bucket/x"])
def test_a_uri_without_a_bucket_is_not_a_local_folder(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, target: str
) -> None:
    graph = demo_graph(**SMALL)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert_refused(cli("backup", graph.uri, target), "bucket", code=2)
    assert_refused(cli("verify", f"{target}/01ARZ3NDEKTSV4RRFFQ69G5FAV"), "", code=2)
    assert_refused(cli("backups", target), "bucket", code=2)
    assert sorted(tmp_path.iterdir()) == before
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())


def test_a_destination_that_a_link_leads_into_the_graph_is_refused(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    (tmp_path / "link").symlink_to(graph.uri)
    with pytest.raises(InvalidInput, match="is inside the graph"):
        backup_graph(graph, str(tmp_path / "link" / "backups"))


def test_a_restore_does_not_go_into_its_backup(demo_graph: DemoGraph, tmp_path: Path) -> None:
    made = backup_graph(demo_graph(**SMALL), str(tmp_path / "backups"))
    before = tree_of(made.backup)
    for place in (made.backup, f"{made.backup}/files/graph"):
        with pytest.raises(InvalidInput, match="is inside the backup"):
            restore_backup(made.backup, place, settings=Settings())
    assert tree_of(made.backup) == before


@pytest.mark.parametrize("kind", ["finished", "unfinished", "plain", "linked"])
def test_a_backup_is_not_opened_as_a_graph(demo_graph: DemoGraph, tmp_path: Path, cli: Cli, kind: str) -> None:
    graph = demo_graph(**SMALL)
    if kind == "plain":
        lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "plain" / "a.lance"))
        graph = open_graph(str(tmp_path / "plain"))
    made = backup_graph(graph, str(tmp_path / "backups"))
    named = made.backup
    if kind == "unfinished":
        Path(made.backup, "backup.json").unlink()
    if kind == "linked":
        (tmp_path / "link").symlink_to(made.backup)
        named = str(tmp_path / "link")
    before = tree_of(made.backup)
    for below in ("/files", "/files/a.lance") if kind == "plain" else ("/files", "/files/nodes"):
        for verb in ("plan", "optimize", "cleanup --keep 1 --confirm --yes"):
            assert_refused(cli(verb, named + below), f"is a part of the backup {made.backup}; nothing was written")
    assert_refused(cli("plan", made.backup), f"{made.backup} is a backup; nothing was written; restore it to another")
    assert tree_of(made.backup) == before


def test_a_backup_of_another_graph_is_not_named_as_a_base(demo_graph: DemoGraph, tmp_path: Path) -> None:
    write_demo_graph(str(tmp_path / "other"), DemoSpec(stamp=3, **SMALL, seed=8))
    first = backup_graph(open_graph(str(tmp_path / "other")), str(tmp_path / "backups"))
    (tmp_path / "other").rename(tmp_path / "moved")
    told: list[str] = []
    for graph, base in ((open_graph(str(tmp_path / "moved")), first.backup_id), (demo_graph(**SMALL), None)):
        options = BackupOptions(incremental_from=first.backup)
        second = backup_graph(graph, str(tmp_path / "backups"), options, progress=Lines(told.append))
        record = read_record(*backup_of(second.backup))
        assert (record.incremental_from, second.incremental_from, bool(second.linked.files)) == (base, base, bool(base))
    said = f"no file was taken from {first.backup}, which is a backup of {first.uri}, not of {graph.uri}"
    assert [line for line in told if "no file was taken" in line] == [f"{said}; all files were copied"]


def test_neither_a_backup_nor_a_restore_goes_into_another_backup(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    made, other = (backup_graph(graph, str(tmp_path / "backups")) for _ in range(2))
    before = tree_of(made.backup)
    for place in (made.backup, f"{made.backup}/more", f"{made.backup}/files/nodes"):
        with pytest.raises(InvalidInput, match=f"is inside the backup {made.backup}"):
            backup_graph(graph, place)
        with pytest.raises(InvalidInput, match=f"is inside the backup {made.backup}"):
            restore_backup(other.backup, place, settings=Settings())
    assert tree_of(made.backup) == before
    assert freezes(graph.storage) == ()


def test_a_graph_below_a_folder_that_is_named_by_an_id_is_opened(demo_graph: DemoGraph, tmp_path: Path) -> None:
    place = tmp_path / "01ARZ3NDEKTSV4RRFFQ69G5FAV" / "files"
    place.parent.mkdir()
    Path(demo_graph(**SMALL).uri).rename(place)
    assert open_graph(str(place)).state().entries


def test_a_restore_does_not_go_where_branches_would_not_be_found(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL, written_branches=1)
    made, place = backup_graph(graph, str(tmp_path / "backups")), tmp_path / "what?" / "g"
    with pytest.raises(InvalidInput, match=r"contains '\?', where Lance 9 and later do not find the branches"):
        restore_backup(made.backup, str(place), settings=Settings())
    with pytest.raises(InvalidInput, match=r"contains '\?'"):
        list(relocation(graph, (), str(place)))
    assert not place.parent.exists()


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_backup_that_lost_a_file_is_refused_before_anything_is_written(
    demo_graph: DemoGraph, tmp_path: Path, damage: str
) -> None:
    made = backup_graph(demo_graph(**SMALL), str(tmp_path / "backups"))
    victim = next(Path(made.backup, "files", "nodes").rglob("data/*.lance"))
    if damage == "missing":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-1])
    said = {"missing": "is missing", "short": "bytes instead of"}[damage]
    with pytest.raises(CorruptGraph, match=f"{victim.name} of the backup .* {said}"):
        restore_backup(made.backup, str(tmp_path / "place"), settings=Settings())
    assert not (tmp_path / "place").exists()


def interrupted(backup: str, place: Path, digest: str) -> None:
    """What a restore leaves that is killed when all is copied and its note is still there. Writes."""
    restore_backup(backup, str(place), settings=Settings())
    (place / RESTORING_PATH).parent.mkdir(exist_ok=True)
    (place / RESTORING_PATH).write_text(digest)


def test_a_restore_goes_on_only_where_nobody_has_written_since(demo_graph: DemoGraph, tmp_path: Path) -> None:
    made = backup_graph(demo_graph(**SMALL), str(tmp_path / "backups"))
    place = tmp_path / "place"
    interrupted(made.backup, place, _digest(made.backup))
    schema, theirs = place / "_schema.pg", place / "__manifest" / "_versions" / "1.manifest"
    schema.write_text("changed by a schema apply")
    theirs.write_text("a version that was published since")
    with pytest.raises(InvalidInput, match=r"there is something at .*1\.manifest"):
        restore_backup(made.backup, str(place), settings=Settings())
    assert schema.read_text() == "changed by a schema apply"


def test_a_restore_that_was_killed_at_its_note_and_was_written_to_counts_as_ended(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": [1, 2]}), tmp_path / "plain" / "items.lance")
    made = backup_graph(open_graph(str(tmp_path / "plain")), str(tmp_path / "backups"))
    place = tmp_path / "place"
    interrupted(made.backup, place, _digest(made.backup))
    lance.write_dataset(pa.table({"id": [3]}), place / "items.lance", mode="append")
    with pytest.raises(InvalidInput, match=r"every file of this backup .*wrote there since \(items\.lance/"):
        restore_backup(made.backup, str(place), settings=Settings())
    assert open_graph(str(place)).state().entries[0].version == 2
    with pytest.raises(InvalidInput, match="there is something at"):
        restore_backup(made.backup, str(place), settings=Settings())


def test_a_half_restored_dataset_that_was_written_to_stays_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        lance.write_dataset(pa.table({"id": [1, 2]}), tmp_path / "plain" / f"{name}.lance")
    made = backup_graph(open_graph(str(tmp_path / "plain")), str(tmp_path / "backups"))
    place = tmp_path / "place"
    interrupted(made.backup, place, _digest(made.backup))
    next((place / "b.lance" / "data").iterdir()).unlink()
    lance.write_dataset(pa.table({"id": [3]}), place / "a.lance", mode="append")
    with pytest.raises(InvalidInput, match="there is something at"):
        restore_backup(made.backup, str(place), settings=Settings())
    assert (place / RESTORING_PATH).exists()


def test_halves_of_files_do_not_stay_in_a_restored_graph(demo_graph: DemoGraph, tmp_path: Path) -> None:
    made = backup_graph(demo_graph(**SMALL), str(tmp_path / "backups"))
    place = tmp_path / "place"
    interrupted(made.backup, place, _digest(made.backup))
    halves = [place / f"_schema.pg.{'0' * 32}.{end}" for end in ("part", "tmp")]
    for half in halves:
        half.write_text("half")
    assert restore_backup(made.backup, str(place), settings=Settings()).problems == ()
    assert not any(half.exists() for half in halves)


@pytest.mark.slow
def test_the_freeze_of_a_killed_backup_is_not_ended_for_who_names_it(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    killed_backup(graph.uri, tmp_path / "backups", "copy_file", 5)
    (left,) = freezes(graph.storage)
    made = backup_graph(graph, str(tmp_path / "backups"), BackupOptions(freeze_id=left.hold_id))
    assert (made.resumed, made.freeze_id) == (True, left.hold_id)
    assert [h.hold_id for h in freezes(graph.storage)] == [left.hold_id]


def _digest(backup: str) -> str:
    return read_record(*backup_of(backup)).digest


def test_neither_a_backup_nor_a_restore_goes_into_another_graph(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, other = demo_graph(**SMALL), demo_graph(name="other", **SMALL)
    made = backup_graph(graph, str(tmp_path / "backups"))
    before = tree_of(other.uri)
    for place in (other.uri, f"{other.uri}/backups"):
        with pytest.raises(InvalidInput, match=rf"inside the graph {other.uri}; back up"):
            backup_graph(graph, place)
    with pytest.raises(InvalidInput, match=rf"inside the graph {other.uri}; nothing was written"):
        restore_backup(made.backup, f"{other.uri}/a/b", settings=Settings())
    assert tree_of(other.uri) == before


def test_two_restores_to_one_place_exclude_each_other(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = backup_graph(demo_graph(**SMALL), str(tmp_path / "backups"))
    place = str(tmp_path / "place")
    refused = []

    def another_one() -> None:
        with pytest.raises(LeaseHeld, match="holds the restore"):
            restore_backup(made.backup, place, settings=Settings())
        refused.append(True)

    when_copied(monkeypatch, another_one)
    assert restore_backup(made.backup, place, settings=Settings(concurrency=1)).problems == ()
    assert refused == [True]
    assert not any("restoring" in path for path in tree_of(place))


def test_one_plain_dataset_may_have_its_backups_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "plain" / "people.lance"
    lance.write_dataset(pa.table({"id": [1, 2]}), place)
    made = backup_graph(open_graph(str(place)), str(tmp_path / "plain" / "backups"))
    report = restore_backup(made.backup, str(tmp_path / "place"), settings=Settings())
    assert (report.problems, report.rows) == ((), 2)
    with pytest.raises(InvalidInput, match="is inside the graph"):
        backup_graph(open_graph(str(place)), str(place / "backups"))


def test_a_killed_restore_of_plain_datasets_is_not_maintained(tmp_path: Path) -> None:
    for name in ("a", "b"):
        lance.write_dataset(pa.table({"id": [1, 2]}), tmp_path / "plain" / f"{name}.lance")
    made = backup_graph(open_graph(str(tmp_path / "plain")), str(tmp_path / "backups"))
    place = tmp_path / "place"
    interrupted(made.backup, place, _digest(made.backup))
    for version in (place / "b.lance" / "_versions").iterdir():
        version.unlink()
    again = (
        "run the same `omnigraph-ops restore` again, .* is damaged, restore an earlier backup to another, empty place"
    )
    with pytest.raises(NotAGraph, match=f"has not ended; nothing was written; {again}"):
        open_graph(str(place))
    report = restore_backup(made.backup, str(place), settings=Settings())
    assert (report.problems, report.rows) == ((), 4)
    assert len(open_graph(str(place)).state().entries) == 2


def test_a_restore_whose_turn_was_taken_over_stops(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = backup_graph(demo_graph(**SMALL), str(tmp_path / "backups"))
    place = tmp_path / "place"
    when_copied(monkeypatch, lambda: take_over(Storage(str(place)), RESTORE_LEASE_PATH))
    with pytest.raises(LeaseHeld, match="was taken over by another run"):
        restore_backup(made.backup, str(place), settings=Settings())
    assert not (place / "__manifest" / "_versions").exists()


def test_what_a_killed_restore_left_of_its_turn_is_in_nobodys_way(demo_graph: DemoGraph, tmp_path: Path) -> None:
    made = backup_graph(demo_graph(**SMALL), str(tmp_path / "backups"))
    left = tmp_path / "place" / "__maintenance"
    left.mkdir(parents=True)
    (left / f"probe-{'0' * 32}").write_text("racer 1")
    (left / f"restore-turn-{1:020d}.json.{'0' * 32}.tmp").write_text("half")
    assert restore_backup(made.backup, str(tmp_path / "place"), settings=Settings()).problems == ()


def test_a_file_of_the_backup_that_goes_during_a_restore_is_named(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = backup_graph(demo_graph(**SMALL), str(tmp_path / "backups"))

    def goes() -> None:
        (tmp_path / "backups" / read[-1]).unlink()

    read = when_asked(monkeypatch, Storage, "read", goes, about="/files/.*/data/")
    with pytest.raises(CorruptGraph, match="went during the restore; there is no graph at the place yet"):
        restore_backup(made.backup, str(tmp_path / "place"), settings=Settings(concurrency=1))


def test_a_restored_file_that_does_not_read_as_it_was_written_is_no_graph(
    demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the new place keeps something else than it was given."""
    made, place = backup_graph(demo_graph(**SMALL), str(tmp_path / "backups")), tmp_path / "place"

    def something_else() -> None:
        Path(copied(written)[-1]).write_bytes(b"something else")

    written = when_copied(monkeypatch, something_else, about="/data/", times=None, after=True)
    with pytest.raises(CorruptGraph, match=r"/data/.* does not read as it was written"):
        restore_backup(made.backup, str(place), settings=Settings())
    assert not list(place.rglob("*.manifest")), "nobody can open it"


def test_main_of_the_graph_manifest_comes_last() -> None:
    paths = {
        "__manifest/_versions/5.manifest": 3,
        "__manifest/tree/dev/_versions/3.manifest": 2,
        "nodes/1/_versions/4.manifest": 1,
        "nodes/1/data/a.lance": 0,
    }
    files = [
        BackedFile(file=p, size=1, kind=CutFileKind.MANIFEST if wave else CutFileKind.DATA) for p, wave in paths.items()
    ]
    assert {f.file: n for n, wave in enumerate(restore._waves(files)) for f in wave} == paths
