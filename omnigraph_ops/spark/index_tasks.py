"""Index work of a table in tasks, on the clone of the run (docs/adr/0023).

An index is folded or made in a task. One that is made anew from all rows, and whose column is large enough, is made in
a task for each group of fragments, and joined in one. Nothing of it is in the table before the driver commits it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark import SparkContext

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.commits import segment_ids
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.index_parts import Fragments, NewIndex, groups_of
from omnigraph_ops.lance.tables import column_bytes, index_facts
from omnigraph_ops.models.optimize import IndexBuild, IndexFold, TablePlan
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.spark.job import in_tasks, spark_errors
from omnigraph_ops.stages.optimize.index_work import IndexWriter, fold, made_anew
from omnigraph_ops.stages.optimize.units import Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeIndex:
    """One index in one task, which commits it to the clone."""

    name: str
    plan: TablePlan
    """With this index alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPart:
    """The part of an index from some fragments; nothing refers to what the task writes."""

    name: str
    fragments: Fragments


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedParts:
    """The parts of an index, which a task joins and commits to the clone."""

    name: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTaskOutcome:
    """What a task came to."""

    name: str
    """Of the index."""
    part: str = ""
    """What it made, where that is a part."""
    error: str | None = None


Order = WholeIndex | IndexPart | JoinedParts


def work_in_tasks(
    context: SparkContext, graph: Graph, clone: Dataset, plan: TablePlan, progress: Progress
) -> frozenset[str]:
    """Do the index work of a plan in tasks, unless it is a single one; names of those done. Commits to the clone.

    Args:
        clone: of the table, which executors reach; afterwards it is open at its newest version.
    """
    indexes: list[IndexFold | IndexBuild] = [*plan.folds, *plan.builds]
    most = _most_parts(clone, indexes, context.defaultParallelism, graph.settings.small_table_bytes)
    groups = {index.name: groups_of(clone, most=most[index.name]) for index in indexes}
    anew = ((index.name, _new(graph, clone, index, groups[index.name])) for index in indexes)
    new = {name: index for name, index in anew if index is not None}
    parts = [IndexPart(name=name, fragments=group) for name in new for group in groups[name]]
    orders: list[Order] = [*parts, *(_whole(plan, index) for index in indexes if index.name not in new)]
    if len(orders) < 2:
        return frozenset()
    cut = f", {len(parts)} parts of {', '.join(new)}" if parts else ""
    progress(f"folding and building {'1 index' if len(indexes) == 1 else f'{len(indexes)} indexes'} in tasks{cut}")
    work = in_tasks(partial(index_on_worker, graph.target, graph.settings, str(clone.uri), int(clone.version), new))
    made = _in_job(context, work, orders)
    problems = {done.name: done.error for done in made if done.error is not None}
    joint = [
        JoinedParts(name=name, parts=tuple(done.part for done in made if done.name == name))
        for name in new
        if name not in problems
    ]
    problems |= {done.name: done.error for done in _in_job(context, work, joint) if done.error is not None}
    for name, problem in problems.items():
        progress(f"index {name} was not done in its task, it is done here: {problem}")
    clone.checkout_latest()  # type: ignore[no-untyped-call]
    return frozenset(order.name for order in orders if order.name not in problems)


def _most_parts(
    clone: Dataset, indexes: Sequence[IndexFold | IndexBuild], cores: int, least_bytes: int
) -> dict[str, int]:
    """In how many parts each of these indexes may be made, by name. Reads file metadata, where there are cores for it.

    Joining costs a sixth to a third of what building costs, so parts are for cores that no index of this table has.

    Args:
        least_bytes: what the column has in a part at least, as it is stored.
    """
    spare = cores // max(len(indexes), 1)
    if spare < 2:
        return {index.name: 1 for index in indexes}
    columns = {index.name: index.column if isinstance(index, IndexBuild) else index.columns[0] for index in indexes}
    sizes = dict[str, int]()
    with contextlib.suppress(OpsError):  # what cannot be measured is one task
        sizes = column_bytes(clone, frozenset(columns.values()))
    return {name: min(spare, sizes.get(column, 0) // max(least_bytes, 1)) for name, column in columns.items()}


def _new(graph: Graph, clone: Dataset, index: IndexFold | IndexBuild, groups: Sequence[Fragments]) -> NewIndex | None:
    """The index as all parts of it are made; None where it is one task. Reads; trains a vector index on a sample."""
    if len(groups) < 2:
        return None
    try:
        return made_anew(IndexWriter.of(graph), clone, index)
    except OpsError:
        return None  # what is wrong with it, its task says


def _whole(plan: TablePlan, index: IndexFold | IndexBuild) -> WholeIndex:
    folds, builds = ((index,), ()) if isinstance(index, IndexFold) else ((), (index,))
    return WholeIndex(name=index.name, plan=replace(plan, folds=folds, builds=builds))


def _in_job(
    context: SparkContext, work: Callable[[Order], IndexTaskOutcome], orders: Sequence[Order]
) -> list[IndexTaskOutcome]:
    if not orders:
        return []
    try:
        with spark_errors():
            return context.parallelize(orders, len(orders)).map(work).collect()
    except OpsError as error:
        # A worker that was lost too often, say. What its tasks committed to the clone is done once more, here.
        return [IndexTaskOutcome(name=order.name, error=str(error)) for order in orders]


def index_on_worker(  # noqa: PLR0917 - what the tasks of a job share, and the order
    target: str, settings: Settings, uri: str, since: int, new: Mapping[str, NewIndex], order: Order
) -> IndexTaskOutcome:
    """Fold or make one index or a part of it, in this worker. Writes to the clone, never to the table.

    An attempt of this task that was lost, or another one at work right now, may have done it: one commit is enough.

    Args:
        new: the indexes that are made in parts, by name; once for all tasks, because of their centroids.
    """
    graph = open_graph(target, settings)
    try:
        return IndexTaskOutcome(name=order.name, part=_perform(graph, uri, since, new, order))
    except OpsError as error:
        done = not isinstance(order, IndexPart) and _has_been_done(graph, uri, since, order.name)
        return IndexTaskOutcome(name=order.name, error=None if done else str(error))


def _perform(graph: Graph, uri: str, since: int, new: Mapping[str, NewIndex], order: Order) -> str:
    writer = IndexWriter.of(graph)
    if isinstance(order, IndexPart):
        return writer.part(graph.lance.open(uri, version=since), new[order.name], order.fragments)
    clone = graph.lance.open(uri)
    if not _is_done(graph, clone, since, order.name):
        if isinstance(order, JoinedParts):
            writer.join(clone, new[order.name], order.parts)
        else:
            fold(writer, clone, order.plan, lambda: None, Effort(), SILENT)
    return ""


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
