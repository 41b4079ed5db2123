"""Compact the graph manifest and its companions, after the tables of a run."""

from __future__ import annotations

from omnigraph_ops.coordination.fence import INTERNAL_COMPACTION
from omnigraph_ops.coordination.guards import refuse_pending
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.errors import GraphFrozen, OpsError, PublishConflict
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.lance.gateway import CommitConflict, CommitContention
from omnigraph_ops.lance.tables import commit_results, execute_task, plan_tasks
from omnigraph_ops.models.optimize import OptimizePlan, SkipReason, TableStats
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Stopped
from omnigraph_ops.stages.optimize.budget import too_late

_ATTEMPTS = 5


def optimize_internal_last(graph: Graph, plan: OptimizePlan) -> tuple[TableStats, ...]:
    """Compact the internal tables after those of a plan, if its deadline allows; a fault becomes a row. Writes."""
    if too_late(plan.not_after_us):
        return _skipped(graph, SkipReason.DEFERRED_BUDGET)
    try:
        graph.run.check()
        return optimize_internal(graph)
    except Stopped:
        return ()
    except OpsError as error:
        # What the tables did must reach the report whatever happens here.
        return (TableStats(table_key="__manifest", error=str(error)),)


def optimize_internal(graph: Graph) -> tuple[TableStats, ...]:
    """Compact the graph manifest and its companions, or skip them with a token. Writes.

    A foreign commit between a publisher's scan and its merge makes it record a graph version that is
    too low, and nothing repairs that: so this runs only when the settings say that nobody else
    publishes. No index, no sidecar, no lineage, as in the engine.

    Raises:
        PublishConflict: somebody else did publish, again and again.
    """
    if not graph.is_alone():
        return _skipped(graph, SkipReason.NOT_EXCLUSIVE)
    with committer_turn(graph, INTERNAL_COMPACTION) as keeper:
        try:
            refuse_pending(graph)
        except GraphFrozen:
            return _skipped(graph, SkipReason.FROZEN)
        if not graph.is_alone():  # a fence was lifted meanwhile
            return _skipped(graph, SkipReason.NOT_EXCLUSIVE)
        return tuple(_compact(graph, key, path, keeper) for key, path in graph.format.internal_tables(graph.context))


def _skipped(graph: Graph, reason: SkipReason) -> tuple[TableStats, ...]:
    keys = graph.format.internal_tables(graph.context)
    return tuple(TableStats(table_key=key, skipped=reason) for key, _ in keys)


def _compact(graph: Graph, key: str, path: str, keeper: LeaseKeeper) -> TableStats:
    for _ in range(_ATTEMPTS):
        dataset = graph.lance.open(graph.context.location.uri(path))
        graph.lance.strip_auto_cleanup(dataset)
        tasks = plan_tasks(dataset, graph.settings.target_rows_per_fragment)
        if not tasks:
            return TableStats(table_key=key)
        results = [execute_task(dataset, task.payload) for task in tasks]
        unit = Unit(name=key, stage="optimize", table_key=key, table_path=path, version=int(dataset.version))
        graph.run.begins(unit)
        keeper.assert_held()
        try:
            metrics = commit_results(dataset, results)
        except (CommitConflict, CommitContention):
            graph.run.ended(unit, None)
            continue
        stats = TableStats(
            table_key=key,
            fragments_removed=metrics.fragments_removed,
            fragments_added=metrics.fragments_added,
            committed=True,
        )
        graph.run.ended(unit, stats)
        return stats
    raise PublishConflict(
        f"internal-table compaction of {key} exhausted {_ATTEMPTS} retries against concurrent writers; "
        "nothing is lost; run again when nobody else publishes"
    )
