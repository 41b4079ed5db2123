"""Orphans on s3://: bulk deletes, quarantine by copy, inventory files; the same verdicts as on a disk."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.stages.orphans import plan as planning
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.orphans.quarantine import list_quarantines, purge, restore
from omnigraph_ops.storage.inventory import Stored, below_folder, look_again, remove_files, take_unchanged, walk
from omnigraph_ops.storage.store import FileInfo, Storage
from tests.support.orphans import KNOWS, PERSON, drop, every_version, name_mark, planned
from tests.support.rows import rows_everywhere
from tests.support.shell import runner
from tests.support.writers import entry_of

pytestmark = pytest.mark.s3
SPEC = DemoSpec(node_types=1, loads=2, rows=8, deletes=1)


@pytest.fixture
def graph(s3_graph: Callable[[DemoSpec], str], request: pytest.FixtureRequest) -> Graph:
    return open_graph(s3_graph(replace(SPEC, stamp=getattr(request, "param", 6))))


def leftovers(graph: Graph) -> set[str]:
    base = entry_of(graph, PERSON).path
    paths = {f"{base}/data/a b+ü.lance", f"{base}/_indices/{uuid.uuid4()}/page.lance", f"{base}/_transactions/1-x.txn"}
    for path in paths:
        graph.storage.write(path, b"left over")
    return paths


def ripe(graph: Graph, listing: Path | None = None, *, quarantine: bool = False) -> OrphansPlan:
    """A plan for which everything that is stored by now is old enough: nobody can age an object."""
    later = SimpleNamespace(time=lambda: time.time() + 8 * 86_400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "time", later)
        return plan_orphans(graph, listing=listing, quarantine=quarantine)


@pytest.mark.night("all but one")
@pytest.mark.parametrize("graph", [3, 6], indirect=True, ids=["stamp3", "stamp6"])
def test_leftovers_and_dropped_datasets_go_in_bulk(graph: Graph) -> None:
    wanted = leftovers(graph)
    path = drop(graph, KNOWS)
    graph.storage.write(f"{path}/notes.txt", b"mine")
    rows, versions = rows_everywhere(graph), every_version(graph)
    dropped = {s.path for s in below_folder(graph.storage, path)} - {f"{path}/notes.txt"}
    dropped -= name_mark(graph, dropped)
    plan = ripe(graph)
    assert set(planned(plan)) == wanted | dropped
    assert [u.path for u in plan.unknown] == [f"{path}/notes.txt"]
    report = apply_orphans(graph, plan)
    assert (report.files_removed, report.spared, report.failed) == (len(wanted | dropped), (), ())
    assert {s.path for s in walk(graph.storage)} & (wanted | dropped) == set()
    assert (rows_everywhere(graph), every_version(graph)) == (rows, versions)
    assert ripe(graph).files == ()


def test_quarantine_copies_and_restores(graph: Graph) -> None:
    leftovers(graph)
    drop(graph, KNOWS)
    plan = ripe(graph, quarantine=True)
    before = {s.path: s.size for s in walk(graph.storage) if not s.path.startswith("__maintenance")}
    report = apply_orphans(graph, plan)
    assert (report.files_removed, report.failed) == (len(plan.files), ())
    assert report.quarantine_id is not None
    first = plan.files[0].path
    graph.storage.write(first, graph.storage.read(f"__maintenance/quarantine/{report.quarantine_id}/{first}"))
    assert list_quarantines(graph).quarantines[0].files == len(plan.files)
    assert restore(graph, report.quarantine_id).failed == ()
    assert {s.path: s.size for s in walk(graph.storage) if not s.path.startswith("__maintenance")} == before
    assert list_quarantines(graph).quarantines == ()
    again = apply_orphans(graph, ripe(graph, quarantine=True))
    assert again.quarantine_id is not None
    assert purge(graph, again.quarantine_id).files == len(plan.files)
    assert not [s for s in walk(graph.storage) if s.path.startswith("__maintenance/quarantine")]


def test_an_object_that_was_written_again_is_spared(graph: Graph) -> None:
    (touched, *_) = sorted(leftovers(graph))
    plan = ripe(graph)
    graph.storage.write(touched, b"another content")
    report = apply_orphans(graph, plan)
    assert [f.path for f in report.spared] == [touched]
    assert graph.storage.read(touched) == b"another content"


def test_an_inventory_file_in_place_of_a_listing(graph: Graph, tmp_path: Path) -> None:
    wanted = leftovers(graph)
    rows = ["path,size,last_modified", "s3://elsewhere/x,1,2020-01-01T00:00:00Z"]
    # The inventory is wrong about everything but the names: what is stored decides.
    rows += [f"{graph.uri}/{s.path},1,2020-01-01T00:00:00Z" for s in walk(graph.storage)]
    rows += [f"{graph.uri}/{entry_of(graph, PERSON).path}/data/gone.lance,1,2020-01-01T00:00:00Z"]
    file = tmp_path / "inventory.csv"
    file.write_text("\n".join(rows), encoding="utf-8")
    young = plan_orphans(graph, listing=file)
    assert (young.files, young.foreign_rows, young.missing_rows) == ((), 1, 0)
    aged = ripe(graph, listing=file)
    assert {f.path: f.size for f in aged.files} == dict.fromkeys(wanted, len(b"left over"))
    assert apply_orphans(graph, aged).files_removed == len(wanted)


def test_a_refused_key_fails_alone(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = sorted(leftovers(graph))
    real = graph.storage.filesystem.call_s3

    def call(name: str, **request: Any) -> Any:
        if name != "delete_objects":
            return real(name, **request)
        keys = [o["Key"] for o in request["Delete"]["Objects"]]
        denied = [k for k in keys if k.endswith(".txn")]
        request["Delete"]["Objects"] = [{"Key": k} for k in keys if k not in denied]
        errors = [{"Key": k, "Code": "AccessDenied", "Message": "no"} for k in denied]
        return real(name, **request) | {"Errors": errors}

    monkeypatch.setattr(graph.storage.filesystem, "call_s3", call)
    (fault,) = remove_files(graph.storage, wanted)
    assert (fault.path.endswith(".txn"), fault.reason) == (True, "AccessDenied: no")
    monkeypatch.undo()
    assert [f.path for f in look_again(graph.storage, wanted) if f is not None and f.path == fault.path]


def test_a_remote_graph_needs_consent(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    cli = runner(capsys)
    assert cli("orphans", graph.uri).code == 0
    refused = cli("orphans --older-than 7d --confirm --json", graph.uri)
    assert (refused.code, "refusing destructive `orphans`" in refused.err) == (1, True)
    assert cli("orphans --older-than 7d --confirm --json --yes", graph.uri).json["files_removed"] == 0


def test_long_listings_come_in_pages(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sorted(s.path for s in walk(graph.storage))
    real = graph.storage.filesystem.call_s3
    pages = 0

    def call(name: str, **request: Any) -> Any:
        nonlocal pages
        pages += 1
        return real(name, MaxKeys=3, **request)

    monkeypatch.setattr(graph.storage.filesystem, "call_s3", call)
    assert sorted(s.path for s in walk(graph.storage)) == whole
    assert pages > len(whole) / 3


@pytest.mark.parametrize("place", [None, "kept/{}".format], ids=["deleted", "moved"])
def test_an_object_is_taken_only_as_it_was_seen(
    bucket: str, monkeypatch: pytest.MonkeyPatch, place: Callable[[str], str] | None
) -> None:
    """Somebody writes `new` between the look and the request that deletes it."""
    storage, stat = Storage(bucket), Storage.stat
    for name in ("old", "new", "gone"):
        storage.write(f"t/{name}", b"1")
    files = [file for file in look_again(storage, ["t/old", "t/new", "t/gone"]) if isinstance(file, Stored)]
    storage.delete("t/gone")

    def then_written(at: Storage, path: str) -> FileInfo:
        found = stat(at, path)
        if path == "t/new":
            storage.write(path, b"2")
        return found

    monkeypatch.setattr(Storage, "stat", then_written)
    (fault,) = take_unchanged(storage, files, place)
    assert (fault.path, fault.is_changed) == ("t/new", True)
    assert {s.path for s in walk(storage)} == ({"t/new", "kept/t/old"} if place else {"t/new"})
    assert storage.read("t/new") == b"2"
