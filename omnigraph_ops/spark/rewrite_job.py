"""The job `rewrite`: optimize a table whose rewrites fill the cluster, or many small ones, each in one worker.

The job `measure` times the first of these for `calibrate`.

One Lance task is one Spark task. Index work goes to tasks, too, on the clone of the run (docs/adr/0023): an index is
folded or made in a task. One that is made anew from all rows, and whose column is large enough, is made in a task for
each group of fragments, and joined in one. Nothing of it is in the table before the driver commits it.
"""

from __future__ import annotations

import contextlib
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from pyspark import SparkContext
from pyspark.sql import SparkSession

from omnigraph_ops.config.settings import MIB, Settings
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome, perform
from omnigraph_ops.coordination.slots import in_slots
from omnigraph_ops.errors import GraphFrozen, OpsError, RecoveryPending, StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lance.commits import segment_ids
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.rewrites import TaskLimits
from omnigraph_ops.lance.tables import column_bytes, index_facts
from omnigraph_ops.models.optimize import (
    Executor,
    IndexBuild,
    IndexFold,
    OptimizeReport,
    Seconds,
    SkipReason,
    TablePlan,
    TableStats,
)
from omnigraph_ops.parallel import Lot, deal
from omnigraph_ops.progress import SILENT, About, Lines, Progress
from omnigraph_ops.quantities import count
from omnigraph_ops.requests import from_words
from omnigraph_ops.spark.job import Job, attempt, open_table, run_tasks, tries_of
from omnigraph_ops.stages.optimize.index_work import Fragments, IndexWriter, NewIndex, fold, groups_of, made_anew
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize
from omnigraph_ops.stages.optimize.stage import OptimizeRequest
from omnigraph_ops.stages.optimize.units import Effort
from omnigraph_ops.stages.recovery.recover import recover

_LOTS_PER_CORE = 2
"""The last lots to end are short beside the job, and few enough that their tables are published together."""


def _rewrite(spark: SparkSession, arguments: Namespace) -> OptimizeReport:
    """Optimize the tables; of several, one that fails carries its error in its row. Writes."""
    request = from_words(OptimizeRequest, arguments.request)
    graph, keys = open_graph(arguments.graph, request.settings(Settings.from_env())), arguments.table
    _settle(graph)
    context = spark.sparkContext
    if len(keys) == 1:
        return OptimizeReport.of(graph.uri, [_alone(context, graph, keys[0])])
    rows = {row.table_key: row for row in _every(context, graph, keys)}
    again = [row.table_key for row in rows.values() if row.error is not None]
    if again:
        # What a worker that died left is in their way perhaps, or another run was.
        _settle(graph)
        rows |= {row.table_key: row for row in _every(context, graph, again)}
    return OptimizeReport.of(graph.uri, [rows[key] for key in keys])


def _settle(graph: Graph) -> None:
    """Finish what a killed process left; the sidecars of live writers are left to them. Writes."""
    if sidecar_names(graph.storage):
        recover(graph)


def _every(context: SparkContext, graph: Graph, keys: Sequence[str]) -> Iterable[TableStats]:
    """The rows of the tables, first of those that are optimized whole in a worker. Writes."""
    live = {entry.table_key for entry in graph.state().entries}  # one that was dropped meanwhile is an error of its own
    plan = plan_optimize(graph, tables=[key for key in keys if key in live])
    large = {t.table_key for t in plan.productive() if t.cost_bytes >= graph.settings.small_table_bytes}
    lots = deal([key for key in keys if key not in large], lots=_LOTS_PER_CORE * max(context.defaultParallelism, 1))
    if lots:
        yield from _in_workers(context, graph, lots)
    # Side by side: the tasks of one fill what those of another leave, and their indexes are built meanwhile.
    work = partial(_isolated, partial(_on_executors, context), graph)
    yield from in_slots(graph, work, [key for key in keys if key in large])


