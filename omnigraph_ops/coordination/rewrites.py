"""Rewrites that survive their process: begun or gone on with, committed in batches, ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from omnigraph_ops.coordination import rewrite_journal
from omnigraph_ops.coordination.environment import process_name
from omnigraph_ops.coordination.holds import HoldKind, active_holds
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.coordination.pace import ceilings_of
from omnigraph_ops.coordination.rewrite_journal import (
    Attempt,
    Fate,
    FinishedTask,
    JournalTask,
    MadeFile,
    OpenJournal,
    RewriteJournal,
    TaskOrder,
    Unusable,
)
from omnigraph_ops.coordination.state import REWRITES_DIR
from omnigraph_ops.errors import LeaseHeld, OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import Part, data_file_of_blob, lance_file, new_ulid, now_us
from omnigraph_ops.graph.references import read_dataset
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import Dataset, LanceFailure
from omnigraph_ops.lance.reader_limits import swollen
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
from omnigraph_ops.models.optimize import BinaryCopy
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.quantities import count
from omnigraph_ops.storage.inventory import OpsFault, folders_in, look_again, remove_files


def reclaim(graph: Graph, table_path: str, finished: Iterable[FinishedTask | Unusable], keeper: LeaseKeeper) -> int:
    """Remove the files of these results unless some version of the dataset refers to them; how many. Destroys.

    Under the committer lease: nobody commits a result between the look and the removal. `keeper` holds the
    rewrite lease of the table, without which no result of its journals is committed.

    Raises:
        LeaseHeld: a run that may still commit them is not known to be gone; nothing was removed.
        OpsError: what is referenced cannot be told; nothing was removed.
    """
    named = {file for f in finished for file in f.files if _belongs(file, table_path)}
    if not named:
        return 0
    with committer_turn(graph, f"reclaim rewrites of {table_path}"):
        keeper.assert_held()
        _refuse_at_work(graph, table_path)
        needed = referenced(graph, table_path, named)
        lost = sorted(f.path for f in named if f.path not in needed)
        faults = remove_files(graph.storage, lost)
    if faults:
        raise StorageError(f"cannot remove {faults[0].path}: {faults[0].reason}; it is unused, run again")
    return len(lost)


def _refuse_at_work(graph: Graph, table_path: str) -> None:
    """A run that was stopped right before its commit, and lost its leases meanwhile, still needs its files. Reads."""
    holds = (h for h in active_holds(graph.storage) if h.kind is HoldKind.PLAN)
    held = next((h for h in holds if any(v.table_path == table_path for v in h.versions)), None)
    if held is not None:
        raise LeaseHeld(f"the {held.label()} may still commit them")


def referenced(graph: Graph, table_path: str, files: Iterable[MadeFile]) -> frozenset[str]:
    """Those of the files that a version of any branch of the dataset refers to. Reads every manifest of it."""
    paths = {f.path for f in files if _belongs(f, table_path)}
    if not paths or not graph.storage.list(f"{table_path}/_versions"):
        return frozenset()
    known = read_dataset(graph, table_path)
    tails = {path: _data_tail(path, table_path) for path in paths}
    return frozenset(p for p, tail in tails.items() if f"{table_path}/{tail}" in known.exact or tail in known.loose)


def intact(graph: Graph, files: Iterable[MadeFile]) -> frozenset[MadeFile]:
    """Those of the files that are there with their size. Reads."""
    listed = list(files)
    found = look_again(graph.storage, [f.path for f in listed]) if listed else []
    return frozenset(
        file
        for file, now in zip(listed, found, strict=True)
        if now is not None and not isinstance(now, OpsFault) and now.size == file.size
    )


def _belongs(file: MadeFile, table_path: str) -> bool:
    """Whether a journal may name that file at all: data of its own table, of the main chain. Pure."""
    known = lance_file(file.path, (), table_path) if file.path.startswith(f"{table_path}/") else None
    return known is not None and known.branch is None and known.part in {Part.DATA, Part.BLOB}


def _data_tail(path: str, table_path: str) -> str:
    """The data file that keeps a file alive, relative to the dataset: its own, or that of its blob. Pure."""
    tail = path.removeprefix(f"{table_path}/")
    return tail if tail.endswith(".lance") else data_file_of_blob(tail)


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
    left: int = 0
    """How many results readers could not read: they are not committed, and not made again."""
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
    rewrite_journal.begin(graph.storage, plan)
    orders = tuple(_order(graph, entry, plan.rewrite_id, task) for task in plan.tasks)
    return Round(rewrite_id=plan.rewrite_id, orders=orders)


def adopt(graph: Graph, entry: TableEntry, pinned: Dataset, rewrite_id: str, progress: Progress) -> Round:
    """Go on with a journal whose run is gone: what is committed stays, what is finished is used. Reads.

    Tasks execute at the published version and not at the one they were planned for, which may be cleaned up
    by now: their fragments are the same in both.

    Raises:
        OpsError: what the table refers to cannot be told.
    """
    found = rewrite_journal.read_journal(graph.storage, entry.path, rewrite_id)
    for problem in found.problems:
        progress(f"ignored in the journal of rewrite {rewrite_id}: {problem}")
    now = current(pinned)
    fates = _decide(graph, entry.path, found, now)
    progress(f"resuming rewrite {rewrite_id}: {rewrite_journal.summary(fate for fate, _ in fates.values())}")
    planned = {t.index: t for t in found.plan.tasks} if found.plan else {}
    todo = [planned[index] for index, (fate, _) in fates.items() if fate is Fate.TODO and index in planned]
    chosen = {fate: [name for its, name in fates.values() if its is fate and name is not None] for fate in Fate}
    return Round(
        rewrite_id=rewrite_id,
        orders=tuple(_order(graph, entry, rewrite_id, replace(t, payload=rebased(t.payload, now))) for t in todo),
        finished=chosen[Fate.FINISHED],
        kept=set(chosen[Fate.COMMITTED]),
        adopted=True,
    )


def _decide(graph: Graph, table_path: str, found: OpenJournal, now: Current) -> dict[int, tuple[Fate, Attempt | None]]:
    files = [file for f in found.finished for file in f.files]
    needed, whole = referenced(graph, table_path, files), intact(graph, files)
    executions: dict[int, list[FinishedTask]] = {}
    for finished in found.finished:
        executions.setdefault(finished.index, []).append(finished)
    fits = {f.index: _fits(now, result_sources, f.result) for f in found.finished}
    fits |= {t.index: _fits(now, task_sources, t.payload) for t in (found.plan.tasks if found.plan else ())}
    return {
        index: rewrite_journal.decide(executions.get(index, ()), fits=its, referenced=needed, whole=whole)
        for index, its in sorted(fits.items())
    }


def _fits(now: Current, read: Callable[[str], Sources], payload: str) -> bool:
    """Whether what a task or result replaces is there; what cannot be read replaces nothing, and its files go. Pure."""
    try:
        return now.accepts(read(payload))
    except LanceFailure:
        return False


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Results that one unit commits together."""

    results: tuple[str, ...]
    names: tuple[Attempt, ...]
    swollen: tuple[str, ...] = ()
    """Why results are left out, each: readers would fail."""


