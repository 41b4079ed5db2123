"""Tables that somebody dropped and made anew, or put back from a copy, between two steps: numbers are no identity."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.errors import StalePlan
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.cleanup import CleanupReport, CleanupStats, RetentionPolicy
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes.run_journal import what_came_of
from omnigraph_ops.progress import Run
from omnigraph_ops.stages.cleanup.apply import cleanup_all, cleanup_table
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.conftest import DemoGraph
from tests.support.beside import Beside
from tests.support.plain import opened, versions
from tests.support.rows import rows_of
from tests.support.writers import drift

KEY, NAME, PERSON = "table:t", "t.lance", "node:Person"
POLICY = RetentionPolicy(keep_versions=1)


def made(root: Path, first: int, loads: int = 6) -> Path:
    """A table of so many versions, each with ten more rows."""
    for load in range(loads):
        ids = pa.table({"id": pa.array(range(first + 10 * load, first + 10 * load + 10), pa.int64())})
        lance.write_dataset(ids, str(root / NAME), mode="append" if load else "create", enable_stable_row_ids=True)
    return root


def made_anew(root: Path, first: int, loads: int = 6) -> None:
    shutil.rmtree(root / NAME)
    made(root, first, loads)


def ids(root: Path) -> list[int]:
    return sorted(lance.dataset(str(root / NAME)).to_table().column("id").to_pylist())


@pytest.mark.parametrize("loads", [3, 6, 9])
def test_a_cleanup_removes_no_version_of_a_table_that_was_made_anew(tmp_path: Path, loads: int) -> None:
    root = made(tmp_path, 0)
    plan = plan_cleanup(opened(root), POLICY)
    run = Beside(lambda: made_anew(root, 1000, loads))
    (stats,) = cleanup_all(opened(root).with_run(run), plan).tables
    assert "was replaced since it was looked at; nothing was deleted" in (stats.error or "")
    assert (stats.old_versions_removed, stats.versions) == (0, ())
    assert versions(root / NAME) == list(range(1, loads + 1))
    assert ids(root) == list(range(1000, 1000 + 10 * loads))


def test_a_cleanup_of_a_table_that_was_put_back_from_a_copy_is_planned_again(tmp_path: Path) -> None:
    root = made(tmp_path / "db", 0, loads=4)
    shutil.copytree(root / NAME, tmp_path / "copy")
    for number in range(4):
        lance.dataset(str(root / NAME)).update_config({"again": str(number)})
    plan = plan_cleanup(opened(root), RetentionPolicy(keep_versions=3))
    shutil.rmtree(root / NAME)
    shutil.copytree(tmp_path / "copy", root / NAME)
    with pytest.raises(StalePlan, match="is at version 4, the plan saw 8: it was replaced or restored; nothing was"):
        cleanup_table(opened(root), plan, KEY)
    assert versions(root / NAME) == [1, 2, 3, 4]


def test_versions_that_went_with_their_table_are_not_those_of_a_killed_cleanup(tmp_path: Path) -> None:
    root = made(tmp_path, 0)
    begun: list[Unit] = []

    class Killed(Run):
        def begins(self, unit: Unit) -> None:
            begun.append(unit)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cleanup_all(opened(root).with_run(Killed()), plan_cleanup(opened(root), POLICY))
    (unit,) = begun
    made_anew(root, 1000, loads=2)
    told = what_came_of(opened(root), unit)
    assert isinstance(told, CleanupReport)
    assert told.tables == (CleanupStats(table_key=KEY),)


def test_rows_of_a_table_that_was_made_anew_are_not_replaced_by_a_rewrite_of_the_old_one(tmp_path: Path) -> None:
    """The result comes late, as the end of an upload to a store does: its file is in the new table, too."""
    root = made(tmp_path / "db", 0)
    before = {path.name for path in (root / NAME / "data").iterdir()}
    busy, late = contextlib.ExitStack(), list[str]()

    class WaitsForItsTurn(Run):
        def pause(self, seconds: float) -> None:
            if late:
                return
            results = {p.name: p.read_bytes() for p in (root / NAME / "data").iterdir() if p.name not in before}
            made_anew(root, 1000)
            for name, content in results.items():
                (root / NAME / "data" / name).write_bytes(content)
                late.append(name)
            busy.close()

    busy.enter_context(committer_turn(opened(root), "another table"))
    optimize_table(opened(root).with_run(WaitsForItsTurn()), KEY)
    assert len(late) == 1
    assert ids(root) == list(range(1000, 1060))


def drifted(graph: Graph, condition: str) -> None:
    drift(graph, PERSON, lambda head: head.delete(condition))


def test_a_repair_publishes_no_other_drift_of_the_same_numbers(
    demo_graph: DemoGraph, stamp: int, tmp_path: Path
) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, loads=2, rows=20)
    root, aside = Path(graph.uri), tmp_path / "aside"
    rows = lance.dataset(graph.table_uri(graph.published(PERSON))).to_table().column("id").to_pylist()
    shutil.copytree(root, aside)
    drifted(graph, f"id = '{rows[0]}'")
    preview = preview_repair(graph)
    assert len(next(r for r in preview.rows if r.table_key == PERSON).transactions) == 1
    shutil.rmtree(root)
    shutil.copytree(aside, root)
    graph = opened(root)
    drifted(graph, "id IN ({})".format(", ".join(f"'{i}'" for i in rows[-18:])))
    before = rows_of(graph)
    with pytest.raises(StalePlan, match=r"approved 7 → 8 suspicious \[Delete\], now 7 → 8 .* by other commits"):
        apply_repair(graph, preview, force=True)
    assert rows_of(opened(root)) == before
