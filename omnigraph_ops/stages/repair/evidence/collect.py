"""Collects the evidence about drifted tables, one tier for all of them.

Evidence never decides anything: what cannot be read is said in `problem`, and the preview goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.history import History
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.models import DriftEvidence, EvidenceTier, TierCost
from omnigraph_ops.stages.repair.evidence.branches import BranchView, branch_evidence, branch_views
from omnigraph_ops.stages.repair.evidence.consequences import if_not_published, if_published
from omnigraph_ops.stages.repair.evidence.cost import estimate
from omnigraph_ops.stages.repair.evidence.indexes import index_evidence
from omnigraph_ops.stages.repair.evidence.rows import BytesRead, column_types, compare_rows, compare_values, shown_rows
from omnigraph_ops.stages.repair.evidence.sides import Sides, read_side
from omnigraph_ops.stages.repair.evidence.verdict import content_verdict
from omnigraph_ops.stages.repair.evidence.versions import version_evidence
from omnigraph_ops.views.readable import short

T = TypeVar("T")
_MAX_PROBLEM = 300


class EvidenceCollector:
    """Evidence of one tier about the tables of one graph; branches are read once, and only if there is drift."""

    def __init__(self, graph: Graph, tier: EvidenceTier) -> None:
        self._graph = graph
        self._tier = tier
        self._branches: tuple[BranchView, ...] | None = None

    def collect(self, entry: TableEntry, head: Dataset, chain: History) -> DriftEvidence:
        """What differs between the pin of `entry` and `head`. Reads."""
        started, problems, meter = time.monotonic(), list[str](), BytesRead()
        sides = _attempt(problems, lambda: self._sides(entry, head))
        found = DriftEvidence(tier=self._tier)
        if sides is not None:
            found = _look_at_rows(_metadata(found, sides, problems), sides, problems, meter)
        versions = version_evidence(chain, after=entry.version)
        views = _attempt(problems, self._views) or ()
        found = replace(
            found,
            versions=versions,
            versions_omitted=head.version - entry.version - len(versions),
            branches=branch_evidence(entry, views, content_equal=found.content_equal),
            if_not_published=if_not_published(),
            problem="; ".join(problems) or None,
        )
        seconds = round(time.monotonic() - started, 3)
        costs = tuple(_measured(cost, self._tier, meter, seconds) for cost in found.costs)
        return replace(found, if_published=if_published(found), costs=costs)

    def unreadable(self, error: OpsError) -> DriftEvidence:
        """The evidence of a table whose Lance HEAD cannot be opened. Pure."""
        return DriftEvidence(tier=self._tier, problem=short(str(error), _MAX_PROBLEM))

    def _sides(self, entry: TableEntry, head: Dataset) -> Sides:
        return Sides(before=read_side(self._graph.open_pinned(entry)), after=read_side(head))

    def _views(self) -> tuple[BranchView, ...]:
        if self._branches is None:
            self._branches = branch_views(self._graph)
        return self._branches


def _metadata(found: DriftEvidence, sides: Sides, problems: list[str]) -> DriftEvidence:
    equal, reason = content_verdict(sides, None, None)
    return replace(
        found,
        costs=estimate(sides),
        content_equal=equal,
        content_reason=reason,
        rows_before=sides.before.rows,
        rows_after=sides.after.rows,
        rows_added=0 if sides.same_fragments else None,
        rows_removed=0 if sides.same_fragments else None,
        rows_changed=0 if equal else None,
        fragments_before=len(sides.before.fragments),
        fragments_after=len(sides.after.fragments),
        fragments_identical=len(sides.identical),
        columns=column_types(sides),
        indexes=_attempt(problems, lambda: index_evidence(sides)) or (),
    )


def _look_at_rows(found: DriftEvidence, sides: Sides, problems: list[str], meter: BytesRead) -> DriftEvidence:
    if found.tier is EvidenceTier.COUNTS:
        return found
    diff = _attempt(problems, lambda: compare_rows(sides, meter))
    if diff is None:
        return found
    values = None
    if found.tier is EvidenceTier.FULL:
        values = _attempt(problems, lambda: compare_values(sides, meter))
    changed = values.changed if values is not None else diff.rewritten
    equal, reason = content_verdict(sides, diff, values)
    return replace(
        found,
        content_equal=equal,
        content_reason=reason,
        rows_added=len(diff.added),
        rows_removed=len(diff.removed),
        rows_changed=None if changed is None else len(changed),
        columns=values.columns if values is not None else found.columns,
        shown=_attempt(problems, lambda: shown_rows(sides, diff, changed, meter)) or (),
    )


def _attempt(problems: list[str], read: Callable[[], T]) -> T | None:
    try:
        return read()
    except OpsError as error:
        problems.append(short(str(error), _MAX_PROBLEM))
        return None


def _measured(cost: TierCost, tier: EvidenceTier, meter: BytesRead, seconds: float) -> TierCost:
    return replace(cost, measured_bytes=meter.bytes_read, seconds=seconds) if cost.tier is tier else cost
