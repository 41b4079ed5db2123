"""What every operator of this package shares: open the graph, run one stage or a lot of tables, translate errors."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator, BaseOperatorLink, Context
from airflow.sdk.definitions.xcom_arg import PlainXComArg
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from omnigraph_airflow import decisions
from omnigraph_airflow.decisions import question_of
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook
from omnigraph_airflow.links import GraphPageLink
from omnigraph_airflow.run_report import Failure
from omnigraph_airflow.task_run import (
    NO_FAILURES,
    TASK_ERRORS,
    airflow_errors,
    failures_of,
    journaled,
    run_of,
    states_of,
)
from omnigraph_ops import serde
from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.state import CONSENTS_DIR
from omnigraph_ops.errors import ApprovalMissing, GraphFrozen, InvalidInput, OpsError, did_you_mean
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models.optimize import SkipReason, TableStats
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.quantities import count
from omnigraph_ops.views.markdown import by_cause
from omnigraph_ops.views.view import View, plain_text

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

_LOG = logging.getLogger(__name__)
_FAILURE = "failure"
"""XCom key under which a failed task leaves its sentences for the report."""
_PLANNED_BY = "planned_by"
LOT_LABEL = "{{ task.label }}"
"""`map_index_template` of these operators."""
_LABEL_CHARACTERS = 250
"""So many are in the column of Airflow's database; PostgreSQL refuses more, and the task would fail each time."""


def task_args(known_params: Iterable[str], **more: Any) -> dict[str, Any]:
    """The arguments of every task of a DAG that has these params. Pure."""
    return {
        "owner": "omnigraph",
        # Only what may succeed later is raised as retryable (omnigraph_airflow.task_run).
        "retries": 2,
        "retry_delay": timedelta(minutes=2),
        "known_params": sorted(known_params),
        **more,
    }


