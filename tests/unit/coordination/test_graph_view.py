"""Which Lance branches of a table somebody reads."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph_ops.coordination.graph_view import GraphView
from omnigraph_ops.graph.state import BranchState, TableEntry


def state(branch: str | None, owner: str | None) -> BranchState:
    """A branch of the graph that reads a table on the Lance branch of its owner."""
    entry = TableEntry(table_key="node:A", path="nodes/1", version=3, branch=owner, row_count=None)
    return BranchState(branch=branch, manifest_version=1, entries=(entry,), head_commit_id=None)


MAIN = state(None, None)


def test_a_branch_of_a_branch_keeps_what_the_first_one_left() -> None:
    view = GraphView(main=MAIN, branches=(state("a", None), state("b", "a")), unreadable=())
    assert view.places(MAIN.entries[0], "a")
    assert not view.places(MAIN.entries[0], "b")


def test_the_base_of_a_merge_keeps_the_lance_branch_that_it_reads() -> None:
    view = GraphView(main=MAIN, branches=(state("a", None),), unreadable=(), bases=(state("a", "a"),))
    assert view.places(MAIN.entries[0], "a")


class Counted(tuple[TableEntry, ...]):
    """Counts how often somebody goes through all of them."""

    looks = 0

    def __iter__(self) -> Iterator[TableEntry]:
        Counted.looks += 1
        return super().__iter__()


def test_the_tables_of_a_branch_are_gone_through_once_for_all_of_them() -> None:
    """A graph of many tables and branches would be judged with the square of its tables otherwise."""
    entries = [TableEntry(table_key=f"node:{n}", path=f"nodes/{n}", version=3, branch="a", row_count=1) for n in (1, 2)]
    branch = BranchState(branch="a", manifest_version=1, entries=Counted(entries), head_commit_id=None)
    view = GraphView(main=MAIN, branches=(branch,), unreadable=())
    Counted.looks = 0
    assert all(view.places(entry, "a") for entry in entries)
    assert not view.places(entries[0], "b")
    assert branch.at("nodes/2") == [entries[1]]
    assert not branch.at("nodes/3")
    assert Counted.looks == 1
