"""How tables are dealt onto processes."""

from __future__ import annotations

from omnigraph_ops.models.optimize import OptimizeDecision, TablePlan
from omnigraph_ops.parallel import MOST_LOTS, SHARED_LOTS, deal, lots_of

SMALL = 100


def tables(*sizes: int) -> list[TablePlan]:
    return [
        TablePlan(
            table_key=f"node:T{n}",
            decision=OptimizeDecision.OPTIMIZE,
            read_version=1,
            lance_head_version=1,
            rewrite_bytes=size,
        )
        for n, size in enumerate(sizes)
    ]


def test_few_tables_show_as_themselves() -> None:
    some = tables(*[1] * SHARED_LOTS)
    assert lots_of(some, small_bytes=SMALL) == tuple((t.table_key,) for t in some)


def test_many_small_tables_share_and_each_is_in_one_lot() -> None:
    many = tables(*[1] * 1000)
    lots = lots_of(many, small_bytes=SMALL)
    assert len(lots) == SHARED_LOTS
    assert sorted(key for lot in lots for key in lot) == sorted(t.table_key for t in many)


def test_a_big_table_never_waits_behind_another_of_its_lot() -> None:
    lots = lots_of(tables(*[1] * 100, SMALL, *[1] * 100), small_bytes=SMALL)
    assert ("node:T100",) in lots
    assert len(lots) == SHARED_LOTS + 1


def test_the_order_of_turns_is_kept_within_and_between_lots() -> None:
    turn = {t.table_key: n for n, t in enumerate(tables(*[1, SMALL] * 50))}
    lots = lots_of(tables(*[1, SMALL] * 50), small_bytes=SMALL)
    assert all(list(lot) == sorted(lot, key=turn.__getitem__) for lot in lots)
    firsts = [turn[lot[0]] for lot in lots]
    assert firsts == sorted(firsts)


def test_however_many_tables_are_big_the_scheduler_can_map_them() -> None:
    many = tables(*[SMALL] * 5000)
    lots = lots_of(many, small_bytes=SMALL)
    assert len(lots) == MOST_LOTS
    assert sum(len(lot) for lot in lots) == 5000


def test_nothing_makes_no_lot() -> None:
    assert lots_of([], small_bytes=SMALL) == deal([]) == ()
