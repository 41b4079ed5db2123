"""The asset of a maintained graph: what an update of it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

from omnigraph_airflow.hooks.omnigraph import OmnigraphHook
from omnigraph_airflow.operators.base import pull_list
from omnigraph_ops.errors import OpsError

if TYPE_CHECKING:
    from airflow.sdk import Context


def maintained_asset(name: str) -> Asset:
    """The asset that a good night of this graph updates. Pure."""
    return Asset(name=f"omnigraph://{name}", uri=f"omnigraph://{name}")


def describe_outlets(context: Context, result: Any = None) -> None:
    """Put the graph's version and the statistics of the run into its asset event. Reads the graph."""
    assets = context["task"].outlets
    if not assets:
        return
    extra = {"run_id": context["run_id"], **_version(context["task"].graph), **_statistics(context)}
    for asset in assets:
        context["outlet_events"][asset].extra.update(extra)


def _version(graph: str) -> dict[str, Any]:
    """The version that readers of the graph see now, None where it has none or cannot be read. Reads."""
    try:
        opened = OmnigraphHook(graph).get_conn()
        state = opened.state()
    except OpsError:
        return {"manifest_version": None, "tables": None}
    version = state.manifest_version if opened.format.publishes else None
    return {"manifest_version": version, "tables": len(state.entries)}


def _statistics(context: Context) -> dict[str, Any]:
    ti = context["ti"]
    report = ti.xcom_pull(task_ids=ti.task_id, key="report") or {}
    optimized = ti.xcom_pull(task_ids="summarize") or {}
    tables = optimized.get("tables", [])
    cleaned = [stats for stats in pull_list(context, "cleanup_table") if isinstance(stats, dict)]
    return {
        "outcome": report.get("outcome"),
        "tables_optimized": sum(1 for t in tables if t.get("committed")),
        "fragments_removed": sum(t.get("fragments_removed") or 0 for t in tables),
        "fragments_added": sum(t.get("fragments_added") or 0 for t in tables),
        "bytes_rewritten": sum(t.get("bytes_rewritten") or 0 for t in tables),
        "versions_removed": sum(s.get("old_versions_removed") or 0 for s in cleaned),
        "bytes_reclaimed": sum(s.get("bytes_removed") or 0 for s in cleaned),
    }
