"""What somebody asks of an optimize."""

from __future__ import annotations

from typing import Annotated

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.models.optimize import RewritePolicy
from omnigraph_ops.requests import Bytes, Option, Positive, Request, Seconds, Tables

_BUDGET, _POLICY = "Budget", "Policy"


class PlanRequest(Request):
    """Which tables are optimized, how far, and within which bounds."""

    tables: Tables = ()
    max_bytes: Annotated[Bytes | None, Option(metavar="SIZE", section=_BUDGET)] = None
    """Write about this much at most, as in `20GiB`. The first table is always taken; what does not fit waits."""
    max_tables: Annotated[Positive | None, Option(metavar="N", section=_BUDGET)] = None
    """Optimize at most N tables, those with the most benefit per byte."""
    deadline: Annotated[Seconds | None, Option(metavar="DURATION", section=_BUDGET)] = None
    """Start no table later than this after the plan, as in `90m`, `4h`. Running ones are finished."""
    policy: Annotated[RewritePolicy | None, Option(section=_POLICY)] = None
    """`converge` (default): one fragment up to the target size; `tiered`: merge fragments of like size."""
    cutoff: Annotated[Positive | None, Option(metavar="N", section=_POLICY)] = None
    """Small fragments: `converge` rewrites only tables with more than N, `tiered` leaves at most N."""
    auto: Annotated[bool, Option(section=_POLICY)] = False
    """Only tables past a threshold: small fragments, unindexed rows, deleted rows."""
    defer_index_remap: Annotated[bool, Option(section=_POLICY, form=False)] = False
    """Plain Lance without stable row ids: do not rewrite indexes during compaction; Lance records where rows moved."""

    def settings(self, settings: Settings) -> Settings:
        """The settings with what this run says otherwise. Pure."""
        return settings.for_run(
            policy=self.policy, cutoff=self.cutoff, auto=self.auto, defer_index_remap=self.defer_index_remap
        )


class OptimizeRequest(PlanRequest):
    """Fold indexes, rewrite small fragments and publish."""

    exclusive: Annotated[bool, Option(form=False)] = False
    """Nobody else publishes meanwhile: compact the internal tables too."""

    def settings(self, settings: Settings) -> Settings:
        """The settings with what this run says otherwise. Pure."""
        found = super().settings(settings)
        return found.model_copy(update={"exclusive": True}) if self.exclusive else found
