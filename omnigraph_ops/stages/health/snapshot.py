"""How a graph stands before and after a run. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models import HealthReport, TableHealth
from omnigraph_ops.models.history import Measured
from omnigraph_ops.outcomes.history.results import Snapshot
from omnigraph_ops.stages.health.read import health


def versions_now(graph: Graph) -> Snapshot:
    """The version of the graph and of every table: one look at what is published. Reads."""
    state = graph.state()
    tables = tuple((e.table_key, Measured(version=e.version)) for e in state.entries)
    return Snapshot(graph=Measured(version=_version(graph, state.manifest_version)), tables=tables)


def everything_now(graph: Graph) -> Snapshot:
    """Versions and health of every maintained table: metadata and one listing per table. Reads."""
    versions = versions_now(graph)
    report = health(graph)
    published = dict(versions.tables)
    tables = tuple((t.table_key, _measured(t, published.get(t.table_key, Measured()).version)) for t in report.tables)
    return Snapshot(graph=_sum(report, versions.graph.version), tables=tables)


def look(at: Callable[[Graph], Snapshot], graph: Graph) -> Snapshot:
    """What can be seen; a graph that cannot be read has its record nevertheless. Reads."""
    try:
        return at(graph)
    except OpsError:
        return Snapshot()


def _version(graph: Graph, manifest_version: int) -> int | None:
    """Plain Lance has tables and no version of the whole. Pure."""
    return manifest_version if graph.format.publishes else None


def _measured(table: TableHealth, version: int | None) -> Measured:
    if table.error is not None:
        return Measured(version=version)
    return Measured(
        version=version,
        rows=table.rows,
        fragments=table.fragments,
        data_bytes=table.data_bytes,
        dead_bytes=table.dead_bytes,
        versions=table.versions,
        deleted_share=table.deleted_share,
        unindexed_share=table.unindexed_share,
        score=table.score,
    )


def _sum(report: HealthReport, version: int | None) -> Measured:
    """The graph as a whole; shares are those of its rows. Pure."""
    tables = [t for t in report.tables if t.error is None]
    dead = [t.dead_bytes for t in tables if t.dead_bytes is not None]
    return Measured(
        version=version,
        rows=sum(t.rows for t in tables),
        fragments=sum(t.fragments for t in tables),
        data_bytes=sum(t.data_bytes for t in tables),
        dead_bytes=sum(dead) if dead else None,
        versions=sum(t.versions for t in tables),
        deleted_share=_mean((t.deleted_share, t.rows) for t in tables),
        unindexed_share=_mean((t.unindexed_share, t.rows) for t in tables),
        score=report.score,
    )


def _mean(shares: Iterable[tuple[float, int]]) -> float | None:
    told = tuple(shares)
    rows = sum(weight for _, weight in told)
    return round(sum(share * weight for share, weight in told) / rows, 6) if rows else None
