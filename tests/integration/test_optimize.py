"""Optimize: rows never change, one pass converges, and other writers may come in between."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lance
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import guards
from omnigraph_ops.coordination.lease import committer_lease
from omnigraph_ops.errors import CorruptGraph, RecoveryNeeded, UnknownTable
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.graph.sidecars import write_sidecar
from omnigraph_ops.lance.gateway import Dataset, LanceFailure, auto_cleanup_keys
from omnigraph_ops.lance.tables import table_facts
from omnigraph_ops.models.optimize import BinaryCopy, OptimizeDecision, OptimizeReport, SkipReason
from omnigraph_ops.progress import Lines, Run
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.stages.optimize.stage import report_view
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.views.view import for_terminal
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged, assert_no_leftovers, assert_pins_are_heads
from tests.support.edges import raising, when_published, when_rewritten
from tests.support.rows import rows_everywhere, scan, tree_of
from tests.support.writers import copies, entry_of, write

SMALL = {"loads": 3, "rows": 20}
PEOPLE = {"node_types": 1, "loads": 4, "rows": 15}
TWO_WINDOWS = Settings(small_table_bytes=0)


def committed(report: OptimizeReport) -> set[str]:
    assert [t for t in report.tables if t.error] == []
    return {t.table_key for t in report.tables if t.committed}


@pytest.mark.night("combinations")
@pytest.mark.parametrize("settings", [Settings(), TWO_WINDOWS], ids=["one_window", "two_windows"])
def test_one_pass_converges_and_no_row_moves(demo_graph: DemoGraph, stamp: int, settings: Settings) -> None:
    graph = demo_graph(
        stamp=stamp, **SMALL, deletes=2, updates=5, lazy_branches=1, written_branches=1, settings=settings
    )
    before = rows_everywhere(graph)
    keys = {e.table_key for e in graph.state().entries}
    assert committed(optimize_all(graph)) == keys
    assert rows_everywhere(graph) == before
    assert len(before) == 3
    assert_converged(graph)
    tree = tree_of(graph.uri)
    assert committed(optimize_all(graph)) == set()
    assert tree_of(graph.uri) == tree


@pytest.mark.slow
def test_a_fold_and_a_rewrite_have_windows_of_their_own(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE, settings=TWO_WINDOWS)
    units = {t.table_key: [w.unit for w in t.windows] for t in optimize_all(graph).tables if t.committed}
    assert units == {"edge:Knows": ["fold", "rewrite"], "node:Person": ["fold", "rewrite"]}
    assert_converged(graph)


@pytest.mark.slow
def test_a_small_table_has_one_window_and_its_numbers_are_true(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    stats = optimize_table(graph, "node:Person")
    assert [w.unit for w in stats.windows] == ["fold+rewrite"]
    assert (stats.fragments_removed, stats.fragments_added, stats.rows) == (4, 1, 60)
    assert stats.published_version == entry_of(graph, "node:Person").version
    assert set(stats.indexes_folded) == {"id_idx", "name_idx", "bio_idx", "tier_idx"}


@pytest.mark.slow
def test_missing_indexes_are_built_and_pending_ones_are_reported(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, index_after_load=0, vectors=False)
    stats = next(t for t in optimize_all(graph).tables if t.table_key == "node:Doc")
    assert set(stats.indexes_built) == {"id_idx", "slug_idx", "title_idx"}
    assert [p.column for p in stats.pending_indexes] == ["embedding"]
    assert_converged(graph)


@pytest.mark.slow
def test_more_tables_than_workers_do_not_mistake_each_other_for_a_crash(demo_graph: DemoGraph) -> None:
    # A table that starts while another one is in its armed window sees that one's sidecar.
    graph = demo_graph(node_types=14, loads=2, rows=4, settings=Settings(concurrency=3))
    assert len(committed(optimize_all(graph))) == 17
    assert_pins_are_heads(graph)


@pytest.mark.slow
@pytest.mark.parametrize("copied", [BinaryCopy.NEVER, BinaryCopy.ALWAYS])
def test_a_rewrite_keeps_the_versions_of_every_row(demo_graph: DemoGraph, stamp: int, copied: BinaryCopy) -> None:
    """By them a merge of engine 0.9 finds the rows that were inserted on a branch."""
    settings = TWO_WINDOWS.model_copy(update={"binary_copy": copied})
    graph = demo_graph(stamp=stamp, **SMALL, deletes=2, updates=5, settings=settings)
    columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]

    def versions() -> dict[str, list[dict[str, object]]]:
        found = {e.table_key: graph.open_pinned(e).scanner(columns=columns) for e in graph.state().entries}
        return {key: scanner.to_table().to_pylist() for key, scanner in found.items()}

    before = versions()
    assert any(row[columns[2]] != row[columns[3]] for rows in before.values() for row in rows)
    assert committed(optimize_all(graph)) == set(before)
    assert versions() == before


@pytest.mark.slow
def test_blobs_keep_their_bytes_or_are_left_alone(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, loads=2, rows=40, blobs=True)
    before = rows_everywhere(graph)
    report = {t.table_key: t for t in optimize_all(graph).tables}
    photos = report["node:Photo"]
    expected = (True, None) if graph.format.compacts_blobs else (False, SkipReason.BLOBS)
    assert (photos.committed, photos.skipped) == expected
    assert rows_everywhere(graph) == before
    assert_converged(graph)


class Impatient(Run):
    """Notes for how long it was asked to wait."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def test_a_siblings_window_is_no_crash_but_one_that_its_run_left_is(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**PEOPLE)
    optimize_table(graph, "edge:Knows")
    operation = new_ulid()
    with committer_lease(graph.storage, purpose="a sibling", ttl_seconds=30, wait_seconds=0) as keeper:
        armed = guards.Operation(
            operation_id=operation,
            table_key="t",
            unit="fold",
            owner="h:1",
            started_at_us=1,
            lease_number=keeper.number,
        )
        guards.note_operation(graph.storage, armed)
        write_sidecar(graph, entry_of(graph, "node:Person"), operation, graph.uri)
        assert not optimize_table(graph, "edge:Knows").committed
    before, run = entry_of(graph, "node:Person"), Impatient()
    with pytest.raises(RecoveryNeeded):
        optimize_table(graph.with_run(run), "node:Person")
    assert graph.open_head(before).version == before.version
    assert run.pauses == [], "nothing but a recovery ends it"


