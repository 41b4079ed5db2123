"""What a budget takes, in which order, and that nothing waits forever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from omnigraph_ops.config.terms import BudgetTerms
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.history import amplification
from omnigraph_ops.models.optimize import (
    PATIENCE,
    OptimizeDecision,
    OptimizePlan,
    OptimizeReport,
    SkipReason,
    TablePlan,
    TableStats,
)
from omnigraph_ops.quantities import parse_bytes
from omnigraph_ops.stages.optimize.budget import Spending, untouched, within


def table(key: str, cost: int, benefit: float = 10.0, waited: int = 0) -> TablePlan:
    return TablePlan(
        table_key=key,
        decision=OptimizeDecision.OPTIMIZE,
        read_version=3,
        lance_head_version=3,
        rewrite_bytes=cost,
        benefit=benefit,
        waited=waited,
        reason="rewrite 4 fragments",
    )


def idle(key: str) -> TablePlan:
    return TablePlan(table_key=key, decision=OptimizeDecision.NO_OP, read_version=1, lance_head_version=1)


def plan(*tables: TablePlan) -> OptimizePlan:
    return OptimizePlan(uri="/g", stamp=6, graph_version=1, tables=tables)


def taken(found: OptimizePlan) -> list[str]:
    return [t.table_key for t in found.in_turn()]


def test_the_most_benefit_per_byte_comes_first() -> None:
    found = plan(table("a", 1000), table("b", 10), table("c", 10, benefit=80), idle("d"))
    assert taken(found) == ["c", "b", "a"]


def test_what_does_not_fit_waits_and_smaller_ones_still_fit() -> None:
    found = within(
        plan(table("a", 60, 60), table("b", 60, 50), table("c", 30, 20), idle("d")), BudgetTerms(max_bytes=100)
    )
    assert taken(found) == ["a", "c"]
    (waiting,) = found.deferred
    assert (waiting.table_key, waiting.skipped, waiting.rewrite_bytes) == ("b", SkipReason.DEFERRED_BUDGET, 60)
    assert waiting.reason == "no room in the budget of 100 B for about 60 B; would rewrite 4 fragments"
    assert [t.table_key for t in found.tables] == ["a", "b", "c", "d"]


def test_index_bytes_count() -> None:
    heavy = TablePlan(
        table_key="a",
        decision=OptimizeDecision.OPTIMIZE,
        read_version=1,
        lance_head_version=1,
        index_bytes=99,
        benefit=80,
    )
    assert taken(within(plan(heavy, table("b", 1)), BudgetTerms(max_bytes=50))) == ["b"]


def wrote(key: str, size: int, **fields: object) -> TableStats:
    return TableStats(table_key=key, committed=True, bytes_rewritten=size, **fields)


def test_what_was_written_counts_and_not_what_was_planned() -> None:
    first, second, third = table("a", 40), table("b", 40), table("c", 20)
    spending = Spending(BudgetTerms(max_bytes=100))
    assert spending.begins(first)
    spending.ends(first, wrote("a", 70))
    assert not spending.begins(second)
    assert spending.begins(third)
    spending.ends(third, wrote("c", 5))
    assert spending.begins(table("d", 25))


def test_tables_at_work_count_as_planned() -> None:
    spending = Spending(BudgetTerms(max_bytes=100))
    assert spending.begins(table("a", 70))
    assert not spending.begins(table("b", 40))
    assert spending.begins(table("c", 30))


def test_the_first_table_starts_whatever_its_size_and_idle_ones_always_do() -> None:
    spending = Spending(BudgetTerms(max_bytes=10))
    assert spending.begins(idle("z"))
    assert spending.begins(table("a", 1000))
    assert spending.begins(idle("y"))
    assert not spending.begins(table("b", 1))


def test_a_failed_table_counts_as_planned() -> None:
    spending = Spending(BudgetTerms(max_bytes=100))
    assert spending.begins(table("a", 80))
    spending.ends(table("a", 80), TableStats(table_key="a", error="no"))
    assert not spending.begins(table("b", 30))


def test_a_rewrite_waits_when_the_indexes_took_the_budget() -> None:
    for indexes, waited, room in ((60, 0, True), (70, 0, False), (0, 0, True), (70, PATIENCE, True)):
        spending, found = Spending(BudgetTerms(max_bytes=100)), table("a", 40, waited=waited)
        assert spending.begins(found)
        assert spending.has_room(found, indexes) is room
    unbounded = Spending(BudgetTerms())
    assert unbounded.begins(table("a", 40)) and unbounded.has_room(table("a", 40), 10**12)


def test_so_many_tables_and_no_more() -> None:
    found = within(plan(table("a", 1), table("b", 1), table("c", 1)), BudgetTerms(max_tables=2))
    assert (taken(found), [t.table_key for t in found.deferred]) == (["a", "b"], ["c"])


def test_a_table_above_the_whole_budget_runs_when_nothing_else_would() -> None:
    assert taken(within(plan(table("a", 1000)), BudgetTerms(max_bytes=10))) == ["a"]


def test_a_table_above_the_whole_budget_runs_once_it_has_waited_long_enough() -> None:
    budget = BudgetTerms(max_bytes=10)
    for waited in range(PATIENCE + 1):
        found = within(plan(table("big", 1000, waited=waited), table("small", 5)), budget)
        assert taken(found) == (["small"] if waited < PATIENCE else ["big"])


def test_a_deferred_table_keeps_its_reason_in_the_report() -> None:
    (waiting,) = within(plan(table("a", 9), table("b", 9)), BudgetTerms(max_tables=1)).deferred
    assert untouched(waiting) == TableStats(table_key="b", skipped=SkipReason.DEFERRED_BUDGET)


@given(costs=st.lists(st.integers(0, 100), max_size=20), most=st.integers(0, 300), count=st.integers(1, 20))
def test_a_budget_is_kept_unless_one_table_alone_is_above_it(costs: list[int], most: int, count: int) -> None:
    tables = tuple(table(f"t{n}", cost) for n, cost in enumerate(costs))
    found = within(plan(*tables), BudgetTerms(max_bytes=most, max_tables=count))
    spent = [t.cost_bytes for t in found.productive()]
    assert len(spent) <= count
    assert sum(spent) <= most or len(spent) == 1
    assert bool(spent) == bool(costs)
    assert len(spent) + len(found.deferred) == len(costs)


@pytest.mark.parametrize("bounds", [{"max_tables": 0}, {"max_bytes": -1}, {"deadline": -1.0}])
def test_a_nonsense_budget_is_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        BudgetTerms.model_validate(bounds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000", 1000),
        ("5B", 5),
        ("500MB", 500_000_000),
        ("20GiB", 20 * 2**30),
        (" 3 kib ", 3072),
        ("1T", 10**12),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1.5GB", "1 PB", "1e9", "\u0663"])
def test_a_malformed_size_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match="invalid size"):
        parse_bytes(text)


def test_amplification_is_unknown_rather_than_nothing() -> None:
    rows = [
        TableStats(table_key="a", committed=True, bytes_rewritten=300, bytes_ingested=100),
        TableStats(table_key="b", committed=True, bytes_rewritten=500),
    ]
    report = OptimizeReport.of("/g", rows)
    assert (report.bytes_rewritten, report.bytes_ingested, report.write_amplification) == (800, 100, 3.0)
    alone = OptimizeReport.of("/g", rows[1:])
    assert (alone.bytes_ingested, alone.write_amplification) == (None, None)
    assert (amplification(5, 0), amplification(5, None)) == (None, None)
