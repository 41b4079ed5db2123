"""All stages, those of a night in the order in which it runs them. A new stage is a folder and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.outcomes.results import STAGES
from omnigraph_ops.stages.backup.stage import Backup, Verified
from omnigraph_ops.stages.cleanup.stage import Cleanup
from omnigraph_ops.stages.expire_rows.stage import ExpireRows
from omnigraph_ops.stages.freeze.stage import FreezeStage
from omnigraph_ops.stages.health.stage import Health
from omnigraph_ops.stages.optimize.stage import OptimizeStage, PlanOptimize
from omnigraph_ops.stages.orphans.stage import Orphans, Quarantined
from omnigraph_ops.stages.recovery.stage import Check, Recover
from omnigraph_ops.stages.repair.stage import Repair
from omnigraph_ops.stages.stage import AnyPlanned, AnyRun, TaskIds

UNASKED: tuple[AnyRun, ...] = (Check(), Health(), PlanOptimize(), Recover(), OptimizeStage())
"""The stages of a night that nobody has to approve."""
KEEPING: tuple[AnyRun, ...] = (Backup(), FreezeStage())
"""The stages that keep a graph as it is; nobody has to approve them either, and no night has them."""
PLANNED: tuple[AnyPlanned, ...] = (Repair(), Cleanup(), Orphans(), ExpireRows())
UNASKED_BY_NAME: Mapping[str, AnyRun] = {stage.name: stage for stage in (*UNASKED, *KEEPING)}
BY_NAME: Mapping[str, AnyPlanned] = {stage.name: stage for stage in PLANNED}
STAGES.update({recorded.name: recorded for recorded in (*UNASKED, *PLANNED, Quarantined(), *KEEPING, Verified())})
STAGES["forks"] = BY_NAME["cleanup"]  # as journals of 0.2.0 call those units


def planned(name: str) -> AnyPlanned:
    """The stage of that name; `InvalidInput` when there is none that plans first. Pure."""
    stage = BY_NAME.get(name)
    if stage is None:
        raise InvalidInput(f"no stage {name!r} keeps a plan that somebody is asked about: {', '.join(BY_NAME)}")
    return stage


def tasks_by_stage() -> dict[str, TaskIds]:
    """The tasks of every stage that a DAG may have, in the order in which a night runs them. Pure."""
    stages: tuple[AnyRun | AnyPlanned, ...] = (*UNASKED, *BY_NAME.values(), *KEEPING)
    return {stage.name: stage.tasks for stage in stages if stage.tasks is not None}


def asked_by(task_id: str) -> AnyPlanned | None:
    """The stage whose plan that task asks about. Pure."""
    return next((stage for stage in BY_NAME.values() if stage.tasks.approve == task_id), None)
