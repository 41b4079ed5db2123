"""Index work in tasks: each index of a table is folded or built by one task, on the clone of the run (ADR 23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark import SparkContext

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.commits import segment_ids
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.tables import index_facts
from omnigraph_ops.models import TablePlan
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.spark.job import spark_errors
from omnigraph_ops.stages.optimize.units import Effort, IndexWriter, fold


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDone:
    """What came of the task of one index."""

    name: str
    error: str | None = None


def work_in_tasks(
    context: SparkContext, graph: Graph, clone: Dataset, plan: TablePlan, progress: Progress
) -> frozenset[str]:
    """Do the index work of a plan in tasks, where it is of several indexes; names of those done. Commits to the clone.

    Args:
        clone: of the table, which executors reach; afterwards it is open at its newest version.
    """
    single = [*(replace(plan, folds=(index,), builds=()) for index in plan.folds)]
    single += [replace(plan, folds=(), builds=(build,)) for build in plan.builds]
    if len(single) < 2:
        return frozenset()
    progress(f"folding and building {len(single)} indexes in tasks")
    work = partial(index_on_worker, graph.target, graph.settings, str(clone.uri), int(clone.version))
    outcomes = _collected(context, work, single)
    for outcome in outcomes:
        if outcome.error is not None:
            progress(f"index {outcome.name} was not done in its task, it is done here: {outcome.error}")
    clone.checkout_latest()  # type: ignore[no-untyped-call]
    return frozenset(outcome.name for outcome in outcomes if outcome.error is None)


def _collected(context: SparkContext, work: partial[IndexDone], plans: Sequence[TablePlan]) -> list[IndexDone]:
    try:
        with spark_errors():
            return list(context.parallelize(plans, len(plans)).map(work).collect())
    except OpsError as error:
        # A worker that was lost too often, say. What its tasks committed to the clone is done once more, here.
        return [IndexDone(name=_name(plan), error=str(error)) for plan in plans]


def index_on_worker(target: str, settings: Settings, uri: str, since: int, plan: TablePlan) -> IndexDone:
    """Fold or build one index in the clone, in this worker. Commits to the clone, and never to the table.

    An attempt of this task that was lost, or another one at work right now, may have done it: one commit is enough.
    """
    name, graph = _name(plan), open_graph(target, settings)
    try:
        clone = graph.lance.open(uri)
        if not _is_done(graph, clone, since, name):
            fold(IndexWriter.of(graph), clone, plan, lambda: None, Effort(), SILENT)
    except OpsError as error:
        return IndexDone(name=name, error=None if _has_been_done(graph, uri, since, name) else str(error))
    return IndexDone(name=name)


def _has_been_done(graph: Graph, uri: str, since: int, name: str) -> bool:
    try:
        return _is_done(graph, graph.lance.open(uri), since, name)
    except OpsError:
        return False


def _is_done(graph: Graph, clone: Dataset, since: int, name: str) -> bool:
    """Whether a commit to the clone left the index in one segment that covers all fragments. Reads."""
    before = graph.lance.open(str(clone.uri), version=since)
    if segment_ids(clone, (name,)) == segment_ids(before, (name,)):
        return False
    found = next((index for index in index_facts(clone) if index.name == name), None)
    fragments = {f.fragment_id for f in clone.get_fragments()}
    return found is not None and found.segments == 1 and fragments <= found.covered


def _name(plan: TablePlan) -> str:
    (name,) = (*(index.name for index in plan.folds), *(index.name for index in plan.builds))
    return name