class StopsOncePublished(Run):
    """Is asked to stop as soon as something of the table is published."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.before = graph, entry_of(graph, "node:Person")

    @property
    def stopping(self) -> bool:
        return entry_of(self.graph, "node:Person") != self.before


def test_a_table_of_which_a_part_is_left_is_called_interrupted(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE, settings=Settings(small_table_bytes=0, concurrency=1))
    stopped = graph.with_run(StopsOncePublished(graph))
    stats = next(t for t in optimize_all(stopped, tables=["node:Person"]).tables if t.table_key == "node:Person")
    assert (stats.committed, stats.fragments_removed, stats.skipped) == (True, 0, SkipReason.INTERRUPTED)
    assert stats.indexes_folded
    told = for_terminal(report_view(OptimizeReport.of(graph.uri, [stats])))
    assert "the rest is left (the run was stopped first" in told
    done = next(t for t in optimize_all(graph).tables if t.table_key == "node:Person")
    assert (done.skipped, done.fragments_added) == (None, 1)


@pytest.mark.slow
def test_after_a_publish_that_failed_no_other_table_is_prepared(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, settings=Settings(concurrency=1))
    rows, run, said = rows_everywhere(graph), Impatient(), list[str]()
    with monkeypatch.context() as patch:
        when_published(patch, raising(OSError("no space left")), times=None)
        report = optimize_all(graph.with_run(run), progress=Lines(said.append))
    others = [table for table in report.failed if "pending recovery sidecar" in str(table.error)]
    (first,) = (table for table in report.failed if table not in others)
    assert "is complete and not published" in str(first.error)
    assert len(others) > 1
    assert {line.partition(": ")[0] for line in said if "rewriting" in line} == {first.table_key}
    assert run.pauses == []
    recover(graph, grace_seconds=0)
    assert not optimize_all(graph).failed
    assert rows_everywhere(graph) == rows
    assert_converged(graph)


def test_an_empty_graph_stays_as_it_is(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, loads=0, index_after_load=0)
    tree = tree_of(graph.uri)
    assert committed(optimize_all(graph)) == set()
    assert tree_of(graph.uri) == tree


@pytest.mark.slow
def test_drift_is_skipped_with_both_versions_and_the_others_proceed(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=("node:Person",))
    entry = entry_of(graph, "node:Person")
    stats = {t.table_key: t for t in optimize_all(graph).tables}
    person = stats["node:Person"]
    assert (person.skipped, person.manifest_version) == (SkipReason.DRIFT, entry.version)
    assert person.lance_head_version == graph.open_head(entry).version
    assert stats["node:Doc"].committed
    assert entry_of(graph, "node:Person") == entry


@pytest.mark.slow
def test_only_the_named_tables_are_touched(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    assert committed(optimize_all(graph, tables=("node:Doc",))) == {"node:Doc"}
    assert [t.table_key for t in plan_optimize(graph).productive()] == [
        "edge:Knows", "edge:WorksAt", "edge:Wrote", "node:Company", "node:Person",
    ]  # fmt: skip


@pytest.mark.slow
def test_an_unknown_table_is_refused_before_any_write(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    tree = tree_of(graph.uri)
    for call in (lambda: optimize_all(graph, tables=("node:No",)), lambda: optimize_table(graph, "node:No")):
        with pytest.raises(UnknownTable, match="node:No"):
            call()
    assert tree_of(graph.uri) == tree


@pytest.mark.slow
def test_a_failing_table_does_not_stop_the_others(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    for file in Path(graph.table_uri(entry_of(graph, "node:Company")), "data").glob("*.lance"):
        file.write_bytes(b"not lance")
    report = optimize_all(graph)
    assert [t.table_key for t in report.failed] == ["node:Company"]
    assert sum(t.committed for t in report.tables) == 5
    assert_no_leftovers(graph)


@pytest.mark.slow
@pytest.mark.parametrize("left", [None, 20], ids=["gone", "short"])
def test_a_lost_file_is_named_and_no_reason_to_try_again(demo_graph: DemoGraph, stamp: int, left: int | None) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    entry = entry_of(graph, "node:Person")
    lost = min(Path(graph.table_uri(entry), "data").iterdir())
    lost.unlink() if left is None else os.truncate(lost, left)
    with pytest.raises(CorruptGraph) as raised:
        optimize_table(graph, "node:Person")
    version = entry_of(graph, "node:Person").version  # its indexes may be folded by then
    said = f"version {version}, which is published, lacks {entry.path}/data/{lost.name}; no other table"
    assert str(raised.value).startswith(said)
    assert not raised.value.retryable


def test_a_damaged_file_is_named_and_no_reason_to_try_again(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    entry = entry_of(graph, "node:Person")
    damaged = min(Path(graph.table_uri(entry), "data").iterdir())
    damaged.write_bytes(b"\xaa" * damaged.stat().st_size)
    with pytest.raises(CorruptGraph) as raised:
        optimize_table(graph, "node:Person")
    assert f"has data/{damaged.name} under {entry.path}, which is damaged; no other table" in str(raised.value)
    assert not raised.value.retryable


def test_an_error_beside_whole_files_may_pass(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another process removed what a moment ago was read: the next try looks anew."""
    graph = demo_graph(**PEOPLE)
    when_rewritten(monkeypatch, raising(OSError("Not found: /g/data/x.lance")))
    with pytest.raises(LanceFailure) as raised:
        optimize_table(graph, "node:Person")
    assert raised.value.retryable


