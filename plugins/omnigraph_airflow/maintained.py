"""The asset of a maintained graph: what an update of it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

from omnigraph_ops.errors import OpsError
from omnigraph_ops.models.history import Work
from omnigraph_ops.stages.registry import BY_NAME

if TYPE_CHECKING:
    from omnigraph_airflow.run_facts import RunFacts
    from omnigraph_ops.graph import Graph


def maintained_asset(name: str) -> Asset:
    """The asset that a good night of this graph updates. Pure."""
    return Asset(name=f"omnigraph://{name}", uri=f"omnigraph://{name}")


def update_of(facts: RunFacts, graph: Graph | None, *, run_id: str, outcome: str) -> dict[str, Any]:
    """What the event says: the graph's version, and what the run did. The keys are documented. Reads the graph."""
    tables = facts.optimize.tables if facts.optimize else ()
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


def _version(graph: Graph | None) -> dict[str, Any]:
    """The version that readers of the graph see now, None where it has none or cannot be read. Reads."""
    if graph is None:
        return {"manifest_version": None, "tables": None}
    try:
        state = graph.state()
    except OpsError:
        return {"manifest_version": None, "tables": None}
    version = state.manifest_version if graph.format.publishes else None
    return {"manifest_version": version, "tables": len(state.entries)}
