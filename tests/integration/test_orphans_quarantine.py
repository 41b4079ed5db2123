"""Quarantine: moved aside, brought back byte for byte, purged only by name; whatever is killed in between."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.errors import InvalidInput, LeaseHeld, RecoveryPending, StalePlan
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import manifest_file_name, new_ulid
from omnigraph_ops.graph.sidecars import sidecar_path
from omnigraph_ops.progress import Run
from omnigraph_ops.stages.orphans import quarantine
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.orphans.quarantine import list_quarantines, place_of, preview_quarantine, purge, restore
from omnigraph_ops.stages.orphans.stage import quarantines_view
from omnigraph_ops.storage.store import Storage
from omnigraph_ops.views.view import plain_text
from tests.conftest import DemoGraph
from tests.support.beside import Beside
from tests.support.edges import raising, when_asked
from tests.support.leases import is_lease, take_over
from tests.support.orphans import KNOWS, PERSON, age, assert_nothing_left, below, drop, name_mark, plant, run
from tests.support.rows import rows_everywhere, tree_of
from tests.support.sidecars import arm
from tests.support.writers import entry_of

SMALL = {"loads": 2, "rows": 6, "node_types": 1}


class Stopping(Run):
    """It was asked to stop before its first unit."""

    @property
    def stopping(self) -> bool:
        return True


def files(root: str) -> dict[str, str]:
    return {p: d for p, d in tree_of(root).items() if d != "folder" and not p.startswith("__maintenance")}


def kept(root: str) -> set[str]:
    return {p for p in tree_of(root) if p.startswith("__maintenance/quarantine")}


@pytest.mark.slow
def test_everything_goes_aside_and_comes_back(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    plant(graph)
    graph.manifest().branches.delete("review/hires-1")
    path = drop(graph, KNOWS)
    age(graph.uri)
    before, rows, mark = files(graph.uri), rows_everywhere(graph), name_mark(graph, below(graph, path))
    plan, report = run(graph, quarantine=True)
    assert report.quarantine_id is not None
    assert (report.files_removed, report.failed) == (len(plan.files), ())
    assert set(before) - set(files(graph.uri)) == {f.path for f in plan.files}
    assert below(graph, path) == mark
    assert_nothing_left(graph)
    (listed,) = list_quarantines(graph).quarantines
    assert (listed.quarantine_id, listed.files, listed.bytes, listed.digest) == (
        report.quarantine_id,
        len(plan.files),
        plan.total_bytes,
        plan.digest,
    )
    for name in mark:
        os.utime(Path(graph.uri, name))  # as in a copy of the graph that was made since
    back = restore(graph, report.quarantine_id)
    assert (back.files, back.bytes, back.failed) == (len(plan.files), plan.total_bytes, ())
    assert files(graph.uri) == before
    assert kept(graph.uri) == {"__maintenance/quarantine"}
    assert rows_everywhere(graph) == rows
    age(graph.uri)
    assert [f.path for f in plan_orphans(graph).files] == [f.path for f in plan.files]


@pytest.mark.parametrize("end", [restore, purge])
def test_one_that_another_run_ended_while_this_waited_is_told(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, end: Callable[..., object]
) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    quarantine_id = run(graph, quarantine=True)[1].quarantine_id
    assert quarantine_id is not None
    place = Path(graph.uri, place_of(quarantine_id, "")).parent / quarantine_id
    with monkeypatch.context() as patch, pytest.raises(InvalidInput, match=f"there is no quarantine {quarantine_id}"):
        when_asked(patch, Storage, "create", lambda: shutil.rmtree(place), about="lease")
        end(graph, quarantine_id)


def test_purge_deletes_one_quarantine(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    first = run(graph, quarantine=True)[1].quarantine_id
    plant(graph)
    second = run(graph, quarantine=True)[1].quarantine_id
    assert first is not None
    assert second is not None
    before = tree_of(graph.uri)
    assert preview_quarantine(graph, first).files == 8
    assert tree_of(graph.uri) == before
    assert (purge(graph, first).files, purge(graph, second).action) == (8, "purged")
    assert list_quarantines(graph).quarantines == ()
    for call in (purge, restore, preview_quarantine):
        for bad in (first, "../../etc", "01ARYZ6S410000000000000000"):
            with pytest.raises(InvalidInput):
                call(graph, bad)


def test_a_run_without_work_leaves_no_quarantine(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    plan = plan_orphans(graph, quarantine=True)
    for file in plan.files:
        graph.storage.delete(file.path)
    report = apply_orphans(graph, plan)
    assert (report.quarantine_id, report.already_gone) == (None, len(plan.files))
    assert list_quarantines(graph).quarantines == ()


@pytest.mark.parametrize("anew", [b"something else", b"LEFT OVER"])
def test_another_file_in_the_old_place_is_not_overwritten(demo_graph: DemoGraph, anew: bytes) -> None:
    graph = demo_graph(**SMALL)
    leftovers = sorted(plant(graph))
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    other, same = Path(graph.uri, leftovers[0]), Path(graph.uri, leftovers[1])
    for path, data in ((other, anew), (same, b"left over")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    back = restore(graph, name)
    assert [f.path for f in back.failed] == [leftovers[0]]
    assert other.read_bytes() == anew
    assert list_quarantines(graph).quarantines[0].files == 1
    other.unlink()
    assert restore(graph, name).failed == ()
    assert other.read_bytes() == b"left over"
    assert list_quarantines(graph).quarantines == ()


def test_old_manifests_are_not_mixed_into_a_new_dataset(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    rows = graph.open_head(entry_of(graph, KNOWS)).to_table()
    path = drop(graph, KNOWS)
    age(graph.uri)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    graph.lance.create(f"{graph.uri}/{path}", rows)
    # Its only version has the name of an old one, and the old ones would come after it.
    fresh = graph.lance.open(f"{graph.uri}/{path}")
    before = tree_of(graph.uri)
    with pytest.raises(StalePlan, match="written since"):
        restore(graph, name)
    now = tree_of(graph.uri)
    assert [p for p in now.keys() | before.keys() if now.get(p) != before.get(p) and not is_lease(p)] == []
    assert graph.lance.open(f"{graph.uri}/{path}").version == fresh.version


def test_old_manifests_are_not_mixed_into_what_took_the_place_of_some_of_them(
    demo_graph: DemoGraph, stamp: int
) -> None:
    """Of those that came back earlier, or of versions that were collected before the dataset was dropped."""
    graph = demo_graph(stamp=stamp, **SMALL)
    path = drop(graph, KNOWS)
    age(graph.uri)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    aside = place_of(name, "")
    first, *others = sorted(f.removeprefix(aside) for f in below(graph, f"{aside}{path}/_versions"))
    assert others
    Path(graph.uri, place_of(name, first)).unlink()
    anew = Path(graph.uri, first)
    anew.parent.mkdir(parents=True, exist_ok=True)
    anew.write_bytes(b"of another dataset")
    with pytest.raises(StalePlan, match="written since"):
        restore(graph, name)
    anew.unlink()
    collected = Path(graph.uri, path, "_versions", manifest_file_name(0))
    collected.write_bytes(b"of another dataset")
    with pytest.raises(StalePlan, match="written since"):
        restore(graph, name)
    collected.unlink()
    assert restore(graph, name).failed == ()


def test_a_restore_begins_beside_nothing_pending_and_ends_with_its_run(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    before = tree_of(f"{graph.uri}/__maintenance/quarantine")
    sidecar = arm(graph)
    with pytest.raises(RecoveryPending):
        restore(graph, name)
    graph.storage.delete(sidecar_path(sidecar))
    for stopped in (restore, purge):
        assert stopped(graph.with_run(Stopping()), name).files == 0
    record = Path(graph.uri, place_of(name, "quarantine.json"))
    said = record.read_text()
    record.write_text(json.dumps(json.loads(said) | {"files": [json.loads(said)["files"][0] | {"path": "../out"}]}))
    with pytest.raises(InvalidInput, match="names a file outside of the graph; nothing was moved"):
        restore(graph, name)
    record.write_text(said)
    assert tree_of(f"{graph.uri}/__maintenance/quarantine") == before


def test_what_a_store_does_not_delete_is_not_told_as_purged(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None

    when_asked(monkeypatch, os, "unlink", raising(PermissionError(errno.EACCES, "AccessDenied")), about="/nodes/")
    report = purge(graph, name)
    assert (report.files, ["AccessDenied" in f.reason for f in report.failed]) == (7, [True])
    assert list_quarantines(graph).quarantines[0].files == 1


def test_a_dataset_comes_back_with_its_manifests_last(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = demo_graph(**SMALL)
    path = drop(graph, KNOWS)
    age(graph.uri)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    monkeypatch.setattr(quarantine, "BULK", 1)
    watching = Beside(lambda: None)
    restore(graph.with_run(watching), name)
    order = ["/_versions/" in unit for unit in watching.came if path in unit]
    assert order == sorted(order) and len(set(order)) == 2


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_killed_quarantine_is_restored_or_finished(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    before, real = files(graph.uri), os.unlink
    moved = 0

    def killed(path: str, *rest: object, **more: object) -> None:
        nonlocal moved
        if "/nodes/" in str(path) and "__maintenance" not in str(path):
            if moved >= after:
                raise KeyboardInterrupt  # the link is made, the old name is still there
            moved += 1
        real(path, *rest, **more)  # type: ignore[arg-type]

    plan = plan_orphans(graph, quarantine=True)
    with monkeypatch.context() as failing:
        failing.setattr(os, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            apply_orphans(graph, plan)
    (listed,) = list_quarantines(graph).quarantines
    assert listed.files >= after
    if after == 1:
        _, rest = run(graph, quarantine=True)
        assert rest.files_removed == len(plan.files) - after
        assert rest.quarantine_id is not None
        assert restore(graph, rest.quarantine_id).failed == ()
    assert restore(graph, listed.quarantine_id).failed == ()
    assert files(graph.uri) == before
    assert list_quarantines(graph).quarantines == ()


@pytest.mark.parametrize(
    "left",
    ["quarantine.json.0123456789abcdef0123456789abcdef.tmp", "quarantine.json.parts/files-0.parquet", "nodes/x/"],
    ids=["half a record", "parts only", "empty folders"],
)
def test_remains_of_a_killed_quarantine_are_passed_over_and_removed(demo_graph: DemoGraph, left: str) -> None:
    """The list shows the other quarantines; the next quarantine removes the remains."""
    graph = demo_graph(**SMALL)
    plant(graph)
    whole = run(graph, quarantine=True)[1].quarantine_id
    remains = Path(graph.uri, place_of(new_ulid(), left))
    remains.parent.mkdir(parents=True)
    remains.mkdir() if left.endswith("/") else remains.write_bytes(b"half")
    assert [q.quarantine_id for q in list_quarantines(graph).quarantines] == [whole]
    plant(graph)
    run(graph, quarantine=True)
    assert len(list(Path(graph.uri, "__maintenance/quarantine").iterdir())) == 2
    assert len(list_quarantines(graph).quarantines) == 2


def test_files_without_a_record_are_named(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    Path(graph.uri, place_of(name, "quarantine.json")).unlink()
    for look in (restore, purge):
        with pytest.raises(InvalidInput, match=f"{name}/quarantine.json is gone; nothing was done; the files"):
            look(graph, name)
    plant(graph)
    run(graph, quarantine=True)
    assert list(Path(graph.uri, place_of(name, "nodes")).rglob("*.lance")), "the next quarantine spares them"


@pytest.mark.parametrize("record", ["{", '{"schema_version": 99}', None], ids=["half", "of a later release", "gone"])
def test_a_damaged_record_stops_and_hides_no_other_quarantine(demo_graph: DemoGraph, record: str | None) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    place = Path(graph.uri, place_of(name, "quarantine.json"))
    place.unlink() if record is None else place.write_text(record)
    plant(graph)
    whole = run(graph, quarantine=True)[1]
    assert whole.failed == ()
    damaged, sound = list_quarantines(graph).quarantines
    assert (sound.quarantine_id, sound.problem) == (whole.quarantine_id, None)
    assert (damaged.quarantine_id, damaged.files > 0) == (name, True)
    assert f"{name}/quarantine.json" in str(damaged.problem)
    assert "move them back or delete them by hand" in plain_text(quarantines_view(list_quarantines(graph)))


def test_a_copy_that_the_record_does_not_name_is_kept_and_reported(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    place = Path(graph.uri, place_of(name, "quarantine.json"))
    document = json.loads(place.read_text())
    left_out = document["files"].pop()["path"]
    place.write_text(json.dumps(document))
    report = restore(graph, name)
    assert [(f.path, "does not name it" in f.reason) for f in report.failed] == [(left_out, True)]
    assert Path(graph.uri, place_of(name, left_out)).exists()


def test_a_run_that_lost_the_lease_removes_nothing_of_another(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    plan = plan_orphans(graph, quarantine=True)
    begun = Path(graph.uri, place_of(new_ulid(), "quarantine.json.parts/files-0.parquet"))
    with committer_turn(graph, "orphans") as keeper:
        take_over(graph.storage)
        begun.parent.mkdir(parents=True)
        begun.write_bytes(b"the other one copies its parts")
        with pytest.raises(LeaseHeld):
            quarantine.begin(graph, plan, keeper)
    assert begun.exists()


@pytest.mark.parametrize("effect", [restore, purge])
def test_who_lost_the_lease_moves_and_deletes_nothing_of_a_quarantine(
    demo_graph: DemoGraph, effect: Callable[[Graph, str], object]
) -> None:
    graph = demo_graph(**SMALL)
    left = plant(graph)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    with pytest.raises(LeaseHeld, match="taken over"):
        effect(graph.with_run(Beside(lambda: take_over(graph.storage))), name)
    assert all(graph.storage.exists(place_of(name, path)) for path in left)
    assert not any(graph.storage.exists(path) for path in left)


def test_no_manifest_comes_back_before_all_else_is_there(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    path = drop(graph, KNOWS)
    data = {p for p in below(graph, path) if "/_versions/" not in p}
    assert len(below(graph, path)) >= 16, "fewer files are moved one after the other"
    age(graph.uri)
    name = run(graph, quarantine=True)[1].quarantine_id
    link, missing = os.link, set[str]()

    def see(source: str, target: str, **options: bool) -> None:
        if target.endswith(".manifest"):
            missing.update(data - set(below(graph, path)))
        else:
            time.sleep(0.02)
        link(source, target, **options)

    monkeypatch.setattr(os, "link", see)
    assert name is not None
    assert restore(graph, name).failed == ()
    assert missing == set()


def test_manifests_come_back_last(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = demo_graph(**SMALL)
    path = drop(graph, KNOWS)
    # So few files that they are moved one after the other.
    shutil.rmtree(Path(graph.uri, path, "_indices"))
    age(graph.uri)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    half = list_quarantines(graph).quarantines[0].files // 2
    assert half < 8
    with monkeypatch.context() as killed:
        when_asked(killed, os, "link", raising(KeyboardInterrupt()), about=f"/{path}/", skip=half, times=None)
        with pytest.raises(KeyboardInterrupt):
            restore(graph, name)
    back = below(graph, path)
    assert len(back) == half
    assert not [p for p in back if p.endswith(".manifest")]
    assert restore(graph, name).failed == ()
    assert graph.lance.open(f"{graph.uri}/{path}").to_table().num_rows
    assert PERSON in {e.table_key for e in graph.state().entries}
