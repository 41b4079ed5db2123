"""From an entry of the graphs file to its nightly DAG."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, AssetAny, AssetOrTimeSchedule, CronTriggerTimetable, Param
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from omnigraph_airflow.nightly import ADVANCE, Night, nightly_dag, stage_params
from omnigraph_airflow.notify import callbacks, deadline_callback, maintained_asset
from omnigraph_airflow.sensors.quiet_graph import Hours
from omnigraph_ops.config.graph_entries import NIGHTLY, GraphEntry, Notifier, hours_of, nightly_dag_id

NEVER_ON_SPARK = 2**62
"""No rewrite has so many bytes."""
_WITHOUT_EFFECT = (
    "Without effect in a run that you trigger: this graph has approvers, and one of them answers under *Required "
    "Actions*. In a run that Airflow starts itself the approvals of the graphs file count."
)
"""A confirmation may have come before the entry had approvers: no run is refused for it."""


def graph_dag(entry: GraphEntry) -> DAG:
    """The nightly DAG of one graph. Pure."""
    return nightly_dag(night_of(entry))


def night_of(entry: GraphEntry) -> Night:
    """What the file says about a graph, as its DAG wants it. Pure."""
    asked = entry.approvals
    timeout = {} if entry.task_timeout is None else {"execution_timeout": timedelta(seconds=entry.task_timeout)}
    # Hidden in the form; Airflow refuses a run that names another graph, which this DAG would not work on.
    params = {"graph": Param(entry.name, const=entry.name), **stage_params()}
    for name, value in _defaults(entry).items():
        params[name].value = value
    if asked.approvers:
        for param in params.values():
            if param.schema.get("section") == ADVANCE:
                param.schema["description_md"] = _WITHOUT_EFFECT
    return Night(
        dag_id=nightly_dag_id(entry.name),
        graph=entry.name,
        schedule=_schedule(entry),
        params=params,
        doc_md=_doc(entry),
        owner=entry.owner,
        tags=(entry.name, *entry.tags),
        description=entry.description or f"Nightly maintenance of {entry.place}",
        hours=_hours(entry),
        wait_at_most=timedelta(seconds=entry.window.wait_at_most),
        answer_within=timedelta(seconds=asked.answer_within),
        approvers=asked.approvers,
        standing_repair=asked.repair is not None,
        told=tuple(callbacks(asked.notify)),
        task_args={"pool": entry.pool, **timeout},
        on_failure=tuple(callbacks(entry.alerts.on_failure)),
        deadlines=_deadlines(entry),
        outlets=(maintained_asset(entry.name),),
    )


def _schedule(entry: GraphEntry) -> Any:
    clock = CronTriggerTimetable(entry.schedule, timezone=entry.timezone) if entry.schedule else None
    # By URI, whatever name the pipeline gave the asset.
    loads = AssetAny(*(Asset.ref(uri=_as_kept(uri)) for uri in entry.triggered_by)) if entry.triggered_by else None
    if clock is None or loads is None:
        return clock or loads
    return AssetOrTimeSchedule(timetable=clock, assets=loads)


def _as_kept(uri: str) -> str:
    """The spelling in which Airflow keeps an asset of this URI; a reference is compared as it is. Pure."""
    try:
        return Asset(uri).uri
    except ValueError:
        return uri  # of no asset that a DAG could declare


def _hours(entry: GraphEntry) -> Hours | None:
    if entry.window.between is None:
        return None
    start, end = hours_of(entry.window.between)
    return Hours(start=start, end=end, timezone=entry.timezone)


def _deadlines(entry: GraphEntry) -> tuple[DeadlineAlert, ...]:
    late, asked = entry.alerts.late, entry.approvals
    wanted: list[tuple[str, int, Sequence[Notifier]]] = []
    if late is not None:
        wanted.append(("late", late.after, late.notify))
    if asked.remind_after is not None:
        wanted.append(("approval reminder", asked.remind_after, asked.notify))
    return tuple(
        DeadlineAlert(
            reference=DeadlineReference.DAGRUN_QUEUED_AT,
            interval=timedelta(seconds=after),
            callback=deadline_callback(notifiers),
            name=name,
        )
        for name, after, notifiers in wanted
    )


def _defaults(entry: GraphEntry) -> dict[str, Any]:
    """Where the trigger form of this graph starts. Pure."""
    standing = entry.approvals.cleanup
    return {
        **entry.retention.model_dump(mode="json"),
        **entry.budget.model_dump(mode="json"),
        **entry.optimize.model_dump(mode="json", exclude={"executor", "spark_threshold"}),
        "spark_threshold": _spark_threshold(entry),
        "quiet_seconds": entry.window.quiet_for,
        "evidence": entry.evidence.value,
        "standing_approval": standing and standing.model_dump(),
    }


def _spark_threshold(entry: GraphEntry) -> int | None:
    """From how many bytes on rewrites run on Spark; None: the deployment's setting. Pure."""
    said = entry.optimize
    if said.executor == "auto":
        return said.spark_threshold
    return 0 if said.executor == "spark" else NEVER_ON_SPARK


def _doc(entry: GraphEntry) -> str:
    """The page about the DAG in the UI. Pure."""
    lines = [
        f"# Nightly maintenance of {entry.name}",
        entry.description or "",
        f"- target: `{entry.place}`",
        f"- connection: `{entry.connection or 'none, the environment'}`",
        f"- described in the graphs file under `graphs.{entry.name}`; the form starts from what stands there",
        "",
        f"The stages are those of the DAG `{NIGHTLY}`.",
    ]
    return "\n".join(lines)
