"""Whole directories: dropped datasets and dead branches go when nothing reaches them, and stay with a reason else."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.holds import FreezeTerms, HeldVersion, Hold, HoldKind, place_hold
from omnigraph_ops.errors import GraphFrozen, LeaseHeld, RecoveryPending
from omnigraph_ops.graph import Graph, references
from omnigraph_ops.graph.layout import manifest_file_name
from omnigraph_ops.graph.sidecars import sidecar_path
from omnigraph_ops.lance import versions as lance_files
from omnigraph_ops.models.orphans import OrphanKind
from omnigraph_ops.stages.orphans import apply
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from tests.conftest import DemoGraph
from tests.support.beside import Beside
from tests.support.edges import raising, when_asked
from tests.support.leases import take_over
from tests.support.orphans import (
    KNOWS,
    PERSON,
    age,
    assert_nothing_left,
    below,
    drop,
    every_version,
    name_mark,
    planned,
    put,
    run,
)
from tests.support.rows import rows_everywhere
from tests.support.writers import copies, entry_of, write

SMALL = {"loads": 2, "rows": 6, "node_types": 1}
Reach = Callable[[Graph, int], object]


def hold(graph: Graph, path: str, version: int) -> Hold:
    """A freeze of one version, as if it had been there for a month: the cutoff is not what protects."""
    held = HeldVersion(table_path=path, version=version)
    return place_hold(graph.storage, (held,), kind=HoldKind.FREEZE, reason="backup", ttl_seconds=900)


@pytest.mark.slow
def test_a_dropped_dataset_goes_except_for_what_tells_that_its_name_was_used(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    path = drop(graph, KNOWS)
    age(graph.uri)
    mark = name_mark(graph, below(graph, path))
    rows, versions, files = rows_everywhere(graph), every_version(graph), below(graph, path) - mark
    plan, report = run(graph)
    assert set(planned(plan)) == files
    assert set(planned(plan).values()) == {OrphanKind.DROPPED_TABLE}
    assert [(g.path, g.files, g.kept) for g in plan.groups] == [(path, len(files), None)]
    assert report.files_removed == len(files)
    assert below(graph, path) == mark
    assert Path(graph.uri, path).exists() is bool(mark)
    assert Path(graph.uri, "edges").is_dir()
    assert (rows_everywhere(graph), every_version(graph)) == (rows, versions)
    assert_nothing_left(graph)


def test_a_folder_that_was_never_published_is_like_a_dropped_one(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    left = put(graph, "nodes/00000000000000aa-00000000000000bb/_transactions/0-x.txn")
    age(graph.uri)
    assert planned(run(graph)[0]) == {left: OrphanKind.DROPPED_TABLE}
    assert not Path(graph.uri, "nodes/00000000000000aa-00000000000000bb").exists()


@pytest.mark.slow
def test_a_dataset_that_a_branch_still_publishes_stays(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, lazy_branches=1)
    path = drop(graph, KNOWS)
    age(graph.uri)
    rows = rows_everywhere(graph)
    plan, report = run(graph)
    assert (plan.files, plan.groups, report.files_removed) == ((), (), 0)
    assert rows_everywhere(graph) == rows
    graph.manifest().branches.delete("lazy-1")
    age(graph.uri)
    assert set(planned(plan_orphans(graph))) >= below(graph, path) - name_mark(graph, below(graph, path))


def tag_the_graph(graph: Graph, before: int) -> object:
    return graph.manifest().tags.create("release", before)


def hold_the_graph(graph: Graph, before: int) -> object:
    return hold(graph, "__manifest", before)


@pytest.mark.parametrize("reach", [tag_the_graph, hold_the_graph])
def test_a_dataset_that_a_kept_graph_version_reads_stays(demo_graph: DemoGraph, stamp: int, reach: Reach) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    before = graph.manifest().version
    path = drop(graph, KNOWS)
    age(graph.uri)
    plan = plan_orphans(graph)
    assert plan.files
    reach(graph, before)
    beside, report = plan_orphans(graph), apply_orphans(graph, plan)
    assert planned(beside) == {}
    assert [(g.path, "reads it" in str(g.kept)) for g in beside.groups] == [(path, True)]
    assert report.files_removed == 0
    assert all("reads it" in f.reason for f in report.spared)
    graph.decode(graph.lance.open(f"{graph.uri}/__manifest", version=before), None)


def test_a_dataset_stays_where_a_kept_graph_version_cannot_be_read(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    graph.manifest().tags.create("kept", before := graph.manifest().version)
    graph.manifest().optimize.compact_files()
    path = drop(graph, KNOWS)
    needed = {file.path for fragment in graph.manifest().get_fragments() for file in fragment.data_files()}
    for file in Path(graph.uri, "__manifest", "data").iterdir():
        if file.name not in needed:
            file.write_bytes(b"damaged")
    age(graph.uri)
    plan = plan_orphans(graph)
    assert not [file for file in planned(plan) if file.startswith(path)]
    (group,) = plan.groups
    why = f"graph version {before}, tag 'kept', cannot be read, so what it refers to is unknown"
    assert (group.path, why in (group.kept or "")) == (path, True)


def test_a_dataset_with_a_hold_or_a_tag_of_its_own_stays(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    knows, person = drop(graph, KNOWS), drop(graph, PERSON)
    age(graph.uri)
    graph.lance.open(f"{graph.uri}/{knows}").tags.create("frozen", 1)
    placed = hold(graph, person, 1)
    age(graph.uri)
    plan = plan_orphans(graph)
    assert planned(plan) == {}
    assert {g.path: g.kept for g in plan.groups} == {knows: "it has a Lance tag", person: placed.label()}


def test_a_dataset_stays_while_its_last_graph_version_is_retained(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    path = drop(graph, KNOWS)
    age(graph.uri)
    # The tombstone's own version superseded the last one that reads the table, two days ago.
    manifest = Path(graph.uri, "__manifest/_versions", manifest_file_name(graph.manifest().version))
    then = time.time() - 2 * 86_400
    os.utime(manifest, (then, then))
    plan = plan_orphans(graph)
    assert planned(plan) == {}
    assert [(g.path, str(g.kept).startswith("retained graph version")) for g in plan.groups] == [(path, True)]
    assert planned(plan_orphans(graph, older_than_seconds=86_400))


def test_a_young_file_keeps_its_whole_dropped_dataset(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    path = drop(graph, KNOWS)
    age(graph.uri)
    plan = plan_orphans(graph)
    young = put(graph, f"{path}/data/new.lance", days=0)
    assert plan_orphans(graph).groups[0].kept == f"{young} is not old enough"
    report = apply_orphans(graph, plan)
    assert report.files_removed == 0
    assert all("appeared or changed" in f.reason for f in report.spared)


def test_an_unknown_file_stays_in_its_dropped_dataset(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    path = drop(graph, KNOWS)
    strange = put(graph, f"{path}/README")
    age(graph.uri)
    plan, report = run(graph)
    assert [u.path for u in plan.unknown] == [strange]
    assert report.files_removed == len(plan.files) > 0
    assert below(graph, path) == {strange}


def test_a_type_that_came_back_since_the_plan_is_spared(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    rows = rows_everywhere(graph)
    version = graph.manifest().version
    path = drop(graph, KNOWS)
    age(graph.uri)
    plan = plan_orphans(graph)
    graph.lance.open(f"{graph.uri}/__manifest", version=version).restore()
    report = apply_orphans(graph, plan)
    there = below(graph, path)
    assert (report.files_removed, len(report.spared)) == (0, len(there - name_mark(graph, there)))
    assert rows_everywhere(graph) == rows


def test_nothing_dropped_goes_when_any_dataset_is_unreadable(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    path, person = drop(graph, KNOWS), entry_of(graph, PERSON).path
    next(Path(graph.uri, person, "_versions").glob("*.manifest")).write_bytes(b"junk")
    age(graph.uri)
    plan = plan_orphans(graph)
    assert planned(plan) == {}
    assert [(g.path, person in str(g.kept)) for g in plan.groups] == [(path, True)]


def test_a_dataset_that_another_one_refers_to_stays(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = demo_graph(**SMALL)
    path, person = drop(graph, KNOWS), entry_of(graph, PERSON).path
    data = next(f for f in below(graph, path) if "/data/" in f)
    age(graph.uri)
    earlier = plan_orphans(graph)
    assert data in planned(earlier)

    def shared(dataset: lance_files.Dataset) -> Iterator[tuple[str, set[str]]]:
        yield from lance_files.tracked_files(dataset)
        if dataset.uri.endswith(person):
            yield f"{graph.uri}/{path}", {data.removeprefix(f"{path}/")}

    monkeypatch.setattr(references, "tracked_files", shared)
    plan = plan_orphans(graph)
    assert planned(plan) == {}
    reason = f"{data}: a version of another dataset refers to it"
    assert plan.groups[0].kept == reason
    report = apply_orphans(graph, earlier)
    assert report.files_removed == 0, "as a whole or not at all, whichever of its files is needed since the plan"
    assert {f.path for f in report.spared} == set(planned(earlier))
    assert {f.reason for f in report.spared if f.path != data} == {reason}


def test_a_type_that_comes_back_during_the_run_is_spared(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    version = graph.manifest().version
    path = drop(graph, KNOWS)
    stray = put(graph, f"{entry_of(graph, PERSON).path}/data/stray.lance")
    age(graph.uri)
    plan = plan_orphans(graph)
    revive = graph.lance.open(f"{graph.uri}/__manifest", version=version).restore
    when_asked(monkeypatch, os, "unlink", revive, about=f"/{stray}$")
    report = apply_orphans(graph, plan)
    assert report.files_removed == 1
    assert {f.path for f in report.spared} == below(graph, path)


@pytest.mark.parametrize(("keep", "words"), [(None, ""), ("tag", "tag 'kept'"), ("hold", "backup reads it")])
def test_retained_graph_versions_are_read_once_for_all_dropped_datasets(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, keep: str | None, words: str
) -> None:
    """There may be thousands of both; what somebody keeps meanwhile counts for what is left."""
    graph, real, asked = demo_graph(**SMALL), apply.dropped_to_keep, list[object]()
    version = graph.manifest().version
    paths = drop(graph, KNOWS), drop(graph, PERSON)
    age(graph.uri)
    plan = plan_orphans(graph)
    monkeypatch.setattr(apply, "dropped_to_keep", lambda *of: asked.append(of) or real(*of))

    def act() -> object:
        return graph.manifest().tags.create("kept", version) if keep == "tag" else hold_the_graph(graph, version)

    report = apply_orphans(graph if keep is None else graph.with_run(Beside(act)), plan)
    kept = 0 if keep is None else 1
    assert len([path for path in paths if below(graph, path)]) == kept
    assert len(asked) == 1 + kept
    assert {words in f.reason for f in report.spared} == ({True} if kept else set())


@pytest.mark.parametrize("what", ["a writer arms", "a freeze"])
def test_a_dropped_dataset_stays_where_somebody_comes_during_the_run(demo_graph: DemoGraph, what: str) -> None:
    """A recovery may publish it again, and a freeze lists its files: each group is looked at right before it goes."""
    graph = demo_graph(**SMALL)
    path, stray = drop(graph, KNOWS), put(graph, f"{entry_of(graph, PERSON).path}/data/stray.lance")
    age(graph.uri)
    plan, before = plan_orphans(graph), below(graph, path)

    def act() -> None:
        if what == "a writer arms":
            graph.storage.write(sidecar_path("01ARYZ6S410000000000000000"), b"{}")
        else:
            freeze = FreezeTerms(tables=(PERSON,))
            place_hold(graph.storage, (), kind=HoldKind.FREEZE, reason="a copy", ttl_seconds=900, freeze=freeze)

    with pytest.raises(RecoveryPending if what == "a writer arms" else GraphFrozen):
        apply_orphans(graph.with_run(Beside(act)), plan)
    assert not graph.storage.exists(stray)
    assert below(graph, path) == before


def test_a_run_that_lost_the_lease_deletes_nothing_more(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    stray = put(graph, f"{entry_of(graph, PERSON).path}/data/stray.lance")
    plan = plan_orphans(graph)
    with pytest.raises(LeaseHeld, match="taken over"):
        apply_orphans(graph.with_run(Beside(lambda: take_over(graph.storage))), plan)
    assert graph.storage.exists(stray)


@pytest.mark.parametrize("slowly", [False, True])
def test_a_killed_run_leaves_no_half_dataset_and_the_next_one_finishes(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, slowly: bool
) -> None:
    graph = demo_graph(**SMALL)
    path = drop(graph, KNOWS)
    age(graph.uri)
    plan = plan_orphans(graph)
    versions = sum("/_versions/" in file.path for file in plan.files)

    with monkeypatch.context() as killed:
        half = len(plan.files) // 2
        when_asked(killed, os, "unlink", raising(KeyboardInterrupt()), about=f"/{path}/", skip=half)
        with pytest.raises(KeyboardInterrupt):
            apply_orphans(graph.with_settings(Settings(max_deletes_per_second=versions)) if slowly else graph, plan)
    assert not [p for p in below(graph, path) if p.endswith(".manifest")]
    age(graph.uri)
    assert apply_orphans(graph, plan_orphans(graph)).files_removed > 0
    assert not Path(graph.uri, path).exists()


def test_the_same_plan_can_be_applied_again_after_a_crash(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    path = drop(graph, KNOWS)
    age(graph.uri)
    plan = plan_orphans(graph)
    for file in plan.files[::2]:
        graph.storage.delete(file.path)
    report = apply_orphans(graph, plan)
    assert (report.files_removed, report.already_gone) == (len(plan.files[1::2]), len(plan.files[::2]))
    assert not Path(graph.uri, path).exists()


def test_a_hold_that_cannot_be_read_refuses(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    drop(graph, KNOWS)
    put(graph, "__maintenance/holds/01ARYZ6S410000000000000000.json", json.dumps({"hold": 1}).encode())
    with pytest.raises(Exception, match="what it protects is unknown"):
        plan_orphans(graph)
    shutil.rmtree(f"{graph.uri}/__maintenance")
    write(graph, PERSON, copies("later-"))
    assert plan_orphans(graph).skipped == ()
