"""The commits of a graph, and those that a merge of its branches starts from. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCommit:
    """One commit as a branch of the graph records it."""

    commit_id: str
    branch: str | None
    """The graph branch that it was made on, None for main."""
    manifest_version: int
    """The version of that branch's graph manifest that a reader of the commit opens."""
    parents: tuple[str, ...]


def merge_bases(lineages: Sequence[Sequence[GraphCommit]]) -> frozenset[GraphCommit]:
    """The commits that a merge between any two of these branches reads as its base. Pure.

    The engine takes the common ancestor with the fewest steps to both heads, and knows only what the two branches
    record: a commit of a third one is no base, however near. Where several are equally near all of them are returned:
    which one it takes depends on the release.

    Args:
        lineages: the commits that each branch records, its head last.
    """
    by_head = {lineage[-1].commit_id: lineage for lineage in lineages if lineage}
    found: set[GraphCommit] = set()
    for one, other in combinations(sorted(by_head), 2):
        commits = by_id((by_head[one], by_head[other]))
        left, right = _steps(commits, one), _steps(commits, other)
        sums = {commit: steps + right[commit] for commit, steps in left.items() if commit in right}
        found |= {commits[commit] for commit, total in sums.items() if total == min(sums.values())}
    return frozenset(found)


def by_id(lineages: Iterable[Sequence[GraphCommit]]) -> dict[str, GraphCommit]:
    """All commits of several branches by their id: branches share those from before they forked. Pure."""
    return {commit.commit_id: commit for lineage in lineages for commit in lineage}


def _steps(commits: Mapping[str, GraphCommit], head: str) -> dict[str, int]:
    """Every ancestor of a head, itself included, with the fewest steps to it. Pure."""
    steps, pending = {head: 0}, deque([head])
    while pending:
        commit_id = pending.popleft()
        for parent in commits[commit_id].parents:
            if parent in commits and parent not in steps:
                steps[parent] = steps[commit_id] + 1
                pending.append(parent)
    return steps
