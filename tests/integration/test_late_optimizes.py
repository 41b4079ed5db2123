"""An optimize of engine 0.9.0 that another process rolled back, and that went on with its next table."""

from __future__ import annotations

import pytest

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.sidecars import ROLLED_BACK, ROLLED_FORWARD
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery import unpublished
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.rows import rows_everywhere
from tests.support.sidecars import TABLE, append_foreign_row, judge, move
from tests.support.writers import entry_of

pytestmark = pytest.mark.slow


@pytest.fixture(params=[3, 6])
def graph(request: pytest.FixtureRequest, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setattr(unpublished, "_SETTLE_SECONDS", 0.01)
    made = demo_graph(stamp=request.param, loads=3, rows=8, settings=QUICK)
    monkeypatch.setattr(type(made.format), "engines_lance", "lance 13.")
    return made


def _goes_on(graph: Graph) -> None:
    """The commits of an optimize to one table. Writes."""
    move(graph)
    graph.open_head(entry_of(graph, TABLE)).create_scalar_index("name", "BTREE", name="late", replace=True)


def _drift(graph: Graph) -> list[tuple[str, bool]]:
    return [(d.table_key, d.recoverable) for d in check(graph).drift]


def test_what_it_committed_afterwards_is_rolled_back(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    judge(graph, writer="Optimize")
    _goes_on(graph)
    assert (check(graph).status, _drift(graph)) == (CheckStatus.PENDING, [(TABLE, True)])
    assert [(o.table_key, o.action) for o in recover(graph).outcomes] == [(TABLE, "rolled_back")]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    assert graph.open_head(entry_of(graph, TABLE)).version == entry_of(graph, TABLE).version
    check_lineage(graph, None)


@pytest.mark.parametrize(("kind", "writer"), [(ROLLED_FORWARD, "Optimize"), (ROLLED_BACK, "Load")])
def test_any_other_recovery_says_nothing_about_it(graph: Graph, kind: str, writer: str) -> None:
    judge(graph, kind=kind, writer=writer)
    _goes_on(graph)
    assert _drift(graph) == [(TABLE, False)]


def test_neither_does_an_optimize_of_another_time(graph: Graph) -> None:
    judge(graph, writer="Optimize", hours_ago=1.1)
    _goes_on(graph)
    judge(graph, writer="Optimize", hours_ago=-1)
    assert _drift(graph) == [(TABLE, False)]


def test_rows_of_somebody_else_are_never_taken_along(graph: Graph) -> None:
    judge(graph, writer="Optimize")
    _goes_on(graph)
    append_foreign_row(graph)
    assert _drift(graph) == [(TABLE, False)]


def test_a_compaction_by_another_program_is_for_a_person(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    judge(graph, writer="Optimize")
    _goes_on(graph)
    monkeypatch.setattr(type(graph.format), "engines_lance", "lance 9.")
    assert _drift(graph) == [(TABLE, False)]
