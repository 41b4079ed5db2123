"""The commits of a graph, and those that a merge of its branches starts from. Pure."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import inf


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
    by_head = {lineage[-1].commit_id: by_id((lineage,)) for lineage in lineages if lineage}
    found: set[GraphCommit] = set()
    for one, other in combinations(sorted(by_head), 2):
        commits = ChainMap(by_head[one], by_head[other])
        found |= {commits[commit] for commit in _nearest(commits, one, other)}
    return frozenset(found)


def by_id(lineages: Iterable[Sequence[GraphCommit]]) -> dict[str, GraphCommit]:
    """All commits of several branches by their id: branches share those from before they forked. Pure."""
    return {commit.commit_id: commit for lineage in lineages for commit in lineage}


def _nearest(commits: Mapping[str, GraphCommit], one: str, other: str) -> set[str]:
    """The common ancestors of two heads, themselves included, with the fewest steps to both. Pure."""
    left, right = {one: 0}, {other: 0}
    ahead: tuple[list[str], list[str]] = [one], [other]
    fewest, depth = inf, 0
    # None that is nearer to both lies further from either; most of a long history is not looked at.
    while any(ahead) and depth < fewest:
        depth += 1
        ahead = _next(commits, ahead[0], left, depth), _next(commits, ahead[1], right, depth)
        met = [c for c in chain(*ahead, (one, other)) if c in left and c in right]
        fewest = min([fewest, *(left[c] + right[c] for c in met)])
    return {c for c, steps in left.items() if c in right and steps + right[c] == fewest}


def _next(commits: Mapping[str, GraphCommit], ahead: list[str], steps: dict[str, int], depth: int) -> list[str]:
    """The parents of these commits that were not met yet, with their depth put into `steps`."""
    found = {p: depth for c in ahead for p in commits[c].parents if p in commits and p not in steps}
    steps.update(found)
    return list(found)