def _in_workers(context: SparkContext, graph: Graph, lots: Sequence[Lot]) -> Iterable[TableStats]:
    """The rows of tables that are optimized whole, a lot in each task. Writes."""
    try:
        done = run_tasks(context, partial(optimize_on_worker, graph.target, graph.settings), lots)
    except StorageError as error:
        # With it went what the other tasks had to tell.
        why = f"{error}; it is as it was or optimized whole, and another optimize finds which"
        done = [tuple(TableStats(table_key=key, error=why) for key in lot) for lot in lots]
    return chain.from_iterable(done)


def _alone(context: SparkContext, graph: Graph, table_key: str) -> TableStats:
    """The row of the one table of a submit. Writes."""
    try:
        return _on_executors(context, graph, table_key)
    except RecoveryPending:
        # The driver of another submit was killed meanwhile, between its commit and its publish.
        _settle(graph)
        return _on_executors(context, graph, table_key)


def _on_executors(context: SparkContext, graph: Graph, table_key: str) -> TableStats:
    progress = About(Lines(partial(print, flush=True)), table_key)
    return optimize_table(graph, table_key, executor=SparkExecutor(context), progress=progress)


def optimize_on_worker(target: str, settings: Settings, lot: Lot) -> tuple[TableStats, ...]:
    """Optimize the tables of a lot in this worker, whole; windows that wait together share a publish. Writes.

    A worker that is lost has its lot done again, where what was published needs nothing more.
    """
    graph = open_graph(target, settings)
    rows = in_slots(graph, partial(_isolated, optimize_table, graph), lot)
    return tuple(replace(row, executor=Executor.SPARK) for row in rows)


def _isolated(work: Callable[[Graph, str], TableStats], graph: Graph, table_key: str) -> TableStats:
    try:
        return work(graph, table_key)
    except GraphFrozen:  # before its work began
        return TableStats(table_key=table_key, skipped=SkipReason.FROZEN)
    except OpsError as error:
        return TableStats(table_key=table_key, error=str(error))


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--graph", required=True, help="path or s3:// URI, as every executor reaches it")
    parser.add_argument("--table", required=True, action="append", help="table key, e.g. node:Person; more than once")
    parser.add_argument("--request", default="{}", help='what else is asked of optimize, e.g. {"policy": "tiered"}')


REWRITE = Job(name="rewrite", summary="Optimize tables.", subject="graph", arguments=_arguments, work=_rewrite)


def _measure(spark: SparkSession, arguments: Namespace) -> Seconds:
    """Optimize the one table below each root, one after the other: the start of a session varies by more. Writes."""
    seconds = list[float]()
    for root in arguments.roots:
        graph = open_graph(root)
        (entry,) = graph.state().entries
        started = time.perf_counter()
        optimize_table(graph, entry.table_key, executor=SparkExecutor(spark.sparkContext))
        seconds.append(time.perf_counter() - started)
    return Seconds(of_each=tuple(seconds))


MEASURE = Job(
    name="measure",
    summary="Time rewrites of generated tables, for `calibrate`.",
    subject="roots",
    arguments=lambda parser: parser.add_argument("roots", nargs="+", help="the folders of one table each"),
    work=_measure,
)


# With one thread per task these bound a worker's memory whatever the size of the table.
_BATCH_ROWS = 4096
_IO_BUFFER_BYTES = 128 * MIB


class SparkExecutor:
    """Executes tasks in Spark's Python workers.

    A worker journals its result before it returns, so a driver that dies loses nothing. Retried and
    speculative tasks write files and journal entries of their own; only what Spark accepts is committed, and
    the rest is removed by name. What comes back to the driver is the name of a result, never the result.
    """

    kind = Executor.SPARK

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        """One outcome per order; raises `StorageError` if Spark gives up the job. Writes data files and the journal."""
        conf = self._context.getConf()
        limits = TaskLimits(
            num_threads=int(conf.get("spark.task.cpus", "1")),
            batch_size=_BATCH_ROWS,
            io_buffer_size=_IO_BUFFER_BYTES,
        )
        tries = tries_of(self._context)
        work = partial(execute_on_worker, str(dataset.uri), int(dataset.version), limits, tries)
        yield from run_tasks(self._context, work, orders)

    def index(self, graph: Graph, clone: Dataset, plan: TablePlan, effort: Effort, progress: Progress) -> None:
        """Each index in a task, or in several; what no task did, here. Writes index files in the clone."""
        done = work_in_tasks(self._context, graph, clone, plan, progress)
        effort.folded += [index.name for index in plan.folds if index.name in done]
        effort.built += [index.name for index in plan.builds if index.name in done]
        left = replace(
            plan,
            folds=tuple(index for index in plan.folds if index.name not in done),
            builds=tuple(index for index in plan.builds if index.name not in done),
        )
        fold(IndexWriter.of(graph), clone, left, lambda: None, effort, progress)


