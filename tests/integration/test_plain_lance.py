"""Plain Lance: one dataset or a folder of them goes through the same verbs, and its readers notice nothing."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import lance
import pytest

from omnigraph_ops.coordination.guards import quiet_state
from omnigraph_ops.coordination.holds import HeldVersion, plan_hold
from omnigraph_ops.errors import NotAGraph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.plain import PlainGateway
from omnigraph_ops.models.cleanup import RetentionPolicy, SnapshotExpiry
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.optimize import OptimizeDecision, SkipReason
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import preview_repair
from tests.support import plain
from tests.support.rows import tree_of

NAMES = ("empty", "stable", "unstable")
KEEP_1 = RetentionPolicy(keep_versions=1)
WEEK = 7 * 86_400


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain.database(tmp_path_factory.mktemp("plain"))


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "db")
    return tmp_path / "db"


def optimized(graph: Graph) -> dict[str, bool]:
    report = optimize_all(graph)
    assert not report.failed, report.failed
    return {t.table_key: t.committed for t in report.tables}


def old_file(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    long_ago = time.time() - 8 * 86_400
    os.utime(path, (long_ago, long_ago))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("small", [True, False], ids=["one_unit", "two_units"])
def test_a_folder_is_compacted_and_its_readers_see_the_same(folder: Path, small: bool) -> None:
    graph = plain.opened(folder) if small else plain.opened(folder, small_table_bytes=0)
    rows = {n: plain.content(folder / f"{n}.lance") for n in NAMES}
    found = {n: plain.answers(folder / f"{n}.lance") for n in NAMES[1:]}
    assert optimized(graph) == {"table:empty": False, "table:stable": True, "table:unstable": True}
    assert {n: plain.content(folder / f"{n}.lance") for n in NAMES} == rows
    for name in NAMES[1:]:
        path = folder / f"{name}.lance"
        assert plain.answers(path) == found[name]
        assert len(plain.fragment_ids(path)) == 1
        assert set(plain.index_coverage(path)) == {"id_idx", "kind_idx", "text_idx", "vector_idx"}
        assert all(c == [plain.fragment_ids(path)] for c in plain.index_coverage(path).values())
    before = tree_of(folder)
    assert not any(optimized(plain.opened(folder)).values())
    assert tree_of(folder) == before
    assert {p.decision for p in plan_optimize(graph).tables} == {OptimizeDecision.NO_OP}


def test_one_dataset_is_maintained_alone(folder: Path) -> None:
    others = {n: tree_of(folder / f"{n}.lance") for n in ("empty", "unstable")}
    graph = plain.opened(folder / "stable.lance")
    assert (graph.uri, graph.target) == (str(folder), str(folder / "stable.lance"))
    assert optimized(graph) == {"table:stable": True}
    assert cleanup_all(graph, plan_cleanup(graph, KEEP_1)).versions_removed
    old_file(folder / "stable.lance" / "data" / "lost.lance")
    kept = old_file(folder / "unstable.lance" / "data" / "lost.lance")
    assert [f.path for f in plan_orphans(graph).files] == ["stable.lance/data/lost.lance"]
    kept.unlink()
    assert {n: tree_of(folder / f"{n}.lance") for n in others} == others


@pytest.mark.slow
def test_a_dataset_of_any_name_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "some data"
    plain.indexed(path, stable=True)
    lost = old_file(path / "data" / "lost.lance")
    rows, found = plain.content(path), plain.answers(path)
    graph = plain.opened(path, small_table_bytes=0)
    assert optimized(graph) == {"table:some data": True}
    assert apply_orphans(graph, plan_orphans(graph)).files_removed == 1
    assert not lost.exists()
    assert cleanup_all(graph, plan_cleanup(graph, KEEP_1)).versions_removed
    assert plain.versions(path) == [lance.dataset(str(path)).version]
    assert (plain.content(path), plain.answers(path)) == (rows, found)


@pytest.mark.parametrize("storage", ["legacy", "2.0"])
@pytest.mark.parametrize("v2_paths", [False, True], ids=["v1_names", "v2_names"])
def test_datasets_of_older_lance(tmp_path: Path, storage: str, v2_paths: bool) -> None:
    path = tmp_path / "old.lance"
    for mode in ("create", "append", "append"):
        options = {"data_storage_version": storage, "enable_v2_manifest_paths": v2_paths} if mode == "create" else {}
        lance.write_dataset(plain.rows(0, 20).select(["id", "kind"]), str(path), mode=mode, **options)
    lance.dataset(str(path)).delete("id = 3")
    rows = plain.content(path)
    graph = plain.opened(path)
    (told,) = health(graph).tables
    assert (told.versions, told.fragments) == (4, 3)
    assert optimized(graph) == {"table:old": True}
    report = cleanup_all(graph, plan_cleanup(graph, KEEP_1))
    assert report.versions_removed == 5
    old_file(path / "data" / "lost.lance")
    assert apply_orphans(graph, plan_orphans(graph)).files_removed == 1
    assert plain.content(path) == rows
    assert lance.dataset(str(path)).data_storage_version == {"legacy": "0.1"}.get(storage, storage)


@pytest.mark.slow
def test_cleanup_keeps_what_somebody_reads(folder: Path) -> None:
    path = folder / "stable.lance"
    dataset = lance.dataset(str(path))
    dataset.tags.create("release", 3)
    dataset.create_branch("work", 4)
    lance.write_dataset(plain.rows(5000, 10), dataset.checkout_version(("work", None)), mode="append")
    marks = (3, 4, 5, ("work", None))
    rows = [plain.content(path, mark) for mark in marks]
    graph = plain.opened(folder)
    optimized(graph)
    assert [plain.content(path, mark) for mark in marks] == rows
    held = HeldVersion(table_path="stable.lance", version=5)
    with plan_hold(graph.storage, held, reason="a reader", ttl_seconds=600):
        plan = plan_cleanup(graph, KEEP_1)
        assert plan.orphaned_forks == ()
        report = cleanup_all(graph, plan)
    assert not report.failed, report.failed
    head = lance.dataset(str(path)).version
    assert plain.versions(path) == [3, 4, 5, head]
    assert [plain.content(path, mark) for mark in marks] == rows


@pytest.mark.slow
@pytest.mark.parametrize("target", ["", "stable.lance"])
@pytest.mark.parametrize(("spelled", "name"), [("plain", "clone.lance"), ("through a link", "clone")])
def test_versions_that_a_shallow_clone_reads_are_not_cleaned_up(
    folder: Path, tmp_path: Path, target: str, spelled: str, name: str
) -> None:
    (tmp_path / "link").symlink_to(folder)
    source = (folder if spelled == "plain" else tmp_path / "link") / "stable.lance"
    lance.dataset(str(source)).shallow_clone(str(folder / name), 3)
    rows = plain.content(folder / name)
    graph = plain.opened(folder / target)
    optimized(graph)
    plan = plan_cleanup(graph, KEEP_1)
    refused = {t.table_key: t.refused for t in plan.tables}
    assert f"{name} reads files" in str(refused.pop("table:stable"))
    assert set(refused.values()) <= {None}
    assert [t.table_key for t in cleanup_all(graph, plan).failed] == ["table:stable"]
    assert plan_orphans(graph).files == ()
    assert plain.content(folder / name) == rows


def test_a_clone_that_is_made_after_the_plan_keeps_what_it_reads(folder: Path) -> None:
    graph = plain.opened(folder)
    plan = plan_cleanup(graph, KEEP_1)
    lance.dataset(str(folder / "stable.lance")).shallow_clone(str(folder / "clone.lance"), 3)
    (failed,) = cleanup_all(graph, plan).failed
    assert (failed.table_key, "clone.lance reads files" in str(failed.error)) == ("table:stable", True)


def counting(graph: Graph) -> tuple[Graph, list[str]]:
    """The same graph, and the addresses of what it opens from now on."""
    opened: list[str] = []

    class Counting(PlainGateway):
        """Notes what it opens."""

        def open(self, uri: str, *, branch: str | None = None, version: int | None = None) -> lance.LanceDataset:
            opened.append(uri)
            return super().open(uri, branch=branch, version=version)

    return replace(graph, context=replace(graph.context, lance=Counting({}))), opened


def test_a_plan_opens_every_dataset_of_a_folder_so_many_times_however_many_there_are(folder: Path) -> None:
    def opens_of_each() -> int:
        graph, opened = counting(plain.opened(folder))
        plan_cleanup(graph, KEEP_1)
        return max(Counter(opened).values())

    of_three = opens_of_each()
    for number in range(5):
        shutil.copytree(folder / "stable.lance", folder / f"more{number}.lance")
    assert opens_of_each() == of_three > 0


def test_a_cleanup_of_one_dataset_after_the_other_opens_each_as_often_however_many_there_are(folder: Path) -> None:
    def opens_of_each() -> int:
        plan = plan_cleanup(plain.opened(folder), KEEP_1)
        graph, opened = counting(plain.opened(folder, concurrency=1))
        report = cleanup_all(graph, plan)
        assert not report.failed, report.failed
        return max(Counter(opened).values())

    of_three = opens_of_each()
    for number in range(5):
        shutil.copytree(folder / "empty.lance", folder / f"more{number}.lance")
        plain.append(folder / f"more{number}.lance", 0)
    assert opens_of_each() == of_three > 0


def test_who_reads_a_dataset_is_told_as_it_is_now(folder: Path) -> None:
    """Asked again and again: what is new, written to, made anew, damaged or gone since the last time counts."""
    graph, opened = counting(plain.opened(folder))
    stable, reader = "stable.lance", folder / "reader.lance"

    def told() -> str:
        opened.clear()
        return graph.clones((stable,)).get(stable, "")

    assert (told(), len(opened)) == ("", 3)
    assert (told(), opened) == ("", [])
    lance.write_dataset(plain.rows(0, 5), str(reader))
    assert (told(), opened) == ("", [str(reader)]), "a new neighbour"
    shutil.rmtree(reader)
    lance.dataset(str(folder / stable)).shallow_clone(str(reader), 1)
    assert plain.versions(reader) == [1]
    for _ in range(2):
        assert "reader.lance reads files of it" in told(), "made anew, with the same version"
    assert opened == []
    lance.write_dataset(plain.rows(0, 5), str(reader), mode="overwrite")
    assert ("reader.lance reads files of it" in told(), opened) == (True, [str(reader)]), "a new version"
    min((reader / "_versions").glob("*.manifest")).write_bytes(b"damaged")
    for _ in range(2):
        assert "reader.lance cannot be opened" in told()
        assert opened == [str(reader)]
    shutil.rmtree(reader)
    assert (told(), opened) == ("", [])


@pytest.mark.parametrize("base", ["", "data", "more"])
@pytest.mark.parametrize("name", ["reader.lance", "reader"])
def test_files_that_another_dataset_wrote_into_one_are_no_orphans(folder: Path, base: str, name: str) -> None:
    """Its registered base is that dataset or a folder of it, where no version of that dataset refers to the files."""
    place = folder / "stable.lance" / base
    place.mkdir(exist_ok=True)
    bases = [lance.DatasetBasePath(str(place), name="there", is_dataset_root=not base)]
    lance.write_dataset(plain.rows(0, 5), str(folder / name), initial_bases=bases, target_bases=["there"])
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - 8 * 86_400,) * 2)
    for target in ("", "stable.lance"):
        plan = plan_orphans(plain.opened(folder / target), older_than_seconds=WEEK)
        assert plan.files == ()
        searched = target == "" and name == "reader.lance"
        assert [s.path for s in plan.skipped] == ([] if searched else ["stable.lance"])
        refused = {t.table_key: t.refused for t in plan_cleanup(plain.opened(folder / target), KEEP_1).tables}
        assert f"{name} reads files of it" in str(refused["table:stable"])


@pytest.mark.parametrize("source", ["stable.lance", "unstable.lance"])
def test_a_shallow_clone_keeps_its_indexes(folder: Path, source: str) -> None:
    """Lance 13 loses those of the original when it remaps them in a clone without stable row ids."""
    original = lance.dataset(str(folder / source))
    original.shallow_clone(str(folder / "clone.lance"), original.version)
    rows, answers = plain.content(folder / "clone.lance"), plain.answers(folder / "clone.lance")
    (clone,) = optimize_all(plain.opened(folder), tables=("table:clone",)).tables
    assert (clone.error, clone.skipped) == (None, None if source == "stable.lance" else SkipReason.INHERITED_INDEXES)
    assert (plain.content(folder / "clone.lance"), plain.answers(folder / "clone.lance")) == (rows, answers)
    dataset = lance.dataset(str(folder / "clone.lance"))
    for index in dataset.describe_indices():
        dataset.drop_index(index.name)
    (clone,) = optimize_all(plain.opened(folder), tables=("table:clone",)).tables
    assert (clone.error, clone.skipped) == (None, None)
    assert plain.content(folder / "clone.lance") == rows


def test_snapshot_expiry_works(folder: Path) -> None:
    graph = plain.opened(folder / "unstable.lance")
    before = plain.versions(folder / "unstable.lance")
    expiry = SnapshotExpiry(retain_min=2, time_retained_secs=0, expire_limit=3)
    cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(expiry=expiry)))
    assert plain.versions(folder / "unstable.lance") == before[3:]


def test_orphans_goes_only_for_files_that_no_version_of_a_dataset_needs(folder: Path) -> None:
    dataset = lance.dataset(str(folder / "stable.lance"))
    dataset.create_branch("work", 4)
    lance.write_dataset(plain.rows(5000, 10), dataset.checkout_version(("work", None)), mode="append")
    lost = [
        old_file(folder / "stable.lance" / "data" / "lost.lance"),
        old_file(folder / "stable.lance" / "tree" / "work" / "data" / "lost.lance"),
        old_file(folder / "unstable.lance" / "_indices" / "00000000-0000-4000-8000-000000000000" / "page.lance"),
    ]
    unknown = [
        old_file(folder / "notes.txt"),
        old_file(folder / "broken.lance" / "data" / "precious.lance"),
        old_file(folder / "nodes" / "0123456789abcdef" / "data" / "precious.lance"),
    ]
    (folder / "nodes" / "0123456789abcdee").mkdir()
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - 8 * 86_400,) * 2)
    rows = plain.content(folder / "stable.lance", ("work", None))
    graph = plain.opened(folder)
    plan = plan_orphans(graph, older_than_seconds=WEEK, quarantine=True)
    assert sorted(f.path for f in plan.files) == sorted(str(p.relative_to(folder)) for p in lost)
    assert sorted(u.path for u in plan.unknown) == sorted(str(p.relative_to(folder)) for p in unknown)
    assert apply_orphans(graph, plan).files_removed == len(lost)
    assert all(p.exists() for p in unknown)
    assert (folder / "nodes" / "0123456789abcdee").is_dir()
    assert not any(p.exists() for p in lost)
    assert plain.content(folder / "stable.lance", ("work", None)) == rows
    assert plan_orphans(graph, older_than_seconds=WEEK).files == ()


def test_a_dataset_that_cannot_be_opened_is_said_and_holds_up_no_other(folder: Path) -> None:
    newest = min((folder / "stable.lance" / "_versions").glob("*.manifest"))
    newest.write_bytes(b"damaged")
    old_file(folder / "stable.lance" / "data" / "perhaps.lance")
    graph = plain.opened(folder)
    report = optimize_all(graph)
    assert [t.table_key for t in report.failed] == ["table:stable"]
    assert [t.table_key for t in report.tables if t.committed] == ["table:unstable"]
    assert [d.table_key for d in check(graph).drift] == ["table:stable"]
    assert [t.table_key for t in health(graph).tables if t.error] == ["table:stable"]
    # It might be a shallow clone of any of the others.
    refused = [t.refused for t in plan_cleanup(graph, KEEP_1).tables]
    assert all(reason is not None and "cannot" in reason for reason in refused)
    plan = plan_orphans(graph)
    assert [s.path for s in plan.skipped] == ["stable.lance"]
    assert plan.files == ()


def test_nothing_can_be_pending_or_drift(folder: Path) -> None:
    graph = plain.opened(folder)
    found = check(graph)
    assert (found.stamp, found.status, found.drift) == (0, CheckStatus.CLEAN, ())
    assert recover(graph).outcomes == ()
    assert preview_repair(graph).drifted == ()
    assert not quiet_state(graph, 3600)[0]
    assert quiet_state(graph, 0)[0]


def test_auto_cleanup_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "mine.lance"
    plain.indexed(path, stable=True)
    mine = {"lance.auto_cleanup.interval": "1000", "lance.auto_cleanup.older_than": "1h"}
    lance.dataset(str(path)).update_config(mine)
    config = lance.dataset(str(path)).config()
    assert mine.items() <= config.items()
    graph = plain.opened(path)
    (planned,) = plan_optimize(graph).tables
    assert not planned.strip_auto_cleanup
    assert "its owner" in planned.reason
    assert "its owner" in str(health(graph).tables[0].note)
    assert optimized(graph) == {"table:mine": True}
    assert lance.dataset(str(path)).config() == config


@pytest.mark.parametrize("place", ["", "/history.lance"])
def test_what_the_tool_keeps_for_itself_is_no_target(folder: Path, place: str) -> None:
    optimize_all(open_graph(str(folder)))
    shutil.copytree(folder / "stable.lance", folder / "__maintenance" / "history.lance")
    with pytest.raises(NotAGraph, match="keeps for itself"):
        open_graph(f"{folder}/__maintenance{place}")
