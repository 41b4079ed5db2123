"""The journal of a rewrite: what was planned, who works on it, and every result as it is finished, as small files.

    __maintenance/rewrites/<table>/lease-<number>.json      who rewrites the table right now
    __maintenance/rewrites/<table>/<ulid>/plan.json         written before the first task executes
    __maintenance/rewrites/<table>/<ulid>/task-<n>.<attempt>.json

A result is written by the process that executed it, under a name of its own: two attempts at one task never
meet. The folder of the table says which table it is, so a damaged plan is still known to be that table's.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from omnigraph_ops import serde
from omnigraph_ops.coordination.lease import LeaseKeeper, LeasePlace, Pause, committer_lease
from omnigraph_ops.coordination.pace import Ceilings, admitted
from omnigraph_ops.coordination.state import REWRITES_DIR
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import is_ulid
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.rewrites import TaskLimits, limited, result_files, with_sizes
from omnigraph_ops.lance.tables import execute_task
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.storage.inventory import files_in, folders_in
from omnigraph_ops.storage.store import Storage


class Fate(StrEnum):
    """What becomes of a task."""

    COMMITTED = "committed"
    """Its result is in the table: it is never committed again."""
    FINISHED = "finished"
    """Its result can be committed as it is."""
    TODO = "todo"
    """Nothing usable was finished, and its fragments are all still there: it executes."""
    LOST = "lost"
    """Its fragments changed: what is there now is planned anew."""


_PLAN = "plan.json"
# No folder of a graph's tables is called so; a plain dataset lies directly below the root.
_PLAIN = "plain."
_ATTEMPT = re.compile(r"task-(\d{1,9})\.([0-9a-f]{12})\.json")
_READERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalTask:
    """One planned compaction task."""

    index: int
    fragment_ids: tuple[int, ...]
    source_bytes: int
    payload: str
    """Lance's JSON of the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteJournal:
    """What a rewrite set out to do."""

    rewrite_id: str
    table_key: str
    table_path: str
    read_version: int
    tasks: tuple[JournalTask, ...]
    created_at_us: int
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFile:
    """A file that a task wrote, relative to the graph."""

    path: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The name of one finished execution of a task."""

    index: int
    attempt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTask:
    """One finished execution of a task."""

    index: int
    attempt: str
    result: str
    """Lance's JSON of the RewriteResult."""
    files: tuple[MadeFile, ...]
    digest: str = ""
    """Of the rest, in the file: no proof of rows would find one wrong column. Earlier releases wrote none."""

    @property
    def name(self) -> Attempt:
        return Attempt(index=self.index, attempt=self.attempt)


def decide(
    done: Sequence[FinishedTask], *, fits: bool, referenced: Collection[str], whole: Collection[MadeFile]
) -> tuple[Fate, Attempt | None]:
    """The fate of a task, and which execution of it is committed or is used. Pure.

    Args:
        done: its finished executions.
        fits: whether the current version still holds its fragments as they were.
        referenced: the files, among those that the journal names, that some version refers to.
        whole: those that are there with their sizes.
    """
    committed = next((f.name for f in done if any(file.path in referenced for file in f.files)), None)
    if committed is not None:
        return Fate.COMMITTED, committed
    if not fits:
        return Fate.LOST, None
    usable = next((f.name for f in done if all(file in whole for file in f.files)), None)
    return (Fate.TODO if usable is None else Fate.FINISHED), usable


def summary(fates: Iterable[Fate]) -> str:
    """The decisions in a few words, for the log. Pure."""
    counts = Counter(fates)
    return ", ".join(f"{counts[fate]} {fate}" for fate in Fate if counts[fate]) or "nothing planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A note of a finished task whose result is not taken."""

    problem: str
    files: tuple[MadeFile, ...] = ()
    """Those that it names: nobody else does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJournal:
    """A journal as it was found."""

    plan: RewriteJournal | None
    """None when it cannot be read, or when only late results are left."""
    finished: tuple[FinishedTask, ...]
    problems: tuple[str, ...]


def table_folder(table_path: str) -> str:
    """The folder of a table's journals, relative to the graph. Pure."""
    name = table_path.replace("/", ".") if "/" in table_path else f"{_PLAIN}{table_path}"
    return f"{REWRITES_DIR}/{name}"


def table_path_of(folder: str) -> str:
    """The dataset that a folder of journals belongs to; the inverse of `table_folder`. Pure."""
    name = folder.rpartition("/")[2]
    return name.removeprefix(_PLAIN) if name.startswith(_PLAIN) else name.replace(".", "/", 1)


def begin(storage: Storage, journal: RewriteJournal) -> None:
    """Note a rewrite before its first task executes. Writes."""
    storage.write(f"{_folder(journal.table_path, journal.rewrite_id)}/{_PLAN}", serde.dumps(journal).encode())


def record(storage: Storage, table_path: str, rewrite_id: str, finished: FinishedTask) -> None:
    """Note a finished task. Writes."""
    noted = replace(finished, digest=serde.digest(finished))
    storage.write(_attempt_path(table_path, rewrite_id, finished.name), serde.dumps(noted).encode())


def open_journals(storage: Storage, table_path: str) -> tuple[str, ...]:
    """Ids of the rewrites of a table that were not closed, oldest first. Reads."""
    names = (f.rpartition("/")[2] for f in folders_in(storage, table_folder(table_path)))
    return tuple(sorted(name for name in names if is_ulid(name)))


def attempts(storage: Storage, table_path: str, rewrite_id: str) -> tuple[Attempt, ...]:
    """Names of the finished tasks of a journal. Reads."""
    found = (_ATTEMPT.fullmatch(name) for name in storage.list(_folder(table_path, rewrite_id)))
    return tuple(Attempt(index=int(m[1]), attempt=m[2]) for m in found if m is not None)


