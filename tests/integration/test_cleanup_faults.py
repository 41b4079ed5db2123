"""A fault stays with its table: the others are done, a later run converges, and the exit code tells."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lance import LanceDataset

from omnigraph_ops.coordination.state import REMOVALS_DIR
from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import version_path
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.models.cleanup import CleanupReport, CleanupStats, RetentionPolicy
from omnigraph_ops.stages.cleanup import apply
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.cleanup.stage import report_view
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.rows import rows_everywhere
from tests.support.shell import runner
from tests.support.writers import copies, entry_of, write

SMALL = {"loads": 4, "rows": 12, "node_types": 1}
PERSON, KNOWS = "node:Person", "edge:Knows"


def versions(graph: Graph, key: str) -> int:
    return len(graph.open_head(entry_of(graph, key)).versions())


def version_file(graph: Graph, entry: TableEntry) -> Path:
    """The manifest of a published version."""
    return Path(graph.uri, version_path(entry.path, entry.version, entry.branch))


@pytest.mark.slow
def test_a_deletion_that_fails_is_one_row_and_forks_still_go(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, cli = demo_graph(stamp=stamp, **SMALL, written_branches=1), runner(capsys)
    graph.manifest().branches.delete("review/hires-1")
    rows, path = rows_everywhere(graph), entry_of(graph, KNOWS).path
    with monkeypatch.context() as failing:
        when_asked(failing, LanceDataset, "cleanup_old_versions", raising(OSError("403 Forbidden")), about=f"{path}$")
        outcome = cli("cleanup --keep 1 --confirm --json", graph.uri)
    assert outcome.code == 1
    assert "Error: cleanup failed for 1 of 2 tables, nothing else is affected" in outcome.err
    by_key = {t["table_key"]: t for t in outcome.json["tables"]}
    assert set(by_key) == {PERSON, KNOWS}
    assert "403 Forbidden" in by_key[KNOWS]["error"]
    assert (by_key[PERSON]["error"], by_key[PERSON]["old_versions_removed"] > 0) == (None, True)
    assert PERSON in {f["table_key"] for f in outcome.json["orphaned_forks_removed"]}
    assert rows_everywhere(graph) == rows
    again = cli("cleanup --keep 1 --confirm --json", graph.uri)
    assert (again.code, versions(graph, KNOWS)) == (0, 1)


def test_a_branch_that_somebody_deletes_meanwhile_is_no_damage(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, lazy_branches=1)
    write(graph, PERSON, copies("later"))
    pinned = entry_of(graph, PERSON, "lazy-1")

    def beside() -> None:
        graph.manifest().branches.delete("lazy-1")
        version_file(graph, pinned).unlink()

    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    when_asked(monkeypatch, LanceDataset, "cleanup_old_versions", beside, after=True)
    stats = apply.cleanup_table(graph, plan, PERSON)
    assert (stats.error, stats.old_versions_removed > 0) == (None, True)


def test_a_version_that_is_published_and_gone_is_damage(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, lazy_branches=1)
    write(graph, PERSON, copies("later"))
    pinned = entry_of(graph, PERSON, "lazy-1")
    too_much, about = version_file(graph, pinned).unlink, f"{pinned.path}$"
    when_asked(monkeypatch, LanceDataset, "cleanup_old_versions", too_much, about=about, after=True)
    outcome = runner(capsys)("cleanup --keep 1 --confirm --json", graph.uri)
    assert outcome.code == 1
    row = next(t for t in outcome.json["tables"] if t["table_key"] == PERSON)
    assert f"branch lazy-1 cannot open version {pinned.version}" in row["error"]
    assert "stop cleanups of this graph and restore it" in row["error"]
    assert row["old_versions_removed"] > 0


def test_what_went_of_a_table_that_failed_is_counted() -> None:
    failed = CleanupStats(table_key=PERSON, old_versions_removed=6, bytes_removed=100, error="it failed")
    report = CleanupReport.of("g", RetentionPolicy(keep_versions=1), [failed], ())
    assert "removed 6 versions (100 bytes) across 1 table" in report_view(report).title


def test_an_announcement_that_cannot_be_taken_back_hides_nothing_that_was_removed(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    plan, slow = plan_cleanup(graph, RetentionPolicy(keep_versions=1)), raising(StorageError("503 Slow Down"))
    with monkeypatch.context() as failing:
        when_asked(failing, Storage, "delete", slow, about=f"^{REMOVALS_DIR}", times=None)
        report = apply.cleanup_all(graph, plan)
    assert {t.table_key: len(t.versions) for t in report.tables} == {t.table_key: len(t.versions) for t in plan.tables}
    assert report.versions_removed == sum(len(t.versions) for t in plan.tables) > 0
    assert "503 Slow Down" in {t.error for t in report.tables}


def test_everything_old_goes_and_the_table_is_written_on(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    plan = plan_cleanup(graph, RetentionPolicy(older_than_secs=0))
    assert not apply.cleanup_all(graph, plan).failed
    before = graph.open_head(entry_of(graph, PERSON)).count_rows()
    write(graph, PERSON, copies("after-"))
    assert graph.open_pinned(entry_of(graph, PERSON)).count_rows() == before + 3


def test_deletes_that_the_store_refuses_in_silence_are_a_failure(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lance counts what it deleted and passes over what it may not."""
    graph, cli = demo_graph(stamp=6, **SMALL), runner(capsys)
    before = versions(graph, PERSON)
    nothing = SimpleNamespace(bytes_removed=0, old_versions=0)
    monkeypatch.setattr(LanceDataset, "cleanup_old_versions", lambda *_, **__: nothing)
    outcome = cli("cleanup --keep 1 --confirm --json", graph.uri)
    assert outcome.code == 1
    assert all(
        "still there, although no delete failed; no row is lost; give this account the rights" in t["error"]
        for t in outcome.json["tables"]
    )
    assert versions(graph, PERSON) == before


