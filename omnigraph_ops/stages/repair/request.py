"""Which drift somebody asks to look at, and how closely."""

from __future__ import annotations

from typing import Annotated

from omnigraph_ops.models.repair import EvidenceTier
from omnigraph_ops.requests import Option, TablesRequest


class RepairRequest(TablesRequest):
    """Preview drifted tables, or publish their newest versions."""

    evidence: Annotated[EvidenceTier, Option(metavar="TIER")] = EvidenceTier.COUNTS
    """How much to read: `counts` metadata only, `sample` the row ids and a few rows, `full` every value."""