def execute_on_worker(uri: str, version: int, limits: TaskLimits, tries: int, order: TaskOrder) -> TaskOutcome:
    """Open the dataset in this worker and run one task. Writes data files and the journal.

    A task that fails for the last time says so instead of raising: else Spark would give up the other tasks with it.
    """
    try:
        dataset = open_table(uri, version)
        return perform(order, dataset, limits)
    except OpsError as error:
        if attempt() + 1 < tries:
            raise
        return TaskOutcome(error=str(error))


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
    new: NewIndex | None = None
    """What it found of an index in parts; None where it is one task."""
    part: str = ""
    """What it made, where that is a part."""
    error: str | None = None


Order = IndexFold | IndexBuild | WholeIndex | IndexPart | JoinedParts
"""A fold or build by itself is of an index that may be made in parts: the task finds what all of them need, as the
centroids of its vectors."""


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
    shared = partial(index_on_worker, graph.target, graph.settings, str(clone.uri), int(clone.version))
    found = [index for index in indexes if len(groups[index.name]) > 1]
    # What is wrong with one of them, its own task says.
    new = {done.name: done.new for done in _in_job(context, partial(shared, {}), found) if done.new}
    parts = [IndexPart(name=name, fragments=group) for name in new for group in groups[name]]
    orders: list[Order] = [*parts, *(_whole(plan, index) for index in indexes if index.name not in new)]
    if len(orders) < 2:
        return frozenset()
    cut = f", {count(len(parts), 'part')} of {', '.join(new)}" if parts else ""
    progress(f"folding and building {count(len(indexes), 'index', 'indexes')} in tasks{cut}")
    work = partial(shared, new)
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


def _whole(plan: TablePlan, index: IndexFold | IndexBuild) -> WholeIndex:
    folds, builds = ((index,), ()) if isinstance(index, IndexFold) else ((), (index,))
    return WholeIndex(name=index.name, plan=replace(plan, folds=folds, builds=builds))


def _in_job(
    context: SparkContext, work: Callable[[Order], IndexTaskOutcome], orders: Sequence[Order]
) -> list[IndexTaskOutcome]:
    if not orders:
        return []
    try:
        return run_tasks(context, work, orders)
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
        return _perform(graph, uri, since, new, order)
    except OpsError as error:
        done = isinstance(order, WholeIndex | JoinedParts) and _has_been_done(graph, uri, since, order.name)
        return IndexTaskOutcome(name=order.name, error=None if done else str(error))


def _perform(graph: Graph, uri: str, since: int, new: Mapping[str, NewIndex], order: Order) -> IndexTaskOutcome:
    writer = IndexWriter.of(graph)
    if isinstance(order, IndexFold | IndexBuild):
        found = made_anew(writer, graph.lance.open(uri, version=since), order)
        return IndexTaskOutcome(name=order.name, new=found)
    if isinstance(order, IndexPart):
        part = writer.part(graph.lance.open(uri, version=since), new[order.name], order.fragments)
        return IndexTaskOutcome(name=order.name, part=part)
    clone = graph.lance.open(uri)
    if not _is_done(graph, clone, since, order.name):
        if isinstance(order, JoinedParts):
            writer.join(clone, new[order.name], order.parts)
        else:
            fold(writer, clone, order.plan, lambda: None, Effort(), SILENT)
    return IndexTaskOutcome(name=order.name)


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
