"""Metrics of a run through Airflow's own client, StatsD or OpenTelemetry: whatever the deployment has switched on."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from airflow.sdk.observability import stats

if TYPE_CHECKING:
    from omnigraph_ops.models.history import RunRecord

_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 80


def emit(record: RunRecord, graph: str) -> None:
    """Send what a run left; a metric that cannot be sent is a line in the log. Sends datagrams."""
    prefix = f"omnigraph.{metric_name(graph)}"
    try:
        for name, value in gauges(record).items():
            stats.gauge(f"{prefix}.{name}", value)
        for name, count in counters(record).items():
            stats.incr(f"{prefix}.{name}", count)
    except Exception as error:
        # The run is over and recorded; no monitoring may turn it red.
        logging.getLogger(__name__).warning("The metrics of this run were not sent: %s", error)


def metric_name(graph: str) -> str:
    """One segment of a metric's name: the graph's name in the graphs file, or the last part of its place. Pure."""
    last = graph.rstrip("/").rpartition("/")[2]
    return _NO_NAME.sub("_", last).strip("_")[:_LONGEST] or "graph"


def gauges(record: RunRecord) -> dict[str, float]:
    """How the graph stands after the run; what nobody knows is not sent. Pure."""
    after, work, counts = record.after, record.work, record.counts
    known = {
        "run_seconds": record.seconds,
        "tables_succeeded": counts.succeeded,
        "tables_failed": counts.failed,
        "tables_nothing_to_do": counts.nothing_to_do,
        "tables_interrupted": counts.interrupted,
        "rows": after.rows,
        "fragments": after.fragments,
        "versions": after.versions,
        "data_bytes": after.data_bytes,
        "dead_bytes": after.dead_bytes,
        "deleted_share": after.deleted_share,
        "unindexed_share": after.unindexed_share,
        "health_score": after.score,
        "write_amplification": work.write_amplification,
    }
    return {name: value for name, value in known.items() if value is not None}


def counters(record: RunRecord) -> dict[str, int]:
    """What the run did; nothing is sent of what it did not do. Pure."""
    work = record.work
    done = {
        f"runs_{record.outcome.value}": 1,
        "bytes_rewritten": work.bytes_rewritten,
        "bytes_reclaimed": work.bytes_reclaimed,
        "versions_removed": work.versions_removed,
        "files_removed": work.files_removed,
        "preempted": work.preempted or 0,
    }
    return {name: count for name, count in done.items() if count}
