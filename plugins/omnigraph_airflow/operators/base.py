"""What every operator of this package shares: open the graph, run one stage, translate its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from omnigraph_airflow.errors import airflow_errors
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook
from omnigraph_ops import serde

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph

FAILURE = "failure"
"""XCom key under which a failed task leaves its one sentence for the report."""


class OmnigraphOperator(BaseOperator):
    """Runs one stage on one graph; the stage's value becomes the task's XCom, as JSON.

    :param graph: path or URI of the graph (templated).
    """

    template_fields: Sequence[str] = ("graph",)
    ui_color = "#eef7ee"

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
            push_failure(context, getattr(self, "table_key", None), str(error))
            raise

    def run_stage(self, graph: Graph, context: Context) -> Any:
        """The stage itself; returns what goes into XCom."""
        raise NotImplementedError


def push_failure(context: Context, table_key: str | None, message: str) -> None:
    """Leave the sentence of a failure where the report finds it. Writes."""
    failure = {"task_id": context["ti"].task_id, "table_key": table_key, "message": message}
    context["ti"].xcom_push(key=FAILURE, value=failure)


def pull_list(context: Context, task_id: str, key: str = "return_value") -> list[Any]:
    """XComs of a task, mapped or not, as a list; nothing pushed is an empty list. Reads."""
    found = context["ti"].xcom_pull(task_ids=task_id, key=key)
    if found is None:
        return []
    if isinstance(found, (dict, str)):
        return [found]
    return [value for value in found if value is not None]


def to_xcom(value: object) -> Any:
    """The JSON form of a stage's value. Pure."""
    return serde.to_json(value)
