"""The base of a merge is the common ancestor with the fewest steps to both heads, as in the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omnigraph_ops.graph.state import GraphCommit, merge_bases


def commits(**parents: str) -> dict[str, GraphCommit]:
    """Commits by their id, each with the letters of its parents."""
    return {
        name: GraphCommit(commit_id=name, branch=None, manifest_version=number, parents=tuple(of))
        for number, (name, of) in enumerate(parents.items())
    }


def ids(graph: dict[str, GraphCommit], *lineages: str) -> set[str]:
    """The bases of branches that record the commits of these letters, the last of them their head."""
    return {c.commit_id for c in merge_bases([[graph[name] for name in of] for of in lineages])}


@pytest.mark.parametrize(
    ("graph", "lineages", "bases"),
    [
        pytest.param(commits(a="", b="a", c="b"), ("abc",), "", id="one head has nothing to merge"),
        pytest.param(commits(a="", b="a"), ("ab", "ab", ""), "", id="one head of two branches"),
        pytest.param(commits(a="", b="a", c="b", x="a"), ("abc", "ax"), "a", id="the fork"),
        pytest.param(commits(a="", b="a"), ("a", "ab"), "a", id="a branch that is ahead"),
        pytest.param(commits(a="", b="a", x="a", c="bx", d="c", y="x"), ("abcd", "axy"), "x", id="the last merge"),
        pytest.param(commits(a="", x="a", y="a", m="xy", n="yx"), ("axm", "ayn"), "xy", id="two that are equally near"),
        pytest.param(commits(a="", b="a", x="a", y="b"), ("ab", "ax", "aby"), "ab", id="each pair has its own"),
        pytest.param(commits(a="", x=""), ("a", "x"), "", id="no common ancestor"),
        pytest.param(commits(b="a", x="a"), ("b", "x"), "", id="the ancestor is not known"),
        pytest.param(
            commits(a="", x="a", m="ax", n="ax"), ("am", "an", "ax"), "ax", id="a third branch that both took in"
        ),
    ],
)
def test_bases(graph: dict[str, GraphCommit], lineages: tuple[str, ...], bases: str) -> None:
    assert ids(graph, *lineages) == set(bases)


def test_a_long_history_behind_the_base_is_not_looked_at() -> None:
    class Untouched(tuple[str, ...]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("the parents of a commit far behind the base were read")

    old = GraphCommit(commit_id="a", branch=None, manifest_version=0, parents=Untouched())
    graph = commits(a="", b="a", c="b", d="c", x="d", y="d") | {"a": old}
    assert ids(graph, "abcdx", "abcdy") == {"d"}
