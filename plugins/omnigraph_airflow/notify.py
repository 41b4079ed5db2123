"""Tells others of a run: the notifiers of a graphs file, the asset of the graph, Airflow's metrics."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.observability import stats

from omnigraph_ops.errors import OpsError, first_line
from omnigraph_ops.models.history import RunRecord, Work
from omnigraph_ops.stages.registry import BY_NAME

if TYPE_CHECKING:
    from omnigraph_airflow.run_report import RunFacts
    from omnigraph_ops.config.graph_entries import GraphEntry, Notifier
    from omnigraph_ops.graph import Graph


def maintained_asset(name: str) -> Asset:
    """The asset that a good night of this graph updates. Pure."""
    return Asset(name=f"omnigraph://{name}", uri=f"omnigraph://{name}")


def update_of(facts: RunFacts, graph: Graph, *, run_id: str, outcome: str) -> dict[str, Any]:
    """What the event says: the graph's version, and what the run did. The keys are documented. Reads the graph."""
    tables = facts.optimized.tables if facts.optimized else ()
    outcomes = (facts.outcome_of(stage) for stage in BY_NAME.values())
    work = Work.of(w for done in outcomes if done for w in (done.work, *(table.work for table in done.tables)))
    return {
        "run_id": run_id,
        **_version(graph),
        "outcome": outcome,
        "tables_optimized": sum(t.committed for t in tables),
        "fragments_removed": sum(t.fragments_removed for t in tables),
        "fragments_added": sum(t.fragments_added for t in tables),
        "bytes_rewritten": sum(t.bytes_rewritten for t in tables),
        "versions_removed": work.versions_removed,
        "bytes_reclaimed": work.bytes_reclaimed,
    }


def _version(graph: Graph) -> dict[str, Any]:
    """The version that readers of the graph see now, None where it has none or cannot be read. Reads."""
    try:
        state = graph.state()
    except OpsError:
        return {"manifest_version": None, "tables": None}
    version = state.manifest_version if graph.format.publishes else None
    return {"manifest_version": version, "tables": len(state.entries)}


_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 80


def emit_metrics(record: RunRecord, graph: str) -> None:
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


_log = logging.getLogger(__name__)


class Told:
    """A callback that constructs one notifier and calls it; one that fails fails nothing else."""

    def __init__(self, notifier: str, arguments: Mapping[str, Any]) -> None:
        self.notifier = notifier
        self.arguments = dict(arguments)

    def __call__(self, context: Any) -> None:
        """Send the message. Writes to wherever the notifier does."""
        try:
            _class_of(self.notifier)(**self.arguments)(context)
        except (Exception, SystemExit) as error:
            # The message names the class only: its arguments may hold an address that is a secret.
            _log.error("The notifier %s failed: %s", self.notifier, type(error).__name__)


def _class_of(notifier: str) -> Any:
    """The class of a dotted name. Imports its module."""
    module, _, name = notifier.rpartition(".")
    return getattr(import_module(module), name)


def callbacks(notifiers: Sequence[Notifier]) -> list[Told]:
    """One callback per notifier. Pure."""
    return [Told(n.notifier, n.arguments) for n in notifiers]


def deadline_callback(notifiers: Sequence[Notifier]) -> SyncCallback:
    """The same for a deadline, which keeps its callback as text. Pure."""
    spelled = json.dumps([[n.notifier, n.arguments] for n in notifiers])
    return SyncCallback("omnigraph_airflow.notify.tell_all", kwargs={"notifiers": spelled})


def notifier_faults(graphs: Sequence[GraphEntry]) -> list[str]:
    """What keeps notifiers from being called, each with the first graph that names it. Imports their classes."""
    found: dict[str, str] = {}
    for entry in graphs:
        late = entry.alerts.late.notify if entry.alerts.late else ()
        for notifier in (*entry.approvals.notify, *entry.alerts.on_failure, *late):
            found.setdefault(_fault(notifier), entry.name)
    return [f"graphs.{name}: {fault}" for fault, name in found.items() if fault]


def _fault(notifier: Notifier) -> str:
    """Why the notifier cannot be called, empty where nothing is known against it. Imports its class."""
    try:
        inspect.signature(_class_of(notifier.notifier)).bind(**notifier.arguments)
    except ValueError:
        return ""  # the class does not tell what it takes
    except (Exception, SystemExit) as error:  # of the arguments it has the keys and no values
        return f"the notifier {notifier.notifier} cannot be called, correct it or its `with`: {first_line(error)}"
    return ""


def tell_all(notifiers: str, context: Any) -> None:
    """Call every notifier of a `deadline_callback`. Writes to wherever they do."""
    for notifier, arguments in json.loads(notifiers):
        Told(notifier, arguments)(context)
