"""Buttons on a task's page: to the page of its graph, and to the question that its plan asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from omnigraph_airflow import PAGES, base_path
from omnigraph_airflow.graphs import is_name
from omnigraph_ops.stages.registry import BY_NAME

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

GRAPH_PAGE = PAGES + "/graphs/{name}"


def run_path(dag_id: str, run_id: str) -> str:
    """The page of a run, below Airflow's address. Pure."""
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


class GraphPageLink(BaseOperatorLink):
    """The page of the graph, for a graph of the graphs file; else the page of all graphs."""

    name = "Graph maintenance"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Relative to Airflow's own address. Reads the config."""
        graph = str(getattr(operator, "graph", "") or "")
        page = GRAPH_PAGE.format(name=quote(graph, safe="")) if is_name(graph) else PAGES + "/"
        return base_path() + page


class ApprovalLink(BaseOperatorLink):
    """The question about the plan that this task made, while it is open and after."""

    name = "Approval"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Relative to Airflow's own address; empty for a task that asks nothing. Reads the config."""
        tasks = (stage.tasks for stage in BY_NAME.values())
        asking = next((of.approve for of in tasks if ti_key.task_id in (of.plan, of.apply)), None)
        if asking is None:
            return ""
        return f"{base_path()}{run_path(ti_key.dag_id, ti_key.run_id)}/tasks/{asking}/required_actions"


ASKED = (GraphPageLink(), ApprovalLink())
"""Of the tasks that make or carry out a plan that somebody is asked about."""