class OmnigraphOperator(BaseOperator):
    """Runs one stage on one graph; the stage's value becomes the task's XCom, as JSON.

    :param graph: a name in the graphs file, a path or a URI (templated).
    :param known_params: what whoever triggers the DAG may say; a run that says anything else fails. None: anything.
    """

    template_fields: Sequence[str] = ("graph",)
    ui_color = "#eef7ee"
    operator_extra_links: Sequence[BaseOperatorLink] = (GraphPageLink(),)

    def __init__(self, *, graph: str = GRAPH, known_params: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.graph, self.known_params = graph, known_params

    def execute(self, context: Context) -> Any:
        """Run the stage."""
        with failures_told(context, self._subject()), airflow_errors():
            refuse_unknown_params(context, self.known_params)
            opened = OmnigraphHook(self.graph).get_conn()
            with journaled(context, opened, self._subject()) as graph, airflow_errors():
                return self.run_stage(graph, context)

    def _subject(self) -> str | None:
        """The one table that this task is about, None when there is no such one."""
        return None

    def run_stage(self, graph: Graph, context: Context) -> Any:
        """The stage itself; returns what goes into XCom."""
        raise NotImplementedError

    def log_view(self, view: View, **how: str) -> None:
        """Log a view as `plain_text` writes it, a line each. Writes the log."""
        for line in plain_text(view, **how).splitlines():
            self.log.info("%s", line)


class RequestOperator(OmnigraphOperator):
    """Runs a stage as somebody asks for it.

    :param request: what is asked of the stage, by the names of its request's fields (templated).
    """

    template_fields: Sequence[str] = ("graph", "request")

    def __init__(self, *, request: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.request = dict(request or {})


def refuse_unknown_params(context: Context, known: Sequence[str] | None) -> None:
    """Refuse a run that was triggered with a param that its DAG does not have: a default would be taken. Pure."""
    if known is None:
        return
    unknown = sorted((context["dag_run"].conf or {}).keys() - known)
    if unknown:
        raise InvalidInput(
            f"this DAG has no param {', '.join(map(repr, unknown))}; nothing was done; it has {', '.join(known)}"
            f"{did_you_mean(unknown[0], known)}"
        )


@contextlib.contextmanager
def failures_told(context: Context, table_key: str | None = None) -> Iterator[None]:
    """Leave the sentence of a task's failure where the report finds it; a skip or a wait is none. Writes."""
    try:
        yield
    except AirflowSkipException as skip:
        _LOG.info("%s", skip)  # Airflow says that it skips the task, not why
        raise
    except NO_FAILURES:
        raise
    except TASK_ERRORS as error:
        told = failures_of(context, table_key, error)
        context["ti"].xcom_push(key=_FAILURE, value=[serde.to_json(failure) for failure in told])
        raise


def failures_handed(context: Context, task_id: str) -> list[Failure]:
    """The failures that `failures_told` left of a task, mapped or not; `InvalidInput` for others. Reads."""
    found = context["ti"].xcom_pull(task_ids=task_id, key=_FAILURE)
    rows: list[Any] = []
    for value in found if isinstance(found, Iterable) else ():
        rows += value if isinstance(value, list) else [] if value is None else [value]
    return [serde.from_json(Failure, row) for row in rows]


def task_of(value: Any) -> str:
    """The id of the task that leaves what a field takes; empty for a field that takes no XCom. Pure."""
    return value.operator.task_id if isinstance(value, PlainXComArg) else ""


def came_to_its_end(context: Context, task_id: str) -> bool:
    """Whether a task is a success now; True for no task. Reads.

    Its XCom does not tell: of a task that is cleared Airflow keeps it until the task starts again, which it does not
    where one before it fails.
    """
    return not task_id or states_of(context).get(task_id) == "success"


def keep_plan(context: Context, graph: Graph, plan: sealed.P) -> Any:
    """Keep a plan in the graph, and that this task made it; the XCom carries its name only. Drops old ones. Writes."""
    task_id = context["ti"].task_id
    sealed.sweep(graph.storage, CONSENTS_DIR)
    decisions.keep_consent(graph.storage, decisions.consent_about(context, question_of(context, task_id), plan.digest))
    return {**serde.to_json(sealed.store(graph.storage, plan)), _PLANNED_BY: task_id}


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
    return plan_of(graph, cls, digest)


def plan_of(graph: Graph, cls: type[sealed.P], digest: str) -> sealed.P:
    """The kept plan of a digest; `StalePlan` where it is gone, or not for this graph. Reads."""
    plan = sealed.load(graph.storage, cls, digest)
    sealed.verify(plan, uri=graph.uri, consequence="nothing was done")
    return plan


def frozen_since(graph: Graph, table_key: str | None = None) -> str | None:
    """Who froze the whole graph, or the table, as a sentence; None when nobody did. Reads, as `refuse_frozen`."""
    from omnigraph_ops.coordination.freezes import refuse_frozen

    try:
        refuse_frozen(graph, table_key)
    except GraphFrozen as error:
        return str(error)
    return None


class OfLotOperator(OmnigraphOperator):
    """Works on a lot.

    :param lot: the table keys (templated).
    """

    template_fields: Sequence[str] = ("graph", "lot")

    def __init__(self, *, lot: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lot = lot

    @property
    def label(self) -> str:
        """What the lot is called in the list of mapped tasks."""
        first, *others = self.lot
        rest = f" and {len(others)} more" if others else ""
        room = _LABEL_CHARACTERS - len(rest)
        return (first if len(first) <= room else f"{first[: room - 1]}…") + rest

    def fail(self, context: Context, failed: Mapping[str, Exception]) -> NoReturn:
        """Raise what went wrong with the only table of the lot, or one error about all that failed."""
        if len(self.lot) == 1:
            raise next(iter(failed.values()))
        raise LotFailed([f for key, error in failed.items() for f in failures_of(context, key, error)], len(self.lot))

    def _subject(self) -> str | None:
        return str(self.lot[0]) if len(self.lot) == 1 else None


class OptimizeLotOperator(OfLotOperator, RequestOperator):
    """Optimizes a lot, in this process or on Spark.

    :param not_after: the run's deadline in microseconds (templated): later than that the tables wait.
    """

    template_fields: Sequence[str] = (*OfLotOperator.template_fields, "request", "not_after")

    def __init__(self, *, not_after: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.not_after = not_after

    def left_alone(self, graph: Graph, table_key: str) -> TableStats | None:
        """The row of a table that was planned and may not be optimized now, frozen, gone or late; else None. Reads."""
        frozen = frozen_since(graph, table_key)
        if frozen is not None:
            self.log.info("%s: %s", table_key, frozen)
            return TableStats(table_key=table_key, skipped=SkipReason.FROZEN)
        if graph.published(table_key) is None:
            self.log.info("%s: dropped or renamed since the plan; the next run plans what there is", table_key)
            return TableStats(table_key=table_key, skipped=SkipReason.GONE)
        if self.not_after is not None and now_us() > int(self.not_after):
            self.log.info("%s: the deadline has passed, it waits for another run", table_key)
            return TableStats(table_key=table_key, skipped=SkipReason.DEFERRED_BUDGET)
        return None


class LotOperator(OfLotOperator):
    """Does the tables of a lot; one that fails stops no other, and fails the task in the end.

    What may succeed later is tried once more after the last table. Of a lot of one table the error is raised as
    it is, for Airflow to repeat it or not. Returns a list with a row per table.
    """

    def run_table(self, graph: Graph, table_key: str, context: Context) -> Any:
        """Do one table; returns its row."""
        raise NotImplementedError

    def side_by_side(self, graph: Graph) -> int:
        """How many tables are done at once. Pure."""
        return 1

    def run_stage(self, graph: Graph, context: Context) -> list[Any]:
        done: dict[str, Any] = {}
        failed = self._round(graph, self.lot, context, done)
        again = [key for key, error in failed.items() if isinstance(error, OpsError) and error.retryable]
        if again and len(self.lot) > 1:
            self.log.info("Once more, these may succeed now: %s", ", ".join(again))
            failed = {key: error for key, error in failed.items() if key not in again}
            failed |= self._round(graph, again, context, done)
        rows = [done[key] for key in self.lot if key in done]
        if failed:
            self.fail(context, failed)
        return rows

    def _round(
        self, graph: Graph, tables: Sequence[str], context: Context, done: dict[str, Any]
    ) -> dict[str, Exception]:
        """Do these tables, rows into `done`; what went wrong with which."""
        failed: dict[str, Exception] = {}
        at_work = set[str]()

        def one(key: str) -> None:
            at_work.add(key)
            try:
                with airflow_errors():
                    done[key] = self.run_table(graph, key, context)
            except Exception as error:
                self.log.error("%s: %s", key, error)
                failed[key] = error
            finally:
                at_work.discard(key)

        if (threads := self.side_by_side(graph)) > 1:
            try:
                in_parallel(one, tables, workers=threads)
            finally:
                # Only where the task was ended from outside: such a thread ends with the process.
                run_of(graph).goes_on = bool(at_work)
            return failed
        for key in tables:
            if len(self.lot) == 1:
                one(key)
                continue
            self.log.info("::group::%s", key)
            one(key)
            self.log.info("::endgroup::")
        return failed


class LotFailed(AirflowFailException):
    """Tables of a lot failed; the others, if any, are done."""

    def __init__(self, failures: Sequence[Failure], tables: int) -> None:
        others = ", the others are done" if len(failures) < tables else ""
        super().__init__(
            f"{len(failures):,} of {count(tables, 'table')} failed{others}: "
            + "; ".join(by_cause(("", str(failure.table_key), failure.message) for failure in failures))
        )
        self.failures = failures
