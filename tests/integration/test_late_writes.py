"""A load, mutation or optimize that another process of the engine rolled back, and that went on with its next table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph_ops.errors import PublishConflict, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.publish import publish, read_ahead, table_update
from omnigraph_ops.graph.sidecars import ROLLED_BACK, ROLLED_FORWARD
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.rows import rows_everywhere
from tests.support.sidecars import TABLE, append_foreign_row, judge, move
from tests.support.waits import shorten_waits
from tests.support.writers import copies, delete_first, drift, entry_of

pytestmark = pytest.mark.slow


@pytest.fixture(params=[3, 6])
def graph(request: pytest.FixtureRequest, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """One whose engine has the Lance of this process."""
    shorten_waits(monkeypatch)
    made = demo_graph(stamp=request.param, loads=3, rows=8, settings=QUICK)
    monkeypatch.setattr(type(made.format), "engines_lance", "lance 13.")
    monkeypatch.setattr(type(made.format), "deletes_inline", False)
    return made


def _writes(graph: Graph) -> None:
    drift(graph, TABLE, copies("late-"))
    drift(graph, TABLE, delete_first())


def _optimizes(graph: Graph) -> None:
    move(graph)
    graph.open_head(entry_of(graph, TABLE)).create_scalar_index("name", "BTREE", name="late", replace=True)


LATE: dict[str, Callable[[Graph], None]] = {"Load": _writes, "Mutation": _writes, "Optimize": _optimizes}
each = pytest.mark.parametrize("writer", LATE)


def _is_settled(graph: Graph, writer: str) -> bool:
    """A load of engine 0.7 may be alive, and its publish is no conflict with another one."""
    return graph.stamp == 6 or writer == "Optimize"


def _drift(graph: Graph) -> list[tuple[str, bool]]:
    return [(d.table_key, d.recoverable) for d in check(graph).drift]


@each
def test_what_it_committed_afterwards_is_rolled_back(graph: Graph, writer: str) -> None:
    rows = rows_everywhere(graph)
    judge(graph, writer=writer)
    LATE[writer](graph)
    if not _is_settled(graph, writer):
        assert _drift(graph) == [(TABLE, False)]
        return
    assert (check(graph).status, _drift(graph)) == (CheckStatus.PENDING, [(TABLE, True)])
    assert [(o.table_key, o.action) for o in recover(graph).outcomes] == [(TABLE, "rolled_back")]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    assert graph.open_head(entry_of(graph, TABLE)).version == entry_of(graph, TABLE).version
    check_lineage(graph, None)


@pytest.mark.parametrize(("kind", "other"), [(ROLLED_FORWARD, None), (ROLLED_BACK, "BranchMerge")])
@each
def test_any_other_recovery_says_nothing_about_it(graph: Graph, writer: str, kind: str, other: str | None) -> None:
    judge(graph, kind=kind, writer=other or writer)
    LATE[writer](graph)
    assert _drift(graph) == [(TABLE, False)]


@each
def test_neither_does_one_of_another_time(graph: Graph, writer: str) -> None:
    judge(graph, writer=writer, hours_ago=1.1)
    LATE[writer](graph)
    judge(graph, writer=writer, hours_ago=-1)
    assert _drift(graph) == [(TABLE, False)]


def test_a_load_goes_on_for_a_minute_at_most(graph: Graph) -> None:
    judge(graph, writer="Load", hours_ago=0.1)
    _writes(graph)
    assert _drift(graph) == [(TABLE, False)]


@each
def test_what_came_long_before_somebody_judged_is_no_late_commit(graph: Graph, writer: str) -> None:
    """A write that died on Friday is judged on Monday: what others committed on Sunday is theirs."""
    LATE[writer](graph)
    judge(graph, writer=writer, hours_ago=-0.1, lay_seconds=7200)
    assert _drift(graph) == [(TABLE, False)]


@each
def test_what_another_program_committed_is_for_a_person(
    graph: Graph, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge(graph, writer=writer)
    LATE[writer](graph)
    monkeypatch.setattr(type(graph.format), "engines_lance", "lance 9.")
    assert _drift(graph) == [(TABLE, False)]


def test_rows_are_never_taken_along_with_an_optimize(graph: Graph) -> None:
    judge(graph, writer="Optimize")
    _optimizes(graph)
    append_foreign_row(graph)
    assert _drift(graph) == [(TABLE, False)]


def test_a_writer_that_is_alive_all_the_same_is_told_that_it_failed(graph: Graph) -> None:
    """It looked at what is published before, and publishes after."""
    rows, entry = rows_everywhere(graph), entry_of(graph, TABLE)
    judge(graph, writer="Optimize")
    _optimizes(graph)
    seen, update = read_ahead(graph, [TABLE]), table_update(graph, entry, graph.open_head(entry))
    recover(graph)
    with pytest.raises((StalePlan, PublishConflict)):
        publish(graph, (update,), actor=None, ready=seen)
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
