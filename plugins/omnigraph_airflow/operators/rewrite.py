"""Heavy tables, or many small ones: the same optimize, submitted to Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from omnigraph_airflow.operators.base import to_xcom
from omnigraph_airflow.operators.lots import LotFailed, label_of, only_one
from omnigraph_airflow.operators.spark_jobs import SubmitJobOperator
from omnigraph_airflow.run_options import left_alone, request_in
from omnigraph_airflow.task_run import failures_of
from omnigraph_ops.errors import OpsError
from omnigraph_ops.models import OptimizeReport, TableStats
from omnigraph_ops.stages.registry import UNASKED_BY_NAME

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph


class SubmitRewriteOperator(SubmitJobOperator):
    """Submits a lot of tables as the job `rewrite`; a row per table becomes the XCom.

    :param lot: the table keys (templated).
    :param request: what is asked of optimize, by the names of its request's fields (templated).
    :param not_after: the run's deadline in microseconds (templated): later than that the tables wait.
    """

    template_fields: Sequence[str] = (*SubmitJobOperator.template_fields, "lot", "request", "not_after")

    def __init__(
        self,
        *,
        lot: Any,
        request: Mapping[str, Any] | None = None,
        not_after: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.lot = lot
        self.request, self.not_after = dict(request or {}), not_after

    @property
    def label(self) -> str:
        """What the lot is called in the list of mapped tasks."""
        return label_of(self.lot)

    def _subject(self) -> str | None:
        return only_one(self.lot)

    def run_stage(self, graph: Graph, context: Context) -> Any:
        left = {key: left_alone(graph, key, self.not_after, say=self.log.info) for key in self.lot}
        rows = [row for row in left.values() if row is not None]
        if work := [key for key, row in left.items() if row is None]:
            rows += self._rewritten(context, graph, work)
        for row in rows:
            if row.error is None:
                graph.run.notes(row)
        failed = {row.table_key: row.error for row in rows if row.error is not None}
        if not failed:
            return [to_xcom(row) for row in rows]
        if len(self.lot) == 1:
            raise AirflowFailException(*failed.values())
        told = [f for key, error in failed.items() for f in failures_of(context, key, OpsError(error))]
        raise LotFailed(told, len(self.lot))

    def _rewritten(self, context: Context, graph: Graph, keys: Sequence[str]) -> Sequence[TableStats]:
        """Submit, each table a unit: of a submit that is cut off the graph tells what it published. Writes."""
        from omnigraph_ops.stages.optimize.run import unit_of

        units = {key: unit_of(graph, key) for key in keys}
        for unit in units.values():
            graph.run.begins(unit)
        request = request_in(UNASKED_BY_NAME["optimize"], self.request)
        tables = [word for key in keys for word in ("--table", key)]
        words = ("--graph", graph.target, *tables, "--request", request.said)
        rows = self.submitted(context, graph, "rewrite", words, OptimizeReport).tables
        for row in rows:
            if row.error is None:
                graph.run.ended(units[row.table_key], row)
        return rows