def test_a_table_that_is_gone_is_an_error_of_that_table_only(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    shutil.rmtree(graph.table_uri(entry_of(graph, "node:Company")))
    report = optimize_all(graph)
    assert [t.table_key for t in report.failed] == ["node:Company"]


@pytest.mark.slow
@pytest.mark.night("combinations")
@pytest.mark.parametrize("segments", [1, 2, 5])
def test_vector_deltas_merge_into_one_segment_that_finds_everything(
    demo_graph: DemoGraph, stamp: int, segments: int
) -> None:
    graph = demo_graph(stamp=stamp, loads=1, rows=100)

    def grow(dataset: Dataset) -> None:
        for number in range(segments - 1):
            copies(f"delta-{number}-", 8)(dataset)
            dataset = lance.dataset(dataset.uri)
            dataset.optimize.optimize_indices(index_names=["embedding_idx"], num_indices_to_merge=0)
            dataset = lance.dataset(dataset.uri)
        copies("uncovered-", 4)(dataset)
        changed = lance.dataset(dataset.uri)
        changed.update({"embedding": "[9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0]"}, where="id = 'd4' OR id = 'd6'")
        changed.delete("id = 'd2' OR id = 'd8'")

    write(graph, "node:Doc", grow)
    entry = entry_of(graph, "node:Doc")
    facts = table_facts(graph.open_pinned(entry), 1_048_576)
    (vectors,) = [i for i in facts.indexes if i.name == "embedding_idx"]
    assert vectors.segments == segments
    before = rows_everywhere(graph)
    committed(optimize_all(graph))
    assert rows_everywhere(graph) == before
    assert_converged(graph)
    assert_finds_all(graph.open_pinned(entry_of(graph, "node:Doc")))


def assert_finds_all(dataset: Dataset) -> None:
    """The index returns what a flat scan returns, for deleted, updated and plain vectors."""
    rows = scan(dataset).to_pylist()
    for query in [[9.0] * 8, *(r["embedding"] for r in rows[:: max(1, len(rows) // 10)])]:
        by_index, by_scan = (
            dataset.to_table(
                nearest={"column": "embedding", "q": query, "k": len(rows), "use_index": indexed, "nprobes": 99},
                columns=["id", "_distance"],
            ).to_pylist()
            for indexed in (True, False)
        )
        assert len(by_index) == len(by_scan) == len(rows)
        # The two add the same float32 products up in another order, and each CPU in its own: a distance is known to
        # some 1e-6 of itself, a small one to 1e-6 of the squares that are subtracted for it (648 for the first query).
        exact = {h["id"]: h["_distance"] for h in by_scan}
        close = {"rel": 1e-4, "abs": 1e-3}
        assert {h["id"]: h["_distance"] for h in by_index} == pytest.approx(exact, **close)
        # By ranks: whoever comes before another one is no farther away, but for such a tie.
        in_order = [exact[h["id"]] for h in by_index]
        assert in_order == pytest.approx(sorted(in_order), **close)


@pytest.mark.slow
@pytest.mark.night("combinations")
@pytest.mark.parametrize("settings", [Settings(), TWO_WINDOWS], ids=["one_window", "two_windows"])
@pytest.mark.parametrize("commits_later", [1, 2, 3])
def test_auto_cleanup_is_removed_before_it_can_collect_anything(
    demo_graph: DemoGraph, settings: Settings, commits_later: int
) -> None:
    # Lance collects on a commit whose version is a multiple of the interval: 1 hits the strip itself.
    graph = demo_graph(**PEOPLE, settings=settings)
    entry = entry_of(graph, "node:Person")
    interval = entry.version + 1 + commits_later
    keys = {"lance.auto_cleanup.interval": str(interval), "lance.auto_cleanup.older_than": "0ms"}
    write(graph, "node:Person", lambda dataset: dataset.update_config(keys))
    existing = {v["version"] for v in graph.open_head(entry).versions()}
    assert existing >= set(range(1, entry.version + 2))
    committed(optimize_all(graph))
    head = graph.open_head(entry)
    assert auto_cleanup_keys(head) == ()
    assert head.version >= interval
    assert existing <= {v["version"] for v in head.versions()}
    assert_converged(graph)


@pytest.mark.slow
def test_internal_tables_are_compacted_only_when_nobody_else_publishes(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    before = rows_everywhere(graph)
    shared = {t.table_key: t for t in optimize_all(graph).tables if t.table_key.startswith("_")}
    assert {t.skipped for t in shared.values()} == {SkipReason.NOT_EXCLUSIVE}
    alone = open_graph(graph.uri, graph.settings.model_copy(update={"exclusive": True}))
    internal = {t.table_key: t for t in optimize_all(alone).tables if t.table_key.startswith("_")}
    assert set(internal) == set(shared)
    assert internal["__manifest"].committed
    assert internal["__manifest"].fragments_removed > internal["__manifest"].fragments_added
    assert rows_everywhere(graph) == before
    assert_converged(graph)


def test_a_failing_internal_table_does_not_hide_what_the_tables_did(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**PEOPLE, settings=Settings(exclusive=True))
    damaged = raising(LanceFailure("its rows cannot be read"))
    when_rewritten(monkeypatch, damaged, about="/__manifest$")
    report = optimize_all(graph)
    assert [(t.table_key, t.error) for t in report.failed] == [("__manifest", "its rows cannot be read")]
    assert [t.table_key for t in report.tables if t.committed] == ["edge:Knows", "node:Person"]


@pytest.mark.slow
def test_every_publish_extends_the_lineage_by_one(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    # One table after the other: windows that wait for one turn share a graph commit.
    graph = graph.with_settings(graph.settings.model_copy(update={"concurrency": 1}))

    def commits() -> list[str]:
        if stamp == 3:
            return lance.dataset(f"{graph.uri}/_graph_commits.lance").to_table()["graph_commit_id"].to_pylist()
        rows = graph.manifest().to_table(filter="object_type = 'graph_commit'")
        return rows["object_id"].to_pylist()

    before = set(commits())
    windows = sum(len(t.windows) for t in optimize_all(graph).tables)
    after = commits()
    assert windows == 6
    assert len(after) == len(set(after)) == len(before) + windows


@pytest.mark.slow
def test_the_plan_promises_what_the_run_does(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, deletes=4)
    promised = {t.table_key: t.fragments_after for t in plan_optimize(graph).tables}
    optimize_all(graph)
    after = plan_optimize(graph).tables
    assert {t.table_key: t.fragments for t in after} == promised
    assert {t.decision for t in after} == {OptimizeDecision.NO_OP}
