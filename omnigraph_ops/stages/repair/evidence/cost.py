"""What each tier would read, estimated from metadata. Pure."""

from __future__ import annotations

from omnigraph_ops.models import EvidenceTier, TierCost
from omnigraph_ops.stages.repair.evidence.sides import Sides

SHOWN_PER_CHANGE = 5
"""Rows shown of each kind of change."""
_ROW_READS = 4 * SHOWN_PER_CHANGE
"""Added and removed rows are read on one side, changed rows on both."""
_FOOTER = 2048
"""Metadata that Lance reads per data file and column."""
_PAGE = 4096
"""The least that reading one value of one column costs."""


def estimate(sides: Sides) -> tuple[TierCost, ...]:
    """The cost of every tier for one table, before any is run. Pure."""
    differing = (*sides.differing(sides.before), *sides.differing(sides.after))
    blobs = bool(differing) and any(c.is_blob for side in (sides.before, sides.after) for c in side.columns)
    columns = max(len(sides.columns), 1)
    stored = sum(f.data_bytes for f in differing)
    whole = stored + _FOOTER * columns * sum(f.files for f in differing)
    row = stored // max(sum(f.rows for f in differing), 1)
    sample = min(whole, _ROW_READS * (columns * _PAGE + row))
    return (
        TierCost(tier=EvidenceTier.COUNTS, estimated_bytes=0),
        TierCost(tier=EvidenceTier.SAMPLE, estimated_bytes=sample),
        TierCost(tier=EvidenceTier.FULL, estimated_bytes=whole + sample, at_least=blobs),
    )
