"""Every operator on graphs without rows, with many tables and with many columns, and whole nights on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.graph import Graph, open_graph
from tests.conftest import DemoGraph
from tests.support.operators import Disk, Run, disk_of
from tests.support.runs import Finished
from tests.support.stages import CHAINS, operator, spark_in_process
from tests.support.tables import PERSON
from tests.support.writers import write

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
NOT_ASKED = {
    "approve_repair": "no table has drifted: nothing to repair",
    "approve_cleanup": "nothing to remove",
    "approve_orphans": "no unreferenced files that are old enough",
}
COLUMNS, LOADS, PER_LOAD = 400, 4, 20
ITEMS = "table:items"
MOST = 3
"""Lots of a run on many tables."""


@pytest.fixture(autouse=True)
def _spark() -> Iterator[None]:
    with spark_in_process():
        yield


def without_rows(make: DemoGraph, stamp: int) -> Graph:
    """A graph that was made and never loaded into."""
    return make(stamp=stamp, node_types=1, loads=0, rows=1, index_after_load=0)


def settled(disk: Disk) -> bool:
    """Whether nothing is pending, ahead or held."""
    return disk.pins == disk.heads and not disk.sidecars and not disk.holds and not disk.locked


def test_every_operator_on_a_graph_without_rows(demo_graph: DemoGraph, stamp: int) -> None:
    run = Run(without_rows(demo_graph, stamp))
    first = disk_of(run.graph.uri)
    for chain in CHAINS.values():
        for task_id in chain:
            outcome = run.execute(operator(run, task_id))
            if task_id in NOT_ASKED:
                assert (outcome.state, outcome.sentence) == ("skipped", NOT_ASKED[task_id])
                break  # what it guards is skipped with it
            assert outcome.state == "success", (task_id, outcome)
            assert first.changed(disk_of(run.graph.uri)) <= {"holds"}, task_id
    assert (run.of("light_tables"), run.of("plan_cleanup")) == ([], [])
    assert (run.of("optimize_table")[0]["committed"], run.of("submit_rewrite")[0]["committed"]) == (False, False)
    assert run.of("verify")["problems"] == []
    assert settled(disk_of(run.graph.uri))


def test_a_night_on_a_graph_without_rows_changes_nothing(dag: Any, demo_graph: DemoGraph, stamp: int) -> None:
    graph = without_rows(demo_graph, stamp)
    first = disk_of(graph.uri)
    conf = {"graph": graph.uri, "quiet_seconds": 0, "keep": 1, "older_than": None, "confirm_cleanup": True}
    done = Finished(dag.test(run_conf=conf))
    assert (done.state, done.report["outcome"]) == ("success", "nothing_to_do")
    assert first.changed(disk_of(graph.uri)) == set()


def test_a_table_whose_rows_were_all_deleted(demo_graph: DemoGraph, stamp: int) -> None:
    run = Run(demo_graph(stamp=stamp, node_types=1, loads=3, rows=12))
    write(run.graph, PERSON, lambda head: head.delete("true"))
    first = disk_of(run.graph.uri)
    for task_id in (*CHAINS["optimize"], *CHAINS["cleanup"]):
        outcome = run.execute(operator(run, task_id))
        assert outcome.state == "success", (task_id, outcome)
    after = disk_of(run.graph.uri)
    assert settled(after)
    assert after.rows == first.rows
    assert after.versions[PERSON] == (after.pins[PERSON],)
    assert open_graph(run.graph.uri).open_pinned(_entry(run, PERSON)).count_rows() == 0


def _entry(run: Run, key: str) -> Any:
    return open_graph(run.graph.uri).state().get(key)


def test_more_tables_than_lots(demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many tables as the real bound asks for have a night of their own in `test_lots.py`."""
    from omnigraph_airflow.operators import optimize

    monkeypatch.setattr(optimize, "SHARED_LOTS", MOST)
    run = Run(demo_graph(stamp=stamp, node_types=3, loads=2, rows=3))
    first = disk_of(run.graph.uri)
    assert len(first.pins) > MOST
    run.execute(operator(run, "plan_optimize"))
    lots = run.execute(operator(run, "light_tables")).value
    assert len(lots) == MOST
    assert sorted(key for lot in lots for key in lot) == sorted(first.pins)
    for lot in lots:
        task = operator(run, "optimize_table")
        task.lot = lot
        rows = run.execute(task).value
        assert [(row["table_key"], row["committed"]) for row in rows] == [(key, True) for key in lot]
    for task_id in CHAINS["cleanup"][:2]:
        assert run.execute(operator(run, task_id)).state == "success"
    for lot in run.of("plan_cleanup"):
        task = operator(run, "cleanup_table")
        task.lot = lot
        assert run.execute(task).state == "success"
    after = disk_of(run.graph.uri)
    assert settled(after)
    assert after.rows == first.rows
    assert after.versions == {key: (pin,) for key, pin in after.pins.items()}


@pytest.fixture
def wide(tmp_path: Path) -> Run:
    """A plain Lance folder with one table of many columns, a fragment per load."""
    columns = {f"c{n}": pa.array([float(n)] * PER_LOAD) for n in range(COLUMNS)}
    for load in range(LOADS):
        ids = pa.array(range(load * PER_LOAD, (load + 1) * PER_LOAD), pa.int64())
        lance.write_dataset(
            pa.table({"id": ids, **columns}),
            str(tmp_path / "wide" / "items.lance"),
            mode="append" if load else "create",
            enable_stable_row_ids=True,
        )
    return Run(open_graph(str(tmp_path / "wide")))


@pytest.mark.parametrize("task_id", ["optimize_table", "submit_rewrite"])
def test_a_table_of_many_columns_is_optimized_cleaned_and_backed_up(wide: Run, task_id: str) -> None:
    first = disk_of(wide.graph.uri)
    task = operator(wide, task_id)
    task.lot = [ITEMS]
    (stats,) = wide.execute(task).value
    assert (stats["fragments_removed"], stats["fragments_added"], stats["error"]) == (LOADS, 1, None)
    for name in ("cleanup", "backup"):
        for later in CHAINS[name]:
            cleaning = operator(wide, later)
            if later == "cleanup_table":
                cleaning.lot = [ITEMS]
            assert wide.execute(cleaning).state == "success", later
    after = disk_of(wide.graph.uri)
    assert after.rows == first.rows
    assert settled(after)
    assert after.versions[ITEMS] == (after.heads[ITEMS],)
    assert wide.of("verify")["problems"] == []
