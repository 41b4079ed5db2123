"""Everything the tasks of a run left behind, as values. Knows no Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph_airflow.decisions import Decision
from omnigraph_ops.models import DriftFinding, OptimizePlan, OptimizeReport, RecoverReport
from omnigraph_ops.models.backup import BackupReport, VerifyReport
from omnigraph_ops.models.history import RunDecision
from omnigraph_ops.models.outcome import Outcome
from omnigraph_ops.stages.stage import AnyPlanned


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A task that failed and the sentence it left."""

    task_id: str
    table_key: str | None
    message: str
    map_index: int = -1

    @property
    def instance(self) -> str:
        """The task as `RunFacts.states` calls it. Pure."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything the tasks of a run left; None where a task did not get to leave it."""

    graph: str
    stages: frozenset[str] = frozenset({"optimize", "repair", "cleanup"})
    """What the DAG has: a stage that it lacks has no section."""
    states: Mapping[str, str | None] = field(default_factory=dict)
    """State per task, mapped ones as `task_index`."""
    failures: tuple[Failure, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Why a stage was not even planned, by its name."""
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    """What was answered, by the name of the stage."""
    carried_out: tuple[RunDecision, ...] = ()
    """What tasks relied on, in whichever clearing of the run."""
    plans: Mapping[str, Any] = field(default_factory=dict)
    """What was planned, by the name of the stage."""
    reports: Mapping[str, Any] = field(default_factory=dict)
    """What the stages report, by their names."""
    outcomes: tuple[Outcome, ...] = ()
    """What came of the stages that left no report here."""
    drift: tuple[DriftFinding, ...] | None = None
    """Tables that are ahead of what is published now; None: nobody looked, or could."""
    optimize_plan: OptimizePlan | None = None
    optimize: OptimizeReport | None = None
    recovery: RecoverReport | None = None
    backup: BackupReport | None = None
    verified: VerifyReport | None = None

    def outcome_of(self, stage: AnyPlanned) -> Outcome | None:
        """What came of a stage; None when it was not carried out. Pure."""
        if stage.name in self.reports:
            return stage.outcome(self.reports[stage.name])
        return next((outcome for outcome in self.outcomes if outcome.stage == stage.name), None)
