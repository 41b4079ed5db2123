"""How tables are dealt onto processes, and items onto threads."""

from __future__ import annotations

import threading

import pytest

from omnigraph_ops import parallel
from omnigraph_ops.models.optimize import OptimizeDecision, TablePlan
from omnigraph_ops.parallel import MOST_LOTS, SHARED_LOTS, asked, deal, in_parallel, lots_of

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


def test_of_many_items_the_threads_are_given_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup may have millions of files."""
    monkeypatch.setattr(parallel, "_AT_ONCE", 3)
    given, counted = list[int](), threading.Lock()

    def work(number: int) -> int:
        with counted:
            given.append(number)
        return -number

    assert in_parallel(work, range(8), workers=4) == [-n for n in range(8)]
    assert [sorted(given[n : n + 3]) for n in (0, 3, 6)] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_an_error_ends_what_the_threads_were_not_given_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_AT_ONCE", 2)
    given = list[int]()

    def work(number: int) -> None:
        given.append(number)
        if number == 2:
            raise ValueError("the third")

    with pytest.raises(ValueError, match="the third"):
        in_parallel(work, range(9), workers=1)
    assert max(given) <= 3


def test_questions_to_a_store_are_under_way_together() -> None:
    all_there = threading.Barrier(3)

    def question(answer: str) -> str:
        all_there.wait(timeout=60)
        return answer

    assert asked(lambda: question("a"), lambda: question("b"), lambda: question("c"), at_once=True) == ("a", "b", "c")


def test_questions_to_a_local_disk_take_no_thread() -> None:
    here = threading.get_ident()
    assert asked(threading.get_ident, threading.get_ident, at_once=False) == (here, here)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_question_that_fails_is_no_answer(at_once: bool) -> None:
    def fails() -> None:
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        asked(lambda: 1, fails, at_once=at_once)
