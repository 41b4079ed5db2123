"""A merge of engine 0.9.0 whose sidecar another process removed, and that went on with its next table."""

from __future__ import annotations

import time
from collections.abc import Callable

import lance
import pytest

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import made_at_us, new_ulid, now_us
from omnigraph_ops.graph.sidecars import ROLLED_BACK, ROLLED_FORWARD
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.rows import rows_everywhere
from tests.support.sidecars import EDGE, TABLE, append_foreign_row, judge
from tests.support.waits import shorten_waits
from tests.support.writers import entry_of, write

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


def _judged(graph: Graph, *, writer: str = "BranchMerge", kind: str = ROLLED_BACK) -> int:
    """A write that is in the audit and was armed after every graph commit, so only the audit tells of it. Writes."""
    return judge(graph, writer=writer, kind=kind, hours_ago=-1)


def _drift(graph: Graph) -> list[tuple[str, bool]]:
    return [(d.table_key, d.recoverable) for d in check(graph).drift]


def test_what_it_committed_afterwards_is_rolled_back(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    _goes_on(graph, _judged(graph) - 3_000)
    assert (check(graph).status, _drift(graph)) == (CheckStatus.PENDING, [(TABLE, True)])
    assert [(o.table_key, o.action) for o in recover(graph).outcomes] == [(TABLE, "rolled_back")]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    assert graph.open_head(entry_of(graph, TABLE)).version == entry_of(graph, TABLE).version
    check_lineage(graph, None)


def test_a_merge_that_its_branch_left_behind_is_rolled_back_without_an_audit(graph: Graph) -> None:
    """Who removed the sidecar wrote no audit, because no table had moved yet, and then published a write."""
    planned = now_us() - 2_000
    time.sleep(0.005)
    write(graph, EDGE, lambda _head: None)
    rows = rows_everywhere(graph)
    _goes_on(graph, planned)
    assert (check(graph).status, _drift(graph)) == (CheckStatus.PENDING, [(TABLE, True)])
    assert [(o.table_key, o.action) for o in recover(graph).outcomes] == [(TABLE, "rolled_back")]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    check_lineage(graph, None)


def test_one_commit_of_a_merge_that_may_be_alive_leaves_all_to_a_person(graph: Graph) -> None:
    head = graph.state().head_commit_id
    assert head is not None
    _goes_on(graph, made_at_us(head) - 1_000)
    assert _drift(graph) == [(TABLE, True)]
    _goes_on(graph, now_us())
    assert _drift(graph) == [(TABLE, False)]


def test_a_preview_and_a_refusal_say_that_half_of_a_merge_may_be_published(graph: Graph) -> None:
    _goes_on(graph, now_us())
    preview = preview_repair(graph)
    (row,) = preview.drifted
    assert row.evidence is not None
    assert row.evidence.if_published[0].startswith("Readers of main see a merge that was never published")
    assert f"wrote to {TABLE}: --force may publish half of it" in apply_repair(graph, preview).outcome().problem


def test_a_merge_of_which_nothing_is_known_is_for_a_person(graph: Graph) -> None:
    """A copy of a graph that was taken beside a merge looks like this, and there the merge may be published."""
    _goes_on(graph, now_us())
    assert _drift(graph) == [(TABLE, False)]


@pytest.mark.parametrize("since_us", [2_000, -120_000_000], ids=["later", "long before"])
def test_another_merge_says_nothing_about_it(graph: Graph, since_us: int) -> None:
    _goes_on(graph, _judged(graph) + since_us)
    assert _drift(graph) == [(TABLE, False)]


@pytest.mark.parametrize(("kind", "writer"), [(ROLLED_FORWARD, "BranchMerge"), (ROLLED_BACK, "Load")])
def test_neither_does_any_other_recovery(graph: Graph, kind: str, writer: str) -> None:
    _goes_on(graph, _judged(graph, kind=kind, writer=writer) - 3_000)
    assert _drift(graph) == [(TABLE, False)]


@pytest.mark.parametrize("act", [append_foreign_row, lambda graph: _goes_on(graph, now_us())], ids=["row", "merge"])
def test_rows_of_somebody_else_are_never_taken_along(graph: Graph, act: Callable[[Graph], object]) -> None:
    _goes_on(graph, _judged(graph) - 3_000)
    act(graph)
    assert _drift(graph) == [(TABLE, False)]


def test_an_index_build_alone_is_for_a_person(graph: Graph) -> None:
    judge(graph, writer="BranchMerge")
    graph.open_head(entry_of(graph, TABLE)).create_scalar_index("name", "BTREE", name="own", replace=True)
    assert _drift(graph) == [(TABLE, False)]
