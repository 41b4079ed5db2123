"""What every operator of this package shares: open the graph, run one stage, translate its errors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import AirflowSkipException

from omnigraph_airflow.decisions import Decision
from omnigraph_airflow.errors import airflow_errors
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook
from omnigraph_airflow.links import GraphPageLink
from omnigraph_ops import audit_log, sealed, serde
from omnigraph_ops.audit_log import AuditEvent
from omnigraph_ops.errors import OpsError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.edges.storage import Storage
    from omnigraph_ops.graph import Graph

_MOST_LOGGED = 10_000
RETURNED = "return_value"
FAILURE = "failure"
"""XCom key under which a failed task leaves its one sentence for the report."""


def note(context: Context, storage: Storage, decision: Decision, event: AuditEvent, *, verb: str, detail: str) -> None:
    """Add an entry about a decision to the graph's audit log; a log that cannot be written stops nothing. Writes."""
    try:
        audit_log.append(
            storage,
            event,
            verb=verb,
            actor=decision.decided_by,
            digest=decision.digest,
            detail=detail,
            run=context["run_id"],
        )
    except OpsError as error:
        # Asking or applying again because of a log would be worse; the XCom has the decision.
        logging.getLogger(__name__).warning("This is not in the audit log: %s", error)


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
        """Run the stage; a failure also leaves its sentence as XCom `failure`."""
        try:
            with airflow_errors():
                return self.run_stage(OmnigraphHook(self.graph).get_conn(), context)
        except AirflowSkipException:
            raise
        except Exception as error:
            tables = getattr(error, "failures", None) or [_failure(context, self._subject(), str(error))]
            context["ti"].xcom_push(key=FAILURE, value=tables)
            raise

    def _subject(self) -> str | None:
        """The one table that this task is about, None when there is no such one."""
        lot = getattr(self, "lot", ())
        return str(lot[0]) if len(lot) == 1 else None

    def run_stage(self, graph: Graph, context: Context) -> Any:
        """The stage itself; returns what goes into XCom."""
        raise NotImplementedError


def push_failure(context: Context, table_key: str | None, message: str) -> None:
    """Leave the sentence of a failure where the report finds it. Writes."""
    context["ti"].xcom_push(key=FAILURE, value=_failure(context, table_key, message))


def _failure(context: Context, table_key: str | None, message: str) -> dict[str, Any]:
    index = map_index_of(context)
    return {"task_id": context["ti"].task_id, "table_key": table_key, "message": message, "map_index": index}


def map_index_of(context: Context) -> int:
    """Which of its mapped instances a task is; -1: it is not mapped. Pure."""
    index = context["ti"].map_index
    return -1 if index is None else int(index)


def pull_list(context: Context, task_id: str, key: str = RETURNED) -> list[Any]:
    """XComs of a task as a list; what a task mapped over lots pushed, too; nothing pushed: an empty list. Reads."""
    found = context["ti"].xcom_pull(task_ids=task_id, key=key)
    if found is None:
        return []
    if isinstance(found, (dict, str)):
        return [found]
    rows: list[Any] = []
    for value in found:
        if value is not None:
            rows += value if isinstance(value, list) else [value]
    return rows


def keep_plan(graph: Graph, plan: sealed.P) -> Any:
    """Keep a plan in the graph; the XCom carries its name only, whatever its size. Writes."""
    return to_xcom(sealed.store(graph.storage, plan))


def kept_plan(graph: Graph, cls: type[sealed.P], ref: Any) -> sealed.P:
    """The plan that an XCom names; `StalePlan` when it is gone or not for this graph. Reads."""
    return _plan_of(graph, cls, serde.from_json(sealed.PlanRef, ref).digest)


def approved_plan(graph: Graph, cls: type[sealed.P], digest: str | None) -> sealed.P | None:
    """The plan that the run's `digest` names, to be carried out as it is; None when none is named. Reads."""
    return _plan_of(graph, cls, digest) if digest else None


def _plan_of(graph: Graph, cls: type[sealed.P], digest: str) -> sealed.P:
    plan = sealed.load(graph.storage, cls, digest)
    sealed.verify(plan, uri=graph.uri, consequence="nothing was done")
    return plan


def log_files(log: logging.Logger, files: Sequence[ListedFile]) -> None:
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
