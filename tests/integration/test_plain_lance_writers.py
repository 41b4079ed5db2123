"""Plain Lance beside its other writers, with deferred index work, and after a kill."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow.compute as pc
import pytest
from lance.dataset import DatasetOptimizer

from omnigraph_ops.coordination.rewrite_journal import open_journals, table_folder, table_path_of
from omnigraph_ops.errors import StalePlan
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.lance_manifest import commits_after
from omnigraph_ops.models.optimize import OptimizeDecision
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.storage.store import Storage
from tests.support import plain
from tests.support.edges import raising, when_asked, when_compacted, when_rewritten

pytestmark = pytest.mark.slow

NOTE = "__lance_frag_reuse"
BOTH = pytest.mark.parametrize("small", [True, False], ids=["one_unit", "two_units"])


def dataset(tmp_path: Path, *, stable: bool, vector: str = "IVF_FLAT") -> Path:
    path = tmp_path / "items.lance"
    plain.indexed(path, stable=stable, vector=vector)
    return path


def opened(path: Path, small: bool, **settings: Any) -> Graph:
    return plain.opened(path, **settings) if small else plain.opened(path, small_table_bytes=0, **settings)


def ids(path: Path) -> set[int]:
    return set(lance.dataset(str(path)).to_table(columns=["id"]).column("id").to_pylist())


@pytest.mark.night("combinations")
@BOTH
@pytest.mark.parametrize("stable", [True, False], ids=["stable", "unstable"])
@pytest.mark.parametrize("what", ["append", "delete", "compaction"])
def test_a_writer_in_between_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool, stable: bool, what: str
) -> None:
    path = dataset(tmp_path, stable=stable)
    expected = ids(path)

    def interfere() -> None:
        if what == "append":
            plain.append(path, 900, 10)
            expected.update(range(900, 910))
        elif what == "delete":
            lance.dataset(str(path)).delete("id = 7 or id = 500")
            expected.difference_update({7, 500})
        else:
            lance.dataset(str(path)).optimize.compact_files()

    when_compacted(monkeypatch, interfere)
    stats = optimize_table(opened(path, small), "table:items")
    # The compaction of somebody else leaves nothing to do.
    assert stats.committed or what == "compaction"
    optimize_all(opened(path, small))
    assert ids(path) == expected
    assert len(plain.fragment_ids(path)) == 1
    assert all(c == [plain.fragment_ids(path)] for c in plain.index_coverage(path).values())
    scanned = lance.dataset(str(path)).to_table().filter(pc.field("kind") == "k1")
    assert sorted(scanned.column("id").to_pylist()) == plain.answers(path)[1]
    (planned,) = plan_optimize(opened(path, small)).tables
    assert planned.decision is OptimizeDecision.NO_OP


@BOTH
def test_deferred_index_work_answers_every_query(tmp_path: Path, small: bool) -> None:
    path = dataset(tmp_path, stable=False)
    rows, found = plain.content(path), plain.answers(path)
    graph = opened(path, small, defer_index_remap=True)
    (stats,) = optimize_all(graph).tables
    assert stats.committed
    assert (plain.content(path), plain.answers(path)) == (rows, found)
    assert NOTE in plain.index_coverage(path)
    (idle,) = optimize_all(graph).tables
    assert not idle.committed
    for load in range(2):
        plain.append(path, 900 + load * 20, 20)
        found = plain.answers(path)
        (again,) = optimize_all(graph).tables
        assert again.committed
        assert plain.answers(path) == found
        assert len(plain.fragment_ids(path)) == 1
    plain.append(path, 960, 20)
    found = plain.answers(path)
    (without,) = optimize_all(opened(path, small)).tables
    assert without.committed
    assert plain.answers(path) == found
    # Dropping it would silently empty every query.
    assert NOTE in plain.index_coverage(path)
    assert plan_orphans(graph).files == ()


def test_deferred_index_work_folds_every_index_after_the_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dataset(tmp_path, stable=False)
    order: list[str] = []
    when_compacted(monkeypatch, lambda: order.append("the rewrite"))
    folds = when_asked(monkeypatch, DatasetOptimizer, "optimize_indices", lambda: order.append(folds[-1]), times=None)
    optimize_all(plain.opened(path, defer_index_remap=True))
    after = order[order.index("the rewrite") :]
    assert after == ["the rewrite", "id_idx", "kind_idx", "text_idx", "vector_idx"]


def test_deferral_is_refused_where_row_ids_are_stable(tmp_path: Path) -> None:
    path = dataset(tmp_path, stable=True)
    before = plain.versions(path)
    (planned,) = plan_optimize(plain.opened(path, defer_index_remap=True)).tables
    assert planned.decision is OptimizeDecision.FAILED
    assert "its row ids are stable" in str(planned.error)
    (stats,) = optimize_all(plain.opened(path, defer_index_remap=True)).tables
    assert "its row ids are stable" in str(stats.error)
    assert plain.versions(path) == before


def test_an_index_whose_parameters_are_the_owners_is_not_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dataset(tmp_path, stable=True, vector="IVF_PQ")
    kinds = {i.name: i.index_type for i in lance.dataset(str(path)).describe_indices()}

    with monkeypatch.context() as patched:
        refused = raising(OSError("cannot fold today"))
        when_asked(patched, DatasetOptimizer, "optimize_indices", refused, about="vector_idx", times=None)
        (stats,) = optimize_all(plain.opened(path)).tables
    assert "could not be folded" in str(stats.error)
    optimize_all(plain.opened(path))
    assert {i.name: i.index_type for i in lance.dataset(str(path)).describe_indices()} == kinds


def test_a_rewrite_that_was_killed_is_resumed_and_leaves_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dataset(tmp_path, stable=False)
    rows = plain.content(path)

    class Killed(BaseException):
        pass

    with monkeypatch.context() as patched:
        when_compacted(patched, raising(Killed()))
        with pytest.raises(Killed):
            optimize_table(opened(path, False), "table:items")
    graph = opened(path, False)
    assert len(open_journals(graph.storage, "items.lance")) == 1
    executed = when_rewritten(monkeypatch)
    stats = optimize_table(graph, "table:items")
    assert (stats.committed, executed) == (True, [])
    assert open_journals(graph.storage, "items.lance") == ()
    assert plain.content(path) == rows
    stored = {f"data/{p.name}" for p in (path / "data").iterdir()}
    tracked = {r["path"] for r in lance.dataset(str(path)).tracked_files().read_all().to_pylist()}
    assert stored <= tracked


@BOTH
def test_a_rewrite_that_lost_something_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    path = dataset(tmp_path, stable=True)

    def lose_a_file() -> None:
        (made,) = (f.data_files()[0].path for f in lance.dataset(str(path)).get_fragments())
        (path / "data" / made).unlink()

    when_compacted(monkeypatch, lose_a_file, after=True)
    (stats,) = optimize_all(opened(path, small)).tables
    assert "cannot be read" in str(stats.error)
    assert "restore version" in str(stats.error)


@pytest.mark.parametrize("path", ["items.lance", "nodes.lance", "plain.lance", "a.b.lance", "nodes/0123456789abcdef"])
def test_the_folder_of_a_journal_says_whose_it_is(path: str) -> None:
    assert table_path_of(table_folder(path)) == path


def test_the_journal_of_a_dropped_dataset_is_ended_and_that_of_a_neighbour_stays(tmp_path: Path) -> None:
    dataset(tmp_path, stable=False)
    plain.indexed(tmp_path / "other.lance", stable=True)
    graph = plain.opened(tmp_path)
    for name in ("items.lance", "gone.lance"):
        graph.storage.write(f"{table_folder(name)}/01ARYZ6S410000000000000000/plan.json", b"{}")
    optimize_all(plain.opened(tmp_path / "other.lance"))
    assert all(open_journals(graph.storage, name) for name in ("items.lance", "gone.lance"))
    optimize_all(graph)
    assert not any(open_journals(graph.storage, name) for name in ("items.lance", "gone.lance"))


def test_a_version_that_its_owner_removed_is_a_reason_to_look_again(tmp_path: Path) -> None:
    path = dataset(tmp_path, stable=True)
    graph = opened(path, small=True)
    (planned,) = graph.state().entries
    plain.append(path, 900, 10)
    lance.dataset(str(path)).cleanup_old_versions(timedelta(0))
    with pytest.raises(StalePlan, match=f"and {planned.version} is gone; nothing was written"):
        graph.open_head(planned)


def test_versions_with_the_names_of_an_older_lance_are_read(tmp_path: Path) -> None:
    old = lance.write_dataset(plain.rows(0, 9), str(tmp_path / "old.lance"), enable_v2_manifest_paths=False)
    old.delete("id = 1")
    assert (tmp_path / "old.lance" / "_versions" / "2.manifest").exists()
    assert [made.operation for made in commits_after(Storage(str(tmp_path)), "old.lance", 1, 2)] == ["Delete"]