def batches(names: Sequence[Attempt], size: int) -> Iterator[tuple[Attempt, ...]]:
    """Finished results in the order of their rows, cut into batches; size 0 puts all into one. Pure."""
    # Lance numbers new fragments in the order of the results, and reads rows in that order.
    ordered = sorted(names, key=lambda name: name.index)
    step = size or max(len(ordered), 1)
    for start in range(0, len(ordered), step):
        yield tuple(ordered[start : start + step])


def ready(graph: Graph, entry: TableEntry, rewrite_id: str, names: tuple[Attempt, ...]) -> Batch:
    """Those of the results that fit the published version, whose files are all there, and that readers can read. Reads.

    A commit does not look at the files that it takes in, and one result that does not fit fails all others: so all of
    this is found out before anything is armed.
    """
    pinned = graph.open_pinned(entry)
    now = current(pinned)
    found = rewrite_journal.read_attempts(graph.storage, entry.path, rewrite_id, names)
    fitting = [f for f in found if isinstance(f, FinishedTask) and _fits(now, result_sources, f.result)]
    whole = intact(graph, [file for f in fitting for file in f.files])
    good = [f for f in fitting if all(file in whole for file in f.files)]
    lost = swollen(pinned, [f.result for f in good])
    good = [f for number, f in enumerate(good) if number not in lost]
    return Batch(
        results=tuple(rebased(f.result, now) for f in good),
        names=tuple(f.name for f in good),
        swollen=tuple(lost.values()),
    )


def end(
    graph: Graph,
    table_path: str,
    rewrite_id: str,
    keeper: LeaseKeeper,
    *,
    kept: Collection[Attempt],
    progress: Progress,
) -> bool:
    """Remove the files of every result but those kept, then the journal; False when that has to wait. Destroys."""
    names = tuple(n for n in rewrite_journal.attempts(graph.storage, table_path, rewrite_id) if n not in kept)
    found = rewrite_journal.read_attempts(graph.storage, table_path, rewrite_id, names)
    try:
        removed = reclaim(graph, table_path, found, keeper)
    except OpsError as error:
        progress(f"the journal of rewrite {rewrite_id} stays, with the files it names: {error}")
        return False
    if removed:
        progress(f"removed {count(removed, 'file')} of results that could not be committed")
    rewrite_journal.close(graph.storage, table_path, rewrite_id)
    return True


def abandon(graph: Graph, table_path: str, progress: Progress) -> None:
    """End every journal of a table that has no use for them, unless a live run is at it. Destroys."""
    if not rewrite_journal.open_journals(graph.storage, table_path):
        return
    try:
        with rewrite_journal.rewrite_lease(graph, table_path, wait_seconds=0) as keeper:
            for rewrite_id in rewrite_journal.open_journals(graph.storage, table_path):
                end(graph, table_path, rewrite_id, keeper, kept=(), progress=progress)
    except LeaseHeld as error:
        progress(f"left alone: {error}")


def sweep_rewrites(graph: Graph) -> None:
    """End the journals that no run would go on with: of gone tables, and those with nothing left to do. Destroys."""
    folders = folders_in(graph.storage, REWRITES_DIR)
    if not folders:
        return
    live = {entry.path: entry for entry in graph.state().entries}
    for table_path in map(rewrite_journal.table_path_of, folders):
        if table_path in live:
            _retire(graph, live[table_path])
        elif graph.is_gone(table_path):
            abandon(graph, table_path, SILENT)


def _retire(graph: Graph, entry: TableEntry) -> None:
    """End the journals of a live table whose results are all committed or lost. Destroys."""
    storage = graph.storage
    if entry.branch is not None or not rewrite_journal.open_journals(storage, entry.path):
        return
    with contextlib.suppress(OpsError), rewrite_journal.rewrite_lease(graph, entry.path, wait_seconds=0) as keeper:
        pinned = graph.open_pinned(entry)
        for rewrite_id in rewrite_journal.open_journals(storage, entry.path):
            found = adopt(graph, entry, pinned, rewrite_id, SILENT)
            if found.groups == 0:
                end(graph, entry.path, rewrite_id, keeper, kept=found.kept, progress=SILENT)
