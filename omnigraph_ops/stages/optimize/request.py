"""What somebody asks of an optimize."""

from __future__ import annotations

from typing import Annotated

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import POLICY, BudgetTerms, RewriteTerms
from omnigraph_ops.requests import Option, TablesRequest


class PlanRequest(RewriteTerms, BudgetTerms, TablesRequest):
    """Which tables are optimized, how far, and within which bounds."""

    defer_index_remap: Annotated[bool, Option(section=POLICY, form=False)] = False
    """Plain Lance without stable row ids: do not rewrite indexes during compaction; Lance records where rows moved."""

    def settings(self, settings: Settings) -> Settings:
        """The settings with what this run says otherwise. Pure."""
        return settings.for_run(
            policy=self.policy,
            cutoff=self.cutoff,
            auto=self.auto,
            defer_index_remap=self.defer_index_remap,
            retrain_vectors=self.retrain_vectors,
        )


class OptimizeRequest(PlanRequest):
    """Fold indexes, rewrite small fragments and publish."""

    exclusive: Annotated[bool, Option(form=False)] = False
    """Nobody else publishes meanwhile: compact the internal tables too."""

    def settings(self, settings: Settings) -> Settings:
        """The settings with what this run says otherwise. Pure."""
        found = super().settings(settings)
        return found.model_copy(update={"exclusive": True}) if self.exclusive else found
