"""What every operator of this package shares: open the graph, run one stage, translate its errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow.sdk import BaseOperator, BaseOperatorLink

from omnigraph_airflow import decisions
from omnigraph_airflow.decisions import question_of
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook
from omnigraph_airflow.links import GraphPageLink
from omnigraph_airflow.task_run import NO_FAILURES, StageSkipped, airflow_errors, failures_of, journaled
from omnigraph_ops import serde
from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.state import CONSENTS_DIR
from omnigraph_ops.errors import ApprovalMissing, GraphFrozen
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models.optimize import SkipReason, TableStats

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph

T = TypeVar("T")
_MOST_LOGGED = 10_000
FAILURE = "failure"
"""XCom key under which a failed task leaves its sentences for the report."""
_PLANNED_BY = "planned_by"


class Log(Protocol):
    """The logger of a task, whichever of Airflow's it is."""

    def info(self, event: str, *args: Any) -> Any: ...


class ListedFile(Protocol):
    """A file of a plan, of whichever stage."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...


class OmnigraphOperator(BaseOperator):
    """Runs one stage on one graph; the stage's value becomes the task's XCom, as JSON.

    :param graph: a name in the graphs file, a path or a URI (templated).
    """

    template_fields: Sequence[str] = ("graph",)
    ui_color = "#eef7ee"
    operator_extra_links: Sequence[BaseOperatorLink] = (GraphPageLink(),)

    def __init__(self, *, graph: str = GRAPH, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.graph = graph

    def execute(self, context: Context) -> Any:
        """Run the stage."""
        with failures_told(context, self._subject()), airflow_errors():
            opened = OmnigraphHook(self.graph).get_conn()
            with journaled(context, opened, self._subject()) as graph, airflow_errors():
                return self.run_stage(graph, context)

    def _subject(self) -> str | None:
        """The one table that this task is about, None when there is no such one."""
        return None

    def run_stage(self, graph: Graph, context: Context) -> Any:
        """The stage itself; returns what goes into XCom."""
        raise NotImplementedError


@contextlib.contextmanager
def failures_told(context: Context, table_key: str | None = None) -> Iterator[None]:
    """Leave the sentence of a task's failure where the report finds it; a skip or a wait is none. Writes."""
    try:
        yield
    except NO_FAILURES:
        raise
    except Exception as error:
        told = failures_of(context, table_key, error)
        context["ti"].xcom_push(key=FAILURE, value=[to_xcom(failure) for failure in told])
        raise


def skip_if_frozen(graph: Graph) -> None:
    """Skip, and let the report say why, if the whole graph is frozen: what is planned now could not be done. Reads."""
    why = frozen_since(graph)
    if why is not None:
        raise StageSkipped(why)


def pull_all(context: Context, cls: type[T], task_id: str, key: str) -> list[T]:
    """What a task pushed under a key, mapped or not, as values; `InvalidInput` names the field that is none. Reads."""
    found = context["ti"].xcom_pull(task_ids=task_id, key=key)
    rows: list[Any] = []
    for value in found if isinstance(found, Iterable) else ():
        rows += value if isinstance(value, list) else [] if value is None else [value]
    return [serde.from_json(cls, row) for row in rows]


def keep_plan(context: Context, graph: Graph, plan: sealed.P) -> Any:
    """Keep a plan in the graph, and that this task made it; the XCom carries its name only. Drops old ones. Writes."""
    task_id = context["ti"].task_id
    sealed.sweep(graph.storage, CONSENTS_DIR)
    decisions.keep_consent(graph.storage, decisions.consent_about(context, question_of(context, task_id), plan.digest))
    return {**to_xcom(sealed.store(graph.storage, plan)), _PLANNED_BY: task_id}


def kept_plan(context: Context, graph: Graph, cls: type[sealed.P], ref: Any) -> sealed.P:
    """The plan that an XCom names, if a task of this run made it. Reads.

    Raises:
        StalePlan: it is gone, or not for this graph.
        ApprovalMissing: the XCom names a plan that the graph does not know of this run.
    """
    digest = serde.from_json(sealed.PlanRef, ref).digest
    made = decisions.read_consent(graph.storage, question_of(context, str(ref.get(_PLANNED_BY))))
    if made is None or made.digest != digest:
        raise ApprovalMissing(
            f"the plan {digest} was not made by this run; nothing was done; its XCom was changed: trigger a new run"
        )
    return _plan_of(graph, cls, digest)


def approved_plan(graph: Graph, cls: type[sealed.P], digest: str | None) -> sealed.P | None:
    """The plan that the run's `digest` names, to be carried out as it is; None when none is named. Reads."""
    return _plan_of(graph, cls, digest.strip()) if digest else None


def _plan_of(graph: Graph, cls: type[sealed.P], digest: str) -> sealed.P:
    plan = sealed.load(graph.storage, cls, digest)
    sealed.verify(plan, uri=graph.uri, consequence="nothing was done")
    return plan


def log_files(log: Log, files: Sequence[ListedFile]) -> None:
    """Log the files of a plan, folded; of a very long list the first ones. Writes the log."""
    log.info("::group::every file of the plan (%d)", len(files))
    for file in files[:_MOST_LOGGED]:
        log.info("%s %d bytes", file.path, file.size)
    if len(files) > _MOST_LOGGED:
        log.info("and %d more, listed in the kept plan", len(files) - _MOST_LOGGED)
    log.info("::endgroup::")


def to_xcom(value: object) -> Any:
    """The JSON form of a stage's value. Pure."""
    return serde.to_json(value)


def frozen_since(graph: Graph, table_key: str | None = None) -> str | None:
    """Who froze the whole graph, or the table, as a sentence; None when nobody did. Reads."""
    from omnigraph_ops.coordination.freezes import refuse_frozen

    try:
        refuse_frozen(graph, table_key)
    except GraphFrozen as error:
        return str(error)
    return None


def left_alone(graph: Graph, table_key: str, not_after: Any, *, say: Callable[[str], None]) -> TableStats | None:
    """The row of a table that may not be optimized now, frozen or late, though it was planned; else None. Reads."""
    frozen = frozen_since(graph, table_key)
    if frozen is not None:
        say(f"{table_key}: {frozen}")
        return TableStats(table_key=table_key, skipped=SkipReason.FROZEN)
    if is_late(not_after):
        say(f"{table_key}: the deadline has passed, it waits for another run")
        return TableStats(table_key=table_key, skipped=SkipReason.DEFERRED_BUDGET)
    return None


def is_late(not_after: Any) -> bool:
    """Whether the run's deadline, in microseconds, has passed. Reads the clock."""
    return not_after is not None and now_us() > int(not_after)
