"""A finished DAG run as tests look at it, and the task instance of a task that runs without one."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from omnigraph_airflow import decisions
from omnigraph_airflow.decisions import Decision, QuestionId

from omnigraph_ops.graph import Graph
from tests.support.questions import id_of


def context_of(instance: Any) -> Any:
    """The context of a task in a run of its own that somebody triggered."""
    return {
        "ti": instance,
        "run_id": "a run",
        "dag": SimpleNamespace(dag_id=instance.dag_id, task_ids=[instance.task_id]),
        "dag_run": SimpleNamespace(
            run_type="manual", triggering_user_name="ann", start_date=datetime.now(UTC), clear_number=0
        ),
    }


class Instance:
    """Keeps what a task pushes."""

    dag_id = "a_dag"
    try_number = 1

    def __init__(self, task_id: str, map_index: int = -1) -> None:
        self.task_id, self.map_index, self.id = task_id, map_index, id_of(f"attempt of {task_id}")
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, *, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, *, task_ids: str, key: str = "return_value") -> Any:
        """What this very task pushed; every other task left nothing."""
        return self.pushed.get(key) if task_ids == self.task_id else None


def planned(context: Any, graph: Graph, plan: Any) -> Any:
    """What the planning task of that run leaves, plan kept and noted. Writes."""
    from omnigraph_airflow.operators.base import keep_plan

    return keep_plan({**context, "ti": Instance("plan_cleanup")}, graph, plan)  # type: ignore[typeddict-item]


class Finished:
    """One finished run: task states by id and index, and the report it left."""

    def __init__(self, run: Any) -> None:
        self.state = str(run.state)
        self.tasks = {(t.task_id, t.map_index): str(t.state) for t in run.get_task_instances()}
        self._run = run

    def decision(self, graph: Graph, task_id: str) -> Decision:
        """What was answered to a task's question, as the graph keeps it."""
        kept = decisions.read_consent(
            graph.storage, QuestionId(dag_id=self._run.dag_id, run_id=self._run.run_id, task_id=task_id)
        )
        assert kept is not None
        assert kept.decision is not None
        return kept.decision

    def of(self, task_id: str) -> list[str]:
        return sorted(state for (task, _), state in self.tasks.items() if task == task_id)

    @property
    def report(self) -> dict[str, Any]:
        return dict(self.xcom("report", "report"))

    def xcom(self, task_id: str, key: str = "return_value") -> Any:
        """What a task left under that key."""
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        with create_session() as session:
            query = XComModel.get_many(run_id=self._run.run_id, key=key, task_ids=[task_id])
            return XComModel.deserialize_value(session.scalars(query).one())
