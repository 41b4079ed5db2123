"""Heavy tables: the same optimize, submitted to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowFailException

import omnigraph_ops
from omnigraph_airflow.errors import airflow_errors
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook
from omnigraph_airflow.operators.base import push_failure, to_xcom
from omnigraph_ops import serde
from omnigraph_ops.models import TableStats

if TYPE_CHECKING:
    from airflow.sdk import Context

APPLICATION = str(Path(omnigraph_ops.__file__).parent / "spark" / "rewrite_table.py")
RESULT = (
    "__maintenance/results/{{ run_id | replace(':', '.') | replace('+', '.') }}"
    "/{{ ti.task_id }}.{{ ti.map_index }}.{{ ti.try_number }}.json"
)


class SubmitRewriteOperator(SparkSubmitOperator):
    """Submits one table to Spark and brings its outcome back as XCom.

    spark-submit returns no value, so the application writes its outcome below the graph, under a
    name that holds the try: a retry cannot read what an earlier try left.

    :param table_key: the table (templated).
    :param graph: path or URI of the graph (templated).
    :param result: where the outcome goes, below the graph (templated).
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "graph",
        "table_key",
        "result",
    )

    def __init__(self, *, table_key: str, graph: str = GRAPH, result: str = RESULT, **kwargs: Any) -> None:
        super().__init__(application=APPLICATION, **kwargs)
        self.table_key = table_key
        self.graph = graph
        self.result = result

    def execute(self, context: Context) -> Any:
        """Submit, wait, read the outcome. A failed submit is not repeated: what it did is unknown."""
        try:
            return self._submit_and_read(context)
        except Exception as error:
            push_failure(context, self.table_key, sentence(str(error)))
            raise AirflowFailException(str(error)) from error

    def _submit_and_read(self, context: Context) -> Any:
        with airflow_errors():
            from omnigraph_ops.edges.options import s3fs_options
            from omnigraph_ops.edges.storage import Storage

            uri = OmnigraphHook(self.graph).get_conn().uri
            self.application_args = [
                "--graph",
                uri,
                "--table",
                self.table_key,
                "--result-uri",
                f"{uri}/{self.result}",
            ]
            super().execute(context)
            storage = Storage(uri, s3fs_options(uri))
            stats = serde.from_json(TableStats, storage.read(self.result))
            storage.delete(self.result)
        if stats.error is not None:
            raise AirflowFailException(stats.error)
        return to_xcom(stats)


def sentence(output: str) -> str:
    """The application's own `Error:` line out of what spark-submit printed, else all of it. Pure."""
    lines = [line.partition("Error: ")[2] for line in output.splitlines() if "Error: " in line]
    return lines[-1] if lines else output
