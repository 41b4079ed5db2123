"""A merge of engine 0.9.0 that another process rolled back, and that went on with its next table."""

from __future__ import annotations

from collections.abc import Callable

import lance
import pytest

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.graph.sidecars import ROLLED_BACK, ROLLED_FORWARD
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.rows import rows_everywhere
from tests.support.sidecars import TABLE, append_foreign_row, judge
from tests.support.waits import shorten_waits
from tests.support.writers import entry_of

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    shorten_waits(monkeypatch)
    return demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)


def _goes_on(graph: Graph, at_us: int) -> None:
    """The commits of a merge to one table, by the ids that it planned at that time. Writes."""
    head = graph.open_head(entry_of(graph, TABLE))
    rows = head.to_table(limit=2)
    rows = rows.set_column(rows.schema.get_field_index("id"), rows.schema.field("id"), [["merged-1", "merged-2"]])
    operation = lance.LanceOperation.Append(lance.fragment.write_fragments(rows, head))
    transaction = lance.Transaction(head.version, operation, uuid=f"omnigraph-merge-{new_ulid(at_us)}")
    lance.LanceDataset.commit(head.uri, transaction)
    graph.open_head(entry_of(graph, TABLE)).create_scalar_index("name", "BTREE", name="late", replace=True)


def _drift(graph: Graph) -> list[tuple[str, bool]]:
    return [(d.table_key, d.recoverable) for d in check(graph).drift]


def test_what_it_committed_afterwards_is_rolled_back(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    _goes_on(graph, judge(graph, writer="BranchMerge") - 3_000)
    assert (check(graph).status, _drift(graph)) == (CheckStatus.PENDING, [(TABLE, True)])
    assert [(o.table_key, o.action) for o in recover(graph).outcomes] == [(TABLE, "rolled_back")]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    assert graph.open_head(entry_of(graph, TABLE)).version == entry_of(graph, TABLE).version
    check_lineage(graph, None)


def test_a_merge_of_which_nothing_is_known_is_for_a_person(graph: Graph) -> None:
    """A copy of a graph that was taken beside a merge looks like this, and there the merge may be published."""
    _goes_on(graph, now_us())
    assert _drift(graph) == [(TABLE, False)]


@pytest.mark.parametrize("since_us", [2_000, -120_000_000], ids=["later", "long before"])
def test_another_merge_says_nothing_about_it(graph: Graph, since_us: int) -> None:
    _goes_on(graph, judge(graph, writer="BranchMerge") + since_us)
    assert _drift(graph) == [(TABLE, False)]


@pytest.mark.parametrize(("kind", "writer"), [(ROLLED_FORWARD, "BranchMerge"), (ROLLED_BACK, "Load")])
def test_neither_does_any_other_recovery(graph: Graph, kind: str, writer: str) -> None:
    _goes_on(graph, judge(graph, kind=kind, writer=writer) - 3_000)
    assert _drift(graph) == [(TABLE, False)]


@pytest.mark.parametrize("act", [append_foreign_row, lambda graph: _goes_on(graph, now_us())], ids=["row", "merge"])
def test_rows_of_somebody_else_are_never_taken_along(graph: Graph, act: Callable[[Graph], object]) -> None:
    _goes_on(graph, judge(graph, writer="BranchMerge") - 3_000)
    act(graph)
    assert _drift(graph) == [(TABLE, False)]


def test_an_index_build_alone_is_for_a_person(graph: Graph) -> None:
    judge(graph, writer="BranchMerge")
    graph.open_head(entry_of(graph, TABLE)).create_scalar_index("name", "BTREE", name="own", replace=True)
    assert _drift(graph) == [(TABLE, False)]
