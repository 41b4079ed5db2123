"""Which Lance branches of a table somebody reads."""

from __future__ import annotations

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
