"""The base of a merge is the common ancestor with the fewest steps to both heads, as in the engine."""

from __future__ import annotations

import pytest

from omnigraph_ops.graph.lineage import GraphCommit, merge_bases


def commits(**parents: str) -> dict[str, GraphCommit]:
    """Commits by their id, each with the letters of its parents."""
    return {
        name: GraphCommit(commit_id=name, branch=None, manifest_version=number, parents=tuple(of))
        for number, (name, of) in enumerate(parents.items())
    }


@pytest.mark.parametrize(
    ("graph", "heads", "bases"),
    [
        pytest.param(commits(a="", b="a", c="b"), "c", "", id="one head has nothing to merge"),
        pytest.param(commits(a="", b="a", c="b", x="a"), "cx", "a", id="the fork"),
        pytest.param(commits(a="", b="a"), "ab", "a", id="a branch that is ahead"),
        pytest.param(commits(a="", b="a", x="a", c="bx", d="c", y="x"), "dy", "x", id="the last merge"),
        pytest.param(commits(a="", x="a", y="a", m="xy", n="yx"), "mn", "xy", id="two that are equally near"),
        pytest.param(commits(a="", b="a", x="a", y="b"), "bxy", "ab", id="each pair has its own"),
        pytest.param(commits(a="", x=""), "ax", "", id="no common ancestor"),
        pytest.param(commits(b="a", x="a"), "bx", "", id="the ancestor is not known"),
    ],
)
def test_bases(graph: dict[str, GraphCommit], heads: str, bases: str) -> None:
    assert merge_bases(graph, heads) == frozenset(bases)
