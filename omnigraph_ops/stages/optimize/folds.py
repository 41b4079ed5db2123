"""Which indexes a run folds. Folding writes an index anew whole, so under `tiered` a few uncovered rows may wait. Pure.

Lance answers from the index and scans the fragments that it does not cover: what waits costs its readers time,
in proportion to its rows, and never an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph_ops.lance.tables import FragmentFacts, IndexFacts, TableFacts
from omnigraph_ops.models import IndexFold, RewritePolicy
from omnigraph_ops.stages.optimize.tiers import RewriteRules, kept_apart, live_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Indexes that are left behind for a later run."""

    names: tuple[str, ...]
    rows: int
    """Rows that the worst of them does not cover."""
    limit: float
    """The share of the table's rows above which they are folded."""

    def sentence(self, of_rows: int) -> str:
        """What waits and until when. Pure."""
        names = ", ".join(self.names)
        return f"{names} behind by {self.rows} of {of_rows} rows, folded above {self.limit * 100:g} %"


def index_folds(indexes: Sequence[IndexFacts], fragments: Sequence[FragmentFacts]) -> tuple[IndexFold, ...]:
    """Indexes with an uncovered fragment or more than one segment, by name. Pure.

    Coverage is judged per index name, over the union of its segments: a vector index with delta
    segments covers what they cover together.
    """
    current = frozenset(f.fragment_id for f in fragments)
    folds = []
    for index in indexes:
        uncovered = len(current - index.covered)
        if uncovered or index.segments > 1:
            folds.append(
                IndexFold(
                    name=index.name,
                    columns=index.columns,
                    segments=index.segments,
                    uncovered_fragments=uncovered,
                )
            )
    return tuple(sorted(folds, key=lambda fold: fold.name))


def waiting_for_rows(facts: TableFacts, rules: RewriteRules, limit: float) -> Waiting | None:
    """The indexes behind, when all of them may stay behind for now; None when they are to be folded. Pure.

    All or none: then all cover the same fragments, and Lance merges only neighbours of which that is true.
    """
    behind = index_folds(facts.indexes, facts.fragments)
    if rules.policy is not RewritePolicy.TIERED or limit <= 0 or not behind:
        return None
    rows = max(uncovered_rows(facts.fragments, index) for index in facts.indexes)
    few = rows <= limit * sum(live_rows(f) for f in facts.fragments)
    if not few or any(_unusable(i, facts.fragments) for i in facts.indexes):
        return None
    if kept_apart(facts.fragments, rules, facts.indexes):
        return None
    return Waiting(names=tuple(fold.name for fold in behind), rows=rows, limit=limit)


def uncovered_rows(fragments: Sequence[FragmentFacts], index: IndexFacts) -> int:
    """Rows that a query through the index scans. Pure."""
    return sum(live_rows(f) for f in fragments if f.fragment_id not in index.covered)


def _unusable(index: IndexFacts, fragments: Sequence[FragmentFacts]) -> bool:
    return index.segments > 1 or not any(f.fragment_id in index.covered for f in fragments)
