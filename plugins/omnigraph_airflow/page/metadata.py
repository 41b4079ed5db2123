"""What Airflow itself knows: schedules, runs, open questions. Read from its database, in few queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import func, select

from omnigraph_ops.stages.registry import BY_NAME, asked_by
from omnigraph_ops.views.markdown import digest_shown


@dataclass(frozen=True, slots=True, kw_only=True)
class DagFacts:
    """A DAG as the scheduler sees it."""

    dag_id: str
    paused: bool
    schedule: str
    next_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRun:
    """The newest run of a DAG."""

    dag_id: str
    run_id: str
    state: str
    started_at: datetime | None

    @property
    def path(self) -> str:
        """Its page below Airflow's address. Pure."""
        return f"/dags/{quote(self.dag_id, safe='')}/runs/{quote(self.run_id, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """An approval that waits for a person."""

    dag_id: str
    run_id: str
    task_id: str
    subject: str
    asked_at: datetime
    answer_by: datetime | None
    may_answer: tuple[str, ...]
    """Names; empty: everybody who may act on the DAG."""
    digest: str
    """Of the plan that is asked about, as the text of the question has it; empty when there is none."""
    graph: str
    """The param `graph` of the run."""

    @property
    def stage(self) -> str:
        """The name of the stage that asks; empty when none does. Pure."""
        stage = asked_by(self.task_id)
        return stage.name if stage else ""

    @property
    def path(self) -> str:
        """Airflow's own form, below its address. Pure."""
        run = f"/dags/{quote(self.dag_id, safe='')}/runs/{quote(self.run_id, safe='')}"
        return f"{run}/tasks/{self.task_id}/required_actions"


def dag_facts(dag_ids: Collection[str]) -> Mapping[str, DagFacts]:
    """The DAGs that Airflow knows, of those. Reads."""
    columns = (DagModel.dag_id, DagModel.is_paused, DagModel.timetable_summary, DagModel.next_dagrun_create_after)
    with create_session(scoped=False) as session:
        found = session.execute(select(*columns).where(DagModel.dag_id.in_(dag_ids), ~DagModel.is_stale)).all()
    return {
        dag_id: DagFacts(dag_id=dag_id, paused=bool(paused), schedule=schedule or "", next_at=next_at)
        for dag_id, paused, schedule, next_at in found
    }


def newest_runs(dag_ids: Collection[str]) -> Mapping[str, NewestRun]:
    """The newest run of each DAG that had one. Reads."""
    newest = select(func.max(DagRun.id)).where(DagRun.dag_id.in_(dag_ids)).group_by(DagRun.dag_id)
    columns = (DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.start_date)
    with create_session(scoped=False) as session:
        found = session.execute(select(*columns).where(DagRun.id.in_(newest))).all()
    return {
        dag_id: NewestRun(dag_id=dag_id, run_id=run_id, state=str(state), started_at=started)
        for dag_id, run_id, state, started in found
    }


def open_questions(dag_ids: Collection[str]) -> tuple[OpenQuestion, ...]:
    """The approvals that those DAGs wait for, oldest first. Reads."""
    columns = (
        TaskInstance.dag_id,
        TaskInstance.run_id,
        TaskInstance.task_id,
        TaskInstance.trigger_timeout,
        HITLDetail.subject,
        HITLDetail.body,
        HITLDetail.created_at,
        HITLDetail.assignees,
        DagRun.conf,
    )
    query = (
        select(*columns)
        .select_from(HITLDetail)
        .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
        .join(DagRun, (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id))
        .where(
            HITLDetail.responded_at.is_(None),
            TaskInstance.state == "awaiting_input",
            TaskInstance.dag_id.in_(dag_ids),
            TaskInstance.task_id.in_([stage.tasks.approve for stage in BY_NAME.values()]),
        )
        .order_by(HITLDetail.created_at)
    )
    with create_session(scoped=False) as session:
        return tuple(_question(row) for row in session.execute(query).all())


def _question(row: Any) -> OpenQuestion:
    conf = row.conf or {}
    return OpenQuestion(
        dag_id=row.dag_id,
        run_id=row.run_id,
        task_id=row.task_id,
        subject=row.subject,
        asked_at=row.created_at,
        answer_by=row.trigger_timeout,
        may_answer=tuple(str(user.get("name") or user.get("id")) for user in row.assignees or ()),
        digest=digest_shown(row.body),
        graph=str(conf.get("graph") or "") if isinstance(conf, dict) else "",
    )