def read_attempts(
    storage: Storage, table_path: str, rewrite_id: str, names: tuple[Attempt, ...]
) -> tuple[FinishedTask | Unusable, ...]:
    """Each finished task, or why its result is not taken. Reads."""

    def one(name: Attempt) -> FinishedTask | Unusable:
        path = _attempt_path(table_path, rewrite_id, name)
        try:
            noted = serde.from_json(FinishedTask, storage.read(path))
        except (FileNotFoundError, InvalidInput) as error:
            return Unusable(problem=f"{path} cannot be read: {error}")
        finished = replace(noted, digest="")
        if noted.digest and serde.digest(finished) != noted.digest:
            return Unusable(problem=f"{path} is not as its task wrote it", files=noted.files)
        return finished if finished.name == name else Unusable(problem=f"{path} is about another task")

    return tuple(in_parallel(one, names, workers=_READERS))


def read_journal(storage: Storage, table_path: str, rewrite_id: str) -> OpenJournal:
    """A journal with everything in it that can be read. Reads."""
    found = read_attempts(storage, table_path, rewrite_id, attempts(storage, table_path, rewrite_id))
    problems = [f.problem for f in found if isinstance(f, Unusable)]
    plan: RewriteJournal | None = None
    path = f"{_folder(table_path, rewrite_id)}/{_PLAN}"
    try:
        plan = serde.from_json(RewriteJournal, storage.read(path))
    except (FileNotFoundError, InvalidInput) as error:
        problems.append(f"{path} cannot be read: {error}")
    if plan is not None and (plan.table_path, plan.rewrite_id) != (table_path, rewrite_id):
        problems.append(f"{path} is about another rewrite")
        plan = None
    return OpenJournal(
        plan=plan,
        finished=tuple(f for f in found if isinstance(f, FinishedTask)),
        problems=tuple(problems),
    )


def named_files(storage: Storage, table_paths: Collection[str]) -> frozenset[str]:
    """Files that open journals of these tables name. Reads."""
    found: set[str] = set()
    for folder in folders_in(storage, REWRITES_DIR):
        path = table_path_of(folder)
        for rewrite_id in open_journals(storage, path) if path in table_paths else ():
            finished = read_attempts(storage, path, rewrite_id, attempts(storage, path, rewrite_id))
            found |= {file.path for f in finished for file in f.files}
    return frozenset(found)


def close(storage: Storage, table_path: str, rewrite_id: str) -> None:
    """Remove a journal: everything in it is committed or reclaimed. Destroys the journal."""
    storage.delete_tree(_folder(table_path, rewrite_id))


def _folder(table_path: str, rewrite_id: str) -> str:
    return f"{table_folder(table_path)}/{rewrite_id}"


def _attempt_path(table_path: str, rewrite_id: str, name: Attempt) -> str:
    return f"{_folder(table_path, rewrite_id)}/task-{name.index:05d}.{name.attempt}.json"


def rewrite_lease(
    graph: Graph, table_path: str, *, wait_seconds: float | None = None
) -> contextlib.AbstractContextManager[LeaseKeeper]:
    """Be the one run that rewrites a table for the block. Writes under `__maintenance/`.

    By default waits just long enough to tell a dead holder, whose lease runs out, from a live one.

    Raises:
        LeaseHeld: a live run rewrites the table.
    """
    settings = graph.settings
    patience = min(settings.lease_wait_seconds, settings.lease_ttl_seconds + 1)
    return committer_lease(
        graph.storage,
        purpose=f"rewrite of {table_path}",
        ttl_seconds=settings.lease_ttl_seconds,
        wait_seconds=patience if wait_seconds is None else wait_seconds,
        place=lease_place(table_path),
        pause=graph.run.pause,
    )


def lease_place(table_path: str) -> LeasePlace:
    """Where the rewrite lease of a table is. Pure."""
    return LeasePlace(path=f"{table_folder(table_path)}/lease", name=f"the rewrite lease of {table_path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """Everything that a process needs to execute a task and to journal its result."""

    graph_uri: str
    table_path: str
    rewrite_id: str
    index: int
    payload: str
    source_bytes: int
    ceilings: Ceilings
    """What all tasks of the graph together may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """What came of an order. The result itself stays in the journal."""

    name: Attempt | None = None
    """Of the result; None where the task failed."""
    error: str | None = None


def perform(
    order: TaskOrder,
    dataset: Dataset,
    limits: TaskLimits | None = None,
    storage: Storage | None = None,
    pause: Pause | None = None,
) -> TaskOutcome:
    """Execute one task and journal its result. Writes data files and the journal; makes no version.

    Args:
        pause: how to wait for admission; whatever it raises ends the waiting, before the task has begun.
    """
    payload = limited(order.payload, limits)
    storage = storage or Storage(order.graph_uri)
    with admitted(storage, order.ceilings, order.source_bytes, pause):
        result = with_sizes(
            execute_task(dataset, payload), lambda name: storage.stat(f"{order.table_path}/{name}").size
        )
    finished = FinishedTask(
        index=order.index,
        attempt=uuid.uuid4().hex[:12],
        result=result,
        files=tuple(_made(storage, order.table_path, result)),
    )
    record(storage, order.table_path, order.rewrite_id, finished)
    return TaskOutcome(name=finished.name)


def _made(storage: Storage, table_path: str, result: str) -> Iterator[MadeFile]:
    for name in result_files(result):
        path = f"{table_path}/{name}"
        yield MadeFile(path=path, size=storage.stat(path).size)
        # The values of blob columns are files of their own, in a folder that is named after the data file.
        for blob in files_in(storage, path.removesuffix(".lance")):
            yield MadeFile(path=blob.path, size=blob.size)
