"""Begin a rewrite, or go on with one whose run is gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from omnigraph_ops.coordination.lease import process_name
from omnigraph_ops.coordination.rewrites import journal
from omnigraph_ops.coordination.rewrites.journal import Attempt, FinishedTask, JournalTask, OpenJournal, RewriteJournal
from omnigraph_ops.coordination.rewrites.reclaim import intact, referenced
from omnigraph_ops.coordination.rewrites.resume import Fate, SeenAttempt, SeenTask, TaskFate, decide, summary
from omnigraph_ops.coordination.rewrites.work import TaskOrder
from omnigraph_ops.coordination.throttle import ceilings_of
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.ids import new_ulid, now_us
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.errors import LanceFailure
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.rewrites import (
    Current,
    Sources,
    copying,
    current,
    has_large_pages,
    rebased,
    result_sources,
    source_bytes,
    task_sources,
)
from omnigraph_ops.lance.tables import RewriteTask
from omnigraph_ops.models import BinaryCopy
from omnigraph_ops.progress import Progress


@dataclass(slots=True, kw_only=True)
class Round:
    """One journal while it is worked on; mutable because results come in one by one."""

    rewrite_id: str
    orders: tuple[TaskOrder, ...]
    """What is left to execute."""
    finished: list[Attempt] = field(default_factory=list)
    """Results to commit."""
    kept: set[Attempt] = field(default_factory=set)
    """Results that are in the table."""
    adopted: bool = False
    groups: int = field(init=False)
    """How many fragment groups the round commits if all goes well."""

    def __post_init__(self) -> None:
        self.groups = len(self.orders) + len(self.finished)


def _copies(graph: Graph, entry: TableEntry) -> Callable[[str], bool]:
    """Which tasks of a table are to copy pages. Reads footers of data files."""
    spec, wanted = graph.catalog.get(entry.table_key), graph.settings.binary_copy
    # The values of blob columns lie in files of their own, which copied pages would not name.
    if wanted is BinaryCopy.NEVER or spec is None or spec.blob_columns:
        return lambda _payload: False
    if wanted is BinaryCopy.ALWAYS:
        return lambda _payload: True
    uri = graph.table_uri(entry)
    return lambda payload: has_large_pages(graph.lance, uri, payload)


def begin(graph: Graph, entry: TableEntry, tasks: Sequence[RewriteTask]) -> Round:
    """Journal a fresh plan. Writes the journal."""
    copies = _copies(graph, entry)
    plan = RewriteJournal(
        rewrite_id=new_ulid(),
        table_key=entry.table_key,
        table_path=entry.path,
        read_version=entry.version,
        tasks=tuple(
            JournalTask(
                index=index,
                fragment_ids=task.fragment_ids,
                source_bytes=source_bytes(task.payload),
                payload=copying(task.payload) if copies(task.payload) else task.payload,
            )
            for index, task in enumerate(tasks)
        ),
        created_at_us=now_us(),
        owner=process_name(),
    )
    journal.begin(graph.storage, plan)
    orders = tuple(_order(graph, entry, plan.rewrite_id, task) for task in plan.tasks)
    return Round(rewrite_id=plan.rewrite_id, orders=orders)


def adopt(graph: Graph, entry: TableEntry, pinned: Dataset, rewrite_id: str, progress: Progress) -> Round:
    """Go on with a journal whose run is gone: what is committed stays, what is finished is used. Reads.

    Tasks execute at the published version and not at the one they were planned for, which may be cleaned up
    by now: their fragments are the same in both.

    Raises:
        OpsError: what the table refers to cannot be told.
    """
    found = journal.read_journal(graph.storage, entry.path, rewrite_id)
    for problem in found.problems:
        progress(f"ignored in the journal of rewrite {rewrite_id}: {problem}")
    now = current(pinned)
    fates = _decide(graph, entry.path, found, now)
    progress(f"resuming rewrite {rewrite_id}: {summary(fates)}")
    planned = {t.index: t for t in found.plan.tasks} if found.plan else {}
    todo = [planned[f.index] for f in fates if f.fate is Fate.TODO and f.index in planned]
    return Round(
        rewrite_id=rewrite_id,
        orders=tuple(_order(graph, entry, rewrite_id, replace(t, payload=rebased(t.payload, now))) for t in todo),
        finished=_chosen(fates, Fate.FINISHED),
        kept=set(_chosen(fates, Fate.COMMITTED)),
        adopted=True,
    )


def _decide(graph: Graph, table_path: str, found: OpenJournal, now: Current) -> list[TaskFate]:
    files = [file for f in found.finished for file in f.files]
    needed, whole = referenced(graph, table_path, files), intact(graph, files)
    executions: dict[int, list[FinishedTask]] = {}
    for finished in found.finished:
        executions.setdefault(finished.index, []).append(finished)
    sources = {f.index: _sources(result_sources, f.result) for f in found.finished}
    sources |= {t.index: _sources(task_sources, t.payload) for t in (found.plan.tasks if found.plan else ())}
    fates = []
    for index, replaced in sorted(sources.items()):
        seen = tuple(
            SeenAttempt(
                attempt=f.attempt,
                files=tuple(file.path for file in f.files),
                intact=all(file in whole for file in f.files),
            )
            for f in executions.get(index, ())
        )
        # What cannot be read replaces nothing that is there: it is lost, and its files go.
        accepts = now.accepts if replaced is not None else lambda _sources: False
        task = SeenTask(index=index, sources=replaced or frozenset(), attempts=seen)
        fates.append(decide(task, accepts, needed))
    return fates


def _sources(read: Callable[[str], Sources], payload: str) -> Sources | None:
    try:
        return read(payload)
    except LanceFailure:
        return None


def _chosen(fates: Sequence[TaskFate], fate: Fate) -> list[Attempt]:
    return [Attempt(index=f.index, attempt=f.chosen) for f in fates if f.fate is fate and f.chosen is not None]


def _order(graph: Graph, entry: TableEntry, rewrite_id: str, task: JournalTask) -> TaskOrder:
    return TaskOrder(
        graph_uri=graph.uri,
        table_path=entry.path,
        rewrite_id=rewrite_id,
        index=task.index,
        payload=task.payload,
        source_bytes=task.source_bytes,
        ceilings=ceilings_of(graph.settings),
    )