def test_files_that_the_store_keeps_in_silence_while_their_versions_go_are_a_failure(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where `data/` may not be written to. No repetition finds these versions again, so none may hide it."""
    graph, cli, real = demo_graph(**SMALL), runner(capsys), LanceDataset.cleanup_old_versions
    optimize_all(graph)
    kept: list[Path] = []

    def passing_over(dataset: LanceDataset, **how: Any) -> Any:
        data = Path(dataset.uri, "data")
        before = {file: file.read_bytes() for file in data.iterdir()} if data.exists() else {}
        stats = real(dataset, **how)
        back = {file: content for file, content in before.items() if not file.exists()}
        for file, content in back.items():
            file.write_bytes(content)
        kept.extend(back)
        size = sum(map(len, back.values()))
        return SimpleNamespace(bytes_removed=stats.bytes_removed - size, old_versions=stats.old_versions)

    monkeypatch.setattr(LanceDataset, "cleanup_old_versions", passing_over)
    with pytest.raises(OpsError, match=r"of \d+ files of the removed versions still there, although") as raised:
        apply.cleanup_table(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1)), PERSON)
    assert (int(str(raised.value).split(" of ")[0]), raised.value.retryable) == (len(kept), False)
    assert versions(graph, PERSON) == 1, "only this run can tell of them"
    outcome = cli("cleanup --keep 1 --confirm --json", graph.uri)
    by_key = {t["table_key"]: t["error"] or "" for t in outcome.json["tables"]}
    assert (outcome.code, by_key[PERSON]) == (1, "")
    assert by_key[KNOWS].endswith("docs/reference/rights.md, then run `omnigraph-ops orphans`, which finds them")


@pytest.mark.parametrize("left", [None, 0, 50], ids=["gone", "empty", "short"])
def test_the_last_version_that_has_the_rows_stays(
    demo_graph: DemoGraph, stamp: int, left: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, cli = demo_graph(stamp=stamp, **SMALL), runner(capsys)
    before = entry_of(graph, PERSON)
    rows = graph.open_head(before).to_table()
    optimize_all(graph)
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    (fragment,) = graph.open_head(entry_of(graph, PERSON)).get_fragments()
    file = Path(graph.table_uri(before), "data", fragment.data_files()[0].path)
    file.unlink() if left is None else os.truncate(file, left)

    assert "lacks" in next(t.error or "" for t in apply.cleanup_all(graph, plan).tables if t.table_key == PERSON)
    outcome = cli("cleanup --keep 1 --confirm --json", graph.uri)
    assert outcome.code == 1
    planned = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    assert {t.table_key for t in planned.tables if t.is_damaged} == {PERSON}
    by_key = {t["table_key"]: t for t in outcome.json["tables"]}
    assert f"which lacks {before.path}/data/{file.name}, and an older version" in by_key[PERSON]["error"]
    assert (by_key[KNOWS]["error"], by_key[KNOWS]["already_gone"]) == (None, 0)
    assert graph.lance.open(graph.table_uri(before), version=before.version).to_table() == rows


def test_what_a_lazy_branch_lacks_keeps_older_versions_too(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, lazy_branches=1)
    pinned = entry_of(graph, PERSON, "lazy-1")
    optimize_all(graph)
    lost = f"data/{graph.open_pinned(pinned).get_fragments()[0].data_files()[0].path}"
    Path(graph.table_uri(pinned), lost).unlink()
    row = next(t for t in plan_cleanup(graph, RetentionPolicy(keep_versions=1)).tables if t.table_key == PERSON)
    assert f"branch 'lazy-1' pins version {pinned.version}, which lacks {pinned.path}/{lost}" in (row.refused or "")
    assert not row.is_damaged, "main can be read, and its nights are green"


def test_a_data_file_behind_a_link_is_there(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    optimize_all(graph)
    (fragment,) = graph.open_head(entry_of(graph, PERSON)).get_fragments()
    file = Path(graph.table_uri(entry_of(graph, PERSON)), "data", fragment.data_files()[0].path)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    assert [t.refused for t in plan.tables] == [None, None]


@pytest.mark.parametrize(
    ("faults", "asked", "failed"),
    [
        pytest.param(1, 3, 0, id="one table, done after the other"),
        pytest.param(2, 2, 2, id="both, so nothing is freed"),
    ],
)
def test_tables_that_found_no_space_are_cleaned_after_the_others(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, faults: int, asked: int, failed: int
) -> None:
    """Each writes down what it is about to remove; the space for that may come from another one's cleanup."""
    graph = demo_graph(**SMALL)
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    full = raising(StorageError("cannot write: No space left on device; no row is lost; free space there"))
    announced = when_asked(monkeypatch, Storage, "write", full, about=f"{REMOVALS_DIR}/", times=faults)
    report = apply.cleanup_all(graph, plan)
    assert (len(announced), len(report.failed)) == (asked, failed)
    assert [t.table_key for t in report.tables] == [t.table_key for t in plan.tables] == [KNOWS, PERSON]
    assert all((versions(graph, key) == 1) is (failed == 0) for key in (KNOWS, PERSON))
