"""Waits until nobody is writing to the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowSensorTimeout

from omnigraph_airflow.forms import request_in
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook
from omnigraph_airflow.operators.ask import by_hand
from omnigraph_airflow.operators.base import failures_told, refuse_unknown_params
from omnigraph_airflow.task_run import airflow_errors
from omnigraph_ops.stages.registry import planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """A part of every day; it may reach over midnight."""

    start: time
    end: time
    timezone: str = "UTC"

    def hold(self, moment: datetime) -> bool:
        """Whether a moment lies in it, the end excluded. Pure."""
        now = moment.astimezone(ZoneInfo(self.timezone)).time()
        if self.start < self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M} {self.timezone}"


class QuietGraphSensor(BaseSensorOperator):
    """Succeeds once the graph has seen no publish for a while; holds no worker while it waits.

    Between two looks it is rescheduled or, deferrable, in the triggerer, which only watches the clock: graphs are
    opened by workers alone.

    :param graph: path or URI of the graph (templated).
    :param quiet_seconds: how long nothing may have been published (templated).
    :param hours: a run that nobody triggered by hand also waits for them; None: any hour.
    :param requests: what tasks after it will ask of stages that plan first, by the names of the stages (templated): a
        run that asks for what no stage takes ends before anything is done.
    :param known_params: as of the operators.
    :param deferrable: wait in the triggerer; default: Airflow's `[operators] default_deferrable`.
    """

    template_fields: Sequence[str] = ("graph", "quiet_seconds", "requests")
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        graph: str = GRAPH,
        quiet_seconds: float | str = 300,
        hours: Hours | None = None,
        requests: Mapping[str, Mapping[str, Any]] | None = None,
        known_params: Sequence[str] | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("mode", "reschedule")
        kwargs.setdefault("poke_interval", timedelta(minutes=1))
        kwargs.setdefault("timeout", timedelta(hours=3))
        super().__init__(**kwargs)
        self.graph = graph
        self.quiet_seconds = quiet_seconds
        self.hours = hours
        self.requests = dict(requests or {})
        self.known_params = known_params
        self.deferrable = (
            conf.getboolean("operators", "default_deferrable", fallback=False) if deferrable is None else deferrable
        )

    def execute(self, context: Context) -> Any:
        """Look until the graph is quiet; raises `AirflowSensorTimeout` when that takes too long. Reads."""
        if self.deferrable:
            return self.look_again(context, until=(datetime.now(UTC) + timedelta(seconds=self.timeout)).isoformat())
        with failures_told(context):
            return super().execute(context)

    def look_again(self, context: Context, until: str, event: Any = None) -> None:
        """One look; back to the triggerer unless the graph is quiet, or it is later than `until`. Reads."""
        with failures_told(context):
            if self.poke(context):
                return
            if datetime.now(UTC) > datetime.fromisoformat(until):
                raise AirflowSensorTimeout(
                    f"{self.task_id}: the graph was not quiet within {self.timeout:.0f} s; nothing was changed; the "
                    "log of this task says what it waited for"
                )
        from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger

        pause = timedelta(seconds=self.poke_interval)
        self.defer(trigger=TimeDeltaTrigger(pause), method_name="look_again", kwargs={"until": until})

    def poke(self, context: Context) -> bool:
        """Look once at the newest publish and the recovery state. Reads."""
        if self.hours is not None and not by_hand(context) and not self.hours.hold(datetime.now(UTC)):
            self.log.info("not in the hours of this graph yet: %s", self.hours)
            return False
        with airflow_errors():
            from omnigraph_ops.coordination.guards import quiet_state

            refuse_unknown_params(context, self.known_params)
            for stage, values in self.requests.items():
                request_in(planned(stage), values)
            graph = OmnigraphHook(self.graph).get_conn()
            quiet, reason = quiet_state(graph, float(self.quiet_seconds))
        self.log.info("%s: %s", "quiet" if quiet else "not quiet yet", reason)
        return quiet
