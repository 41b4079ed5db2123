"""Tasks of one DAG run, each in a process of its own that may be killed at one of its effects."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omnigraph_ops.graph import Graph
from omnigraph_ops.models.outcomes import Sealable
from omnigraph_ops.stages.stage import TaskIds
from tests.support.killed_runs import Kill, moments_hook
from tests.support.kills import Killer, killing
from tests.support.runs import Instance

_PRELOADED = ["omnigraph_airflow.operators.stages", "tests.support.kills"]
_LONGEST_SECONDS = 120.0
DAG, RUN = "a_dag", "a run"


@dataclass(slots=True)
class DagRun:
    """One run that a person started, and the states of its tasks."""

    root: Path
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    states: dict[str, str] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    clearings: int = 0

    def context(self, task_id: str) -> Any:
        """What Airflow hands to a task."""
        instance: Any = Instance(task_id)
        instance.try_number, instance.run_id = self.tries.get(task_id, 1), RUN
        instance.get_task_states = lambda **_: {RUN: dict(self.states)}
        return {
            "ti": instance,
            "run_id": RUN,
            "dag": SimpleNamespace(dag_id=DAG, task_ids=list(self.states)),
            "dag_run": SimpleNamespace(
                run_type="manual", triggering_user_name="ann", start_date=self.started, clear_number=self.clearings
            ),
        }

    def approve(self, graph: Graph, tasks: TaskIds, plan: Sealable) -> Any:
        """Keep a plan and a person's approval of it; returns what its task leaves. Writes."""
        from omnigraph_airflow import decisions
        from omnigraph_airflow.decisions import APPROVE, Decision
        from omnigraph_airflow.operators.base import keep_plan

        self.states[tasks.plan] = self.states[tasks.approve] = "success"
        kept = keep_plan(self.context(tasks.plan), graph, plan)
        context = self.context(tasks.approve)
        asked = decisions.consent_about(context, decisions.question_of(context, tasks.approve), plan.digest)
        answer = Decision(chosen_options=(APPROVE,), digest=plan.digest, decided_by="ann", force=True)
        decisions.keep_consent(graph.storage, replace(asked, decision=answer))
        return kept

    def run(self, operator: Any, scratch: Path, kill: Kill | None = None) -> int:
        """Run the next attempt of a task to its end, whatever ends it; its exit code. Starts a process."""
        task_id = operator[1]["task_id"]
        self.tries[task_id] = self.tries.get(task_id, 0) + 1
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        child = context.Process(target=_child, args=(self, operator, str(scratch), dict(os.environ), kill))
        child.start()
        child.join(_LONGEST_SECONDS)
        assert child.exitcode is not None, f"{task_id} with {kill} did not end"
        self.states[task_id] = "success" if child.exitcode == 0 else "failed"
        return child.exitcode

    def report(self) -> None:
        """Let the last task run, here. Writes."""
        from airflow.sdk.exceptions import AirflowFailException
        from omnigraph_airflow.operators.report import ReportOperator

        try:
            ReportOperator(task_id="report", graph=str(self.root)).execute(self.context("report"))
        except AirflowFailException as error:
            assert "failed" in self.states.values() or "approved and not done" in str(error)


def _child(
    run: DagRun, operator: tuple[type, dict[str, Any]], scratch: str, environment: dict[str, str], kill: Kill | None
) -> None:
    # The server that forked this process has the environment of the first test that needed one.
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    null = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(null, number)
    cls, arguments = operator
    moments: list[str] = []
    with killing(Killer(root=run.root, on_quiet=moments_hook(moments, kill))):
        cls(graph=str(run.root), **arguments).execute(run.context(arguments["task_id"]))
        Path(scratch).write_text(str(len(moments)))
        os._exit(0)


def _terminate(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
