"""What a submitted rewrite leaves for the task that submitted it."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.models import TableStats


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOutcome:
    """Statistics, or one sentence and whether the same submit may succeed later."""

    stats: TableStats | None = None
    error: str | None = None
    retryable: bool = True
