"""What a run wants, from rendered params to the library's own values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from omnigraph_airflow.forms import said
from omnigraph_ops.errors import GraphFrozen
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models import SkipReason, TableStats
from omnigraph_ops.requests import build
from omnigraph_ops.stages.stage import AnyRun

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.stages.optimize.request import PlanRequest


def request_in(stage: AnyRun, values: Mapping[str, Any]) -> Any:
    """The request of a stage with the values that a form or a DAG gave; `InvalidInput` names a wrong one. Pure."""
    return build(stage.request, said(stage.request, values))


def under(graph: Graph, request: PlanRequest) -> Graph:
    """The graph with what a run asks for in place of the deployment's settings. Pure."""
    return graph.with_settings(request.settings(graph.settings))


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
