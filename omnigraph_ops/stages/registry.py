"""All stages that plan first, in the order in which a night runs them. A new stage is a folder and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph_ops.stages.cleanup.stage import Cleanup
from omnigraph_ops.stages.expire_rows.stage import ExpireRows
from omnigraph_ops.stages.orphans.stage import Orphans
from omnigraph_ops.stages.repair.stage import Repair
from omnigraph_ops.stages.stage import PlannedStage

PLANNED: tuple[PlannedStage[Any, Any, Any], ...] = (Repair(), Cleanup(), Orphans(), ExpireRows())
BY_NAME: Mapping[str, PlannedStage[Any, Any, Any]] = {stage.name: stage for stage in PLANNED}
