"""Which graphs this deployment has and who may see them; their schedules, runs and open questions.

What Airflow itself knows is read from its database, in few queries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager, ResourceMethod
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from fastapi import Depends
from sqlalchemy import func, select

from omnigraph_airflow.graphs import default_graph, read_graphs_file
from omnigraph_airflow.hooks.omnigraph import OmnigraphHook
from omnigraph_airflow.links import run_path
from omnigraph_ops.config.graph_entries import NIGHTLY, nightly_dag_id
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.outcomes.results import redacted
from omnigraph_ops.stages.registry import BY_NAME, asked_by
from omnigraph_ops.storage.location import locate, real_place
from omnigraph_ops.views.markdown import digest_shown

SIGNED_IN = Depends(requires_access_dag("GET", DagAccessEntity.XCOM))
"""What every route asks for: somebody who may read what the tasks of a DAG leave. A page is made of just that."""


class Access:
    """What one person may see; a graph is as visible as its nightly DAG."""

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._manager: BaseAuthManager[BaseUser] = get_auth_manager()

    def sees(self, dag_id: str) -> bool:
        """Whether they may read what the DAG's tasks left. Asks the auth manager."""
        return self._may("GET", DagAccessEntity.XCOM, dag_id)

    def sees_questions(self, dag_id: str) -> bool:
        """Whether they may read the approvals that the DAG asks for. Asks the auth manager."""
        return self._may("GET", DagAccessEntity.HITL_DETAIL, dag_id)

    def triggers(self, dag_id: str) -> bool:
        """Whether they may start a run of the DAG. Asks the auth manager."""
        return self._may("POST", DagAccessEntity.RUN, dag_id)

    def _may(self, method: ResourceMethod, entity: DagAccessEntity, dag_id: str) -> bool:
        details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
        return self._manager.is_authorized_dag(method=method, access_entity=entity, details=details, user=self._user)


def _access(user: GetUserDep) -> Access:
    return Access(user)


AccessDep = Annotated[Access, Depends(_access)]


CHECK = "omnigraph_graphs_check"
DEPLOYMENT = "deployment"
"""What the one graph of a deployment without a graphs file is called in addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGraph:
    """A graph that has a page."""

    name: str
    """In addresses."""
    title: str
    place: str
    """For people, without user info."""
    root: str
    """Where it lies, in one spelling, for comparing only; empty when nobody named it."""
    dag_id: str
    """Of its nightly DAG: who may see that one may see the graph."""
    wanted: str | None
    """What the hook takes; None: nobody named a graph."""
    named: bool
    """Whether the forms of the manual DAGs know it by `wanted`."""
    owner: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All of them, and what is wrong with the file."""

    graphs: tuple[ListedGraph, ...]
    problems: tuple[str, ...] = ()


def listed_graphs() -> Listing:
    """The graphs of the deployment, in the order of the file. Reads."""
    reading = read_graphs_file()
    if reading is None:
        return Listing(graphs=(_deployment(),))
    graphs = tuple(
        ListedGraph(
            name=entry.name,
            title=entry.name,
            place=redacted(entry.place),
            root=entry.root,
            dag_id=nightly_dag_id(entry.name),
            wanted=entry.name,
            named=True,
            owner=entry.owner,
            description=entry.description or "",
        )
        for entry in reading.graphs
    )
    return Listing(graphs=graphs, problems=tuple(redacted(str(problem)) for problem in reading.problems))


def _deployment() -> ListedGraph:
    wanted = default_graph()
    try:
        place = redacted(OmnigraphHook(wanted).target())
    except OpsError:
        place = ""  # opening it says why
    title = place.rstrip("/").rpartition("/")[2] or "The deployment's graph"
    root = root_of(wanted or "")
    return ListedGraph(name=DEPLOYMENT, title=title, place=place, root=root, dag_id=NIGHTLY, wanted=wanted, named=False)


def root_of(text: str) -> str:
    """Where a path or URI leads, in one spelling; empty for what is neither. Reads the working directory."""
    try:
        return locate(text).root
    except InvalidInput:
        return ""


def asking_dags() -> tuple[str, ...]:
    """The DAGs that ask about the graph which the run's params name. Pure."""
    return (NIGHTLY, *(stage.dag_id for stage in BY_NAME.values()))


def questions_by_graph(
    graphs: Sequence[ListedGraph], asked: Iterable[OpenQuestion], *, default: str | None
) -> Mapping[str, tuple[OpenQuestion, ...]]:
    """The questions of each graph by its name; those about a graph without a page are left out. Reads the file system.

    Args:
        default: what an empty param `graph` means; None when nobody said.
    """
    of_dag = {graph.dag_id: graph for graph in graphs if graph.named}
    found: dict[str, list[OpenQuestion]] = defaultdict(list)
    for question in asked:
        graph = of_dag.get(question.dag_id) or _meant(graphs, question.graph or default)
        if graph is not None:
            found[graph.name].append(question)
    return {name: tuple(listed) for name, listed in found.items()}


def _meant(graphs: Sequence[ListedGraph], text: str | None) -> ListedGraph | None:
    """The graph that a param means: by its name, or by any path or URI that leads to it. Reads the file system."""
    for graph in graphs:
        if (text == graph.name) if graph.named else text is None:
            return graph
    root = root_of(text or "")
    # Links are followed only here: a mount that hangs must not hold up the list of graphs.
    same = (graph for graph in graphs if root and graph.root and real_place(graph.root) == real_place(root))
    return next(same, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DagFacts:
    """A DAG as the scheduler sees it."""

    dag_id: str
    paused: bool
    schedule: str
    next_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRun:
    """The run of a DAG that runs, else its newest one."""

    dag_id: str
    run_id: str
    state: str
    started_at: datetime | None

    @property
    def path(self) -> str:
        """Its page below Airflow's address. Pure."""
        return run_path(self.dag_id, self.run_id)

    @property
    def at_work(self) -> bool:
        """Whether it is not over. Pure."""
        return self.state in {"running", "queued"}


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
        return f"{run_path(self.dag_id, self.run_id)}/tasks/{self.task_id}/required_actions"


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
    """The run of each DAG that runs, though others are queued behind it, else the newest one. Reads."""
    newest = select(func.max(DagRun.id)).where(DagRun.dag_id.in_(dag_ids)).group_by(DagRun.dag_id)
    running = newest.where(DagRun.state == DagRunState.RUNNING)
    columns = (DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.start_date)
    wanted = select(*columns).where(DagRun.id.in_(newest) | DagRun.id.in_(running))
    with create_session(scoped=False) as session:
        # The one that runs comes last, so it is the one that stays.
        found = session.execute(wanted.order_by(DagRun.state == DagRunState.RUNNING)).all()
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
