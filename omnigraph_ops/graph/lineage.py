"""The commits of a graph, and those that a merge of its branches starts from. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
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


def merge_bases(commits: Mapping[str, GraphCommit], heads: Collection[str]) -> frozenset[str]:
    """The commits that a merge between any two of these heads reads as its base. Pure.

    The engine takes the common ancestor with the fewest steps to both heads. Where several are equally near all of
    them are returned: which one it takes depends on the release.
    """
    near = {head: _steps(commits, head) for head in heads if head in commits}
    found: set[str] = set()
    for one, other in combinations(sorted(near), 2):
        sums = {commit: steps + near[other][commit] for commit, steps in near[one].items() if commit in near[other]}
        found |= {commit for commit, total in sums.items() if total == min(sums.values())}
    return frozenset(found)


def by_id(lineages: Sequence[Sequence[GraphCommit]]) -> dict[str, GraphCommit]:
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
