"""Heavy tables: the same optimize, submitted to Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from omnigraph_airflow.operators.base import to_xcom
from omnigraph_airflow.operators.spark_jobs import SubmitJobOperator
from omnigraph_airflow.run_options import left_alone, request_in
from omnigraph_ops.models import TableStats
from omnigraph_ops.stages.registry import UNASKED_BY_NAME

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph


class SubmitRewriteOperator(SubmitJobOperator):
    """Submits one table as the job `rewrite`; its row becomes the XCom.

    :param table_key: the table (templated).
    :param request: what is asked of optimize, by the names of its request's fields (templated).
    :param not_after: the run's deadline in microseconds (templated): later than that the table waits.
    """

    template_fields: Sequence[str] = (*SubmitJobOperator.template_fields, "table_key", "request", "not_after")

    def __init__(
        self,
        *,
        table_key: str,
        request: Mapping[str, Any] | None = None,
        not_after: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table_key = table_key
        self.request, self.not_after = dict(request or {}), not_after

    def _subject(self) -> str | None:
        return self.table_key

    def run_stage(self, graph: Graph, context: Context) -> Any:
        stats = left_alone(graph, self.table_key, self.not_after, say=self.log.info)
        stats = stats or self._rewritten(context, graph)
        graph.run.notes(stats)
        return to_xcom(stats)

    def _rewritten(self, context: Context, graph: Graph) -> TableStats:
        """Submit, as one unit of the task: of a submit that is cut off the graph tells what it published. Writes."""
        from omnigraph_ops.stages.optimize.run import unit_of

        unit = unit_of(graph, self.table_key)
        graph.run.begins(unit)
        request = request_in(UNASKED_BY_NAME["optimize"], self.request)
        arguments = ("--graph", graph.target, "--table", self.table_key, "--request", request.said)
        stats = self.submitted(context, graph, "rewrite", arguments, TableStats)
        if stats.error is not None:
            raise AirflowFailException(stats.error)
        graph.run.ended(unit, stats)
        return stats
