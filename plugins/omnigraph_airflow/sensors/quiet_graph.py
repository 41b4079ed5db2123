"""Waits until nobody is writing to the graph."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from omnigraph_airflow.errors import airflow_errors
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook

if TYPE_CHECKING:
    from airflow.sdk import Context


class QuietGraphSensor(BaseSensorOperator):
    """Succeeds once the graph has seen no publish for a while; holds no worker while it waits.

    :param graph: path or URI of the graph (templated).
    :param quiet_seconds: how long nothing may have been published (templated).
    """

    template_fields: Sequence[str] = ("graph", "quiet_seconds")
    ui_color = "#e8f0fe"

    def __init__(self, *, graph: str = GRAPH, quiet_seconds: float | str = 300, **kwargs: Any) -> None:
        kwargs.setdefault("mode", "reschedule")
        kwargs.setdefault("poke_interval", timedelta(minutes=1))
        kwargs.setdefault("timeout", timedelta(hours=3))
        super().__init__(**kwargs)
        self.graph = graph
        self.quiet_seconds = quiet_seconds

    def poke(self, context: Context) -> bool:
        """Look once at the newest publish and the recovery state. Reads."""
        with airflow_errors():
            from omnigraph_ops.observe import quiet_state

            graph = OmnigraphHook(self.graph).get_conn()
            state = quiet_state(graph, float(self.quiet_seconds))
        self.log.info("%s: %s", "quiet" if state.quiet else "not quiet yet", state.reason)
        return state.quiet
