"""Orphans removes what nothing refers to, exactly what a plan listed, and never what anybody reads."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.holds import HeldVersion, HoldKind, place_hold
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.lance.tables import commit_results, execute_task, plan_tasks
from omnigraph_ops.models.orphans import OrphanKind, OrphansPlan
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from tests.conftest import DemoGraph
from tests.support.edges import when_asked
from tests.support.orphans import (
    PERSON,
    age,
    assert_nothing_left,
    every_version,
    planned,
    plant,
    put,
    run,
)
from tests.support.rows import rows_everywhere, tree_of
from tests.support.waits import instead_of_sleep
from tests.support.writers import copies, entry_of, write

SMALL = {"loads": 3, "rows": 8, "node_types": 1}
BRANCHED = SMALL | {"deletes": 1, "lazy_branches": 1, "written_branches": 2}


def outside_of_own_state(graph: Graph) -> dict[str, str]:
    return {p: d for p, d in tree_of(graph.uri).items() if not p.startswith("__maintenance")}


@pytest.mark.slow
def test_a_graph_without_leftovers_has_no_candidates(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **BRANCHED)
    age(graph.uri)
    plan = plan_orphans(graph)
    assert (plan.files, plan.folders, plan.unknown, plan.skipped, plan.groups) == ((), (), (), (), ())
    assert plan.listed_files == sum(1 for p in Path(graph.uri).rglob("*") if p.is_file())


@pytest.mark.slow
def test_what_killed_writes_left_goes_and_nothing_else(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **BRANCHED)
    graph.open_head(entry_of(graph, PERSON)).tags.create("audit", 3)
    age(graph.uri)
    clean, rows, versions = outside_of_own_state(graph), rows_everywhere(graph), every_version(graph)
    branch = f"{entry_of(graph, PERSON).path}/tree/review/hires-1"
    leftovers = plant(graph) | plant(graph, folder="__manifest") | plant(graph, folder=branch)
    before = outside_of_own_state(graph)
    plan = plan_orphans(graph)
    assert outside_of_own_state(graph) == before
    assert planned(plan) == leftovers
    report = apply_orphans(graph, plan)
    assert (report.files_removed, report.bytes_removed) == (len(leftovers), plan.total_bytes)
    assert (report.spared, report.failed, report.already_gone) == ((), (), 0)
    after = outside_of_own_state(graph)
    # The leftovers of a table without deletions or indexes made folders of their own; those went too.
    assert {p: d for p, d in after.items() if d != "folder"} == {p: d for p, d in clean.items() if d != "folder"}
    assert rows_everywhere(graph) == rows
    assert every_version(graph) == versions
    assert_nothing_left(graph)


def test_an_executed_rewrite_that_was_never_committed_goes(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    head = graph.open_head(entry_of(graph, PERSON))
    before = set(outside_of_own_state(graph))
    for task in plan_tasks(head, 1_000_000):
        execute_task(head, task.payload)
    left = set(outside_of_own_state(graph)) - before
    age(graph.uri)
    plan, report = run(graph)
    assert set(planned(plan)) == left
    assert report.files_removed == len(left) > 0
    assert set(outside_of_own_state(graph)) == before


def test_a_result_that_is_committed_after_the_plan_is_spared(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    entry = entry_of(graph, PERSON)
    head = graph.open_head(entry)
    results = [execute_task(head, task.payload) for task in plan_tasks(head, 1_000_000)]
    age(graph.uri)
    plan = plan_orphans(graph)
    assert plan.files
    commit_results(head, results)
    publish(graph, (table_update(graph, entry, graph.open_head(entry)),), actor=None)
    report = apply_orphans(graph, plan)
    assert (report.files_removed, {f.path for f in report.spared}) == (0, set(planned(plan)))
    assert all("refers to it" in f.reason for f in report.spared)
    assert rows_everywhere(graph)


def test_young_files_stay_until_they_are_old(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    age(graph.uri)
    young = plant(graph, days=6.9)
    plan = plan_orphans(graph)
    assert planned(plan) == {}
    assert plan.young_files == len(young)
    assert planned(plan_orphans(graph, older_than_seconds=6 * 86_400)) == young


def test_files_since_the_oldest_hold_stay(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    age(graph.uri, days=30)
    old, since = put_data(graph, days=20), put_data(graph, days=10)
    plan = plan_orphans(graph)
    assert set(planned(plan)) == {old, since}
    hold = place_hold(
        graph.storage,
        (HeldVersion(table_path=entry_of(graph, PERSON).path, version=2),),
        kind=HoldKind.READER,
        reason="a copy",
        ttl_seconds=900,
    )
    held = replace(hold, created_at=time.time() - 15 * 86_400)
    graph.storage.write(f"__maintenance/holds/{hold.hold_id}.json", serde.dumps(held).encode())
    beside = plan_orphans(graph)
    assert set(planned(beside)) == {old}
    assert len(beside.held_back) == 1
    report = apply_orphans(graph, plan)
    assert ([f.path for f in report.spared], report.files_removed) == ([since], 1)


def put_data(graph: Graph, *, days: float) -> str:
    return put(graph, f"{entry_of(graph, PERSON).path}/data/{os.urandom(8).hex()}.lance", days=days)


def test_unknown_files_are_reported_and_stay(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    base = entry_of(graph, PERSON).path
    strange = [
        "notes.txt",
        "nodes/readme",
        "nodes/my-copy/data/x.lance",
        f"{base}/data/x.parquet",
        f"{base}/_indices/not-a-uuid/page.lance",
        f"{base}/data/a/b/c.blob",
        f"{base}/_mem_wal/1.bin",
        "__maintenance/strange.json",
        "__recovery/strange.txt",
    ]
    for path in strange:
        put(graph, path)
    Path(graph.uri, base, "data", "link.lance").symlink_to("/etc/hostname")
    age(graph.uri)
    plan, report = run(graph)
    assert [u.path for u in plan.unknown] == sorted([*strange, f"{base}/data/link.lance"])
    assert (plan.files, report.files_removed) == ((), 0)
    assert all(os.path.lexists(Path(graph.uri, u.path)) for u in plan.unknown)


def test_a_name_that_is_no_text_is_reported_and_stays(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    odd = os.fsencode(graph.uri) + b"/nodes/caf\xe9.lance"
    with open(odd, "wb") as handle:
        handle.write(b"x")
    age(graph.uri)
    plan, report = run(graph)
    assert [u.path for u in plan.unknown] == ["nodes/caf\\xe9.lance"]
    assert report.files_removed == 0
    assert os.path.exists(odd)


def test_half_written_references_and_versions_go(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    base, half, ours = entry_of(graph, PERSON).path, f"tmp.{'0a' * 16}", f"{'0a' * 16}.tmp"
    left = [put(graph, f"{base}/{name}.{half}") for name in ("_refs/tags/v1.json", "_versions/7.manifest")]
    left += [put(graph, f"{base}/{name}.{ours}") for name in ("_transactions/7-x.txn", "_versions/7.manifest")]
    age(graph.uri)
    plan, report = run(graph)
    assert planned(plan) == dict.fromkeys(left, OrphanKind.TEMPORARY)
    assert (report.files_removed, plan.unknown, plan.skipped) == (len(left), (), ())


def test_our_own_stale_state_goes(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    stale = [
        put(graph, "__maintenance/operations/01ARYZ6S410000000000000000.json", b"{}"),
        put(graph, "__maintenance/plans/x.json.123.tmp"),
        put(graph, "__recovery/01ARYZ6S410000000000000000.json.123.tmp"),
    ]
    hold = place_hold(graph.storage, (), kind=HoldKind.READER, reason="r", ttl_seconds=-1)
    stale.append(f"__maintenance/holds/{hold.hold_id}.json")
    for kept in ("audit/01ARYZ6S410000000000000000", "plans/a", "fence"):
        put(graph, f"__maintenance/{kept}.json", b"{}")
    age(graph.uri)
    plan, report = run(graph)
    assert set(planned(plan)) == set(stale)
    assert (report.files_removed, plan.unknown) == (len(stale), ())
    assert graph.storage.exists("__recovery")


def test_empty_folders_go_but_not_those_of_the_engine(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    base = entry_of(graph, PERSON).path
    for folder in (f"{base}/_indices/empty", "edges/0123456789abcdef/data", "nodes", "__recovery", "other"):
        Path(graph.uri, folder).mkdir(parents=True, exist_ok=True)
    age(graph.uri)
    young = f"{base}/_indices/young"
    Path(graph.uri, young).mkdir()
    plan, report = run(graph)
    assert plan.folders == (f"{base}/_indices/empty", "edges/0123456789abcdef/data", "edges/0123456789abcdef")
    assert report.folders_removed == 3
    assert all(Path(graph.uri, f).is_dir() for f in ("nodes", "edges", "__recovery", "other", young, base))


def test_a_file_that_changed_or_went_since_the_plan_is_left(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    touched, grown, gone, same = (put_data(graph, days=8) for _ in range(4))
    plan = plan_orphans(graph)
    put(graph, touched, days=7.5)
    info = Path(graph.uri, grown).stat()
    Path(graph.uri, grown).write_bytes(b"more than before")
    os.utime(Path(graph.uri, grown), ns=(info.st_atime_ns, info.st_mtime_ns))
    graph.storage.delete(gone)
    report = apply_orphans(graph, plan)
    assert {f.path for f in report.spared} == {touched, grown}
    assert (report.files_removed, report.already_gone) == (1, 1)
    assert not graph.storage.exists(same)


def test_a_failed_deletion_stays_with_its_file(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = demo_graph(**SMALL)
    stubborn, other = put_data(graph, days=8), put_data(graph, days=8)
    plan, real = plan_orphans(graph), os.unlink

    def refuse(path: str, *rest: object, **more: object) -> None:
        if str(path).endswith(stubborn):
            raise PermissionError(13, "Permission denied")
        real(path, *rest, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as failing:
        failing.setattr(os, "unlink", refuse)
        report = apply_orphans(graph, plan)
    assert ([f.path for f in report.failed], report.files_removed) == ([stubborn], 1)
    assert not graph.storage.exists(other)
    assert run(graph)[1].files_removed == 1


def test_deletes_per_second_are_bounded(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = demo_graph(**SMALL, settings=Settings(max_deletes_per_second=4))
    for _ in range(10):
        put_data(graph, days=8)
    removed, slept = when_asked(monkeypatch, os, "unlink", about="/data/"), list[tuple[float, int]]()
    instead_of_sleep(monkeypatch, lambda seconds: slept.append((seconds, len(removed))))
    report = apply_orphans(graph, plan_orphans(graph))
    assert (report.files_removed, len(removed)) == (10, 10)
    assert [there for seconds, there in slept if seconds > 0.5] == [4, 8], "the rest of the second after each full bulk"


@pytest.mark.slow
def test_an_index_that_only_a_branch_still_reads_stays(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    entry = entry_of(graph, PERSON)
    forked = graph.open_pinned(entry_of(graph, PERSON, "review/hires-1"))
    inherited = {i["uuid"] for i in forked.list_indices() if i.get("base_id") is not None}
    assert inherited, "the branch is expected to read indexes of main"
    head = graph.open_head(entry)
    for index in head.describe_indices():
        head.drop_index(index.name)
        head = graph.open_head(entry)
    write(graph, PERSON, copies("later-"))
    head = graph.open_head(entry_of(graph, PERSON))
    versions = [v["version"] for v in head.versions()][:-1]
    for version in versions:
        Path(graph.uri, entry.path, "_versions", f"{2**64 - 1 - version:020d}.manifest").unlink()
    age(graph.uri)
    plan, report = run(graph)
    kept = {p.name for p in Path(graph.uri, entry.path, "_indices").iterdir()}
    assert inherited <= kept
    assert report.files_removed == len(plan.files)
    branch = graph.open_pinned(entry_of(graph, PERSON, "review/hires-1"))
    for index in branch.describe_indices():
        branch.stats.index_stats(index.name)


@pytest.mark.slow
def test_a_copied_graph_spells_its_roots_otherwise(demo_graph: DemoGraph, stamp: int) -> None:
    original = demo_graph(stamp=stamp, **BRANCHED)
    copy = f"{original.uri}-copy"
    shutil.copytree(original.uri, copy)
    graph = open_graph(copy, Settings())
    entry = entry_of(graph, PERSON)
    write(graph, PERSON, copies("later-"))
    head = graph.open_head(entry_of(graph, PERSON))
    # Main forgets its history: what the branches read is now referenced under the other spelling only.
    for version in [v["version"] for v in head.versions()][:-1]:
        Path(copy, entry.path, "_versions", f"{2**64 - 1 - version:020d}.manifest").unlink()
    head.optimize.compact_files()
    for version in [v["version"] for v in graph.open_head(entry).versions()][:-1]:
        Path(copy, entry.path, "_versions", f"{2**64 - 1 - version:020d}.manifest").unlink()
    age(copy)
    leftovers = plant(graph)
    read_by_branches = {
        f.data_files()[0].path for f in graph.open_pinned(entry_of(graph, PERSON, "review/hires-1")).get_fragments()
    }
    plan, _ = run(graph)
    assert leftovers.items() <= planned(plan).items()
    stored = {p.name for p in Path(copy).rglob("*.lance")}
    assert read_by_branches <= stored


def test_a_plan_survives_its_trip_through_a_file(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    plan = plan_orphans(graph)
    assert serde.from_json(OrphansPlan, serde.dumps(plan)) == plan


@pytest.mark.parametrize("name", ["with space.omni", "ü-100%25.omni", "linked"])
def test_the_spelling_of_the_root_hides_nothing(demo_graph: DemoGraph, tmp_path: Path, name: str) -> None:
    root = demo_graph(**SMALL, written_branches=1, name=name).uri
    if name == "linked":
        Path(tmp_path, "link").symlink_to(root)
        root = str(tmp_path / "link")
    graph = open_graph(root, Settings())
    age(root)
    leftovers = plant(graph)
    plan, report = run(graph)
    assert (planned(plan), plan.skipped) == (leftovers, ())
    assert (report.files_removed, report.failed) == (len(leftovers), ())
