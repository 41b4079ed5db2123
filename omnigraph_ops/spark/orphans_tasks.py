"""What the tasks of the job `orphans` do: read references, list what is stored, and judge one against the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import islice
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.references import Reference, read_branches, stream_references
from omnigraph_ops.lance.gateway import BranchRef
from omnigraph_ops.models.orphans import PlaceTotal, PlanPart
from omnigraph_ops.spark.job import found_row
from omnigraph_ops.stages.orphans.candidates import MOST_IN_PART, Candidate, Folders, Sorted, Totals, put_part
from omnigraph_ops.stages.orphans.inventory_file import Inventory, Piece
from omnigraph_ops.stages.orphans.survey import Judge
from omnigraph_ops.storage.inventory import Stored, below_folder
from omnigraph_ops.storage.parquet import from_parquet, to_parquet
from omnigraph_ops.storage.store import Storage

MOST_IN_SOURCE = 10_000
MOST_UNKNOWN = 1000
"""Unknown files that a plan names, and so each task."""
_BATCH_ROWS = 10_000
_REFERENCES = {"way": "int8", "path": "string"}
_COLUMNS = {
    "point": pa.string(),
    "what": pa.int8(),
    "path": pa.string(),
    "size": pa.int64(),
    "modified_at": pa.float64(),
    "number": pa.int64(),
}
_Row = tuple[str, int, str, int, float, int]
"""In the order of the columns."""


class What(IntEnum):
    """What a row is, beside the ways of a `Reference`, which sort before these."""

    FILE = 10
    SPECIAL = 11
    EMPTY = 12
    """A folder without files."""
    FILLED = 13
    """A folder with files."""
    FOREIGN = 14
    """So many rows of an inventory that are outside of the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencesRead:
    """What a task read of one dataset."""

    path: str
    branches: tuple[BranchRef, ...] = ()
    parts: tuple[str, ...] = ()
    problem: str | None = None
    """Why not all of its references could be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What every task has to know."""

    root: str
    folder: str
    """Where parts are written, relative to the graph."""
    judge: Judge
    """Without the references."""
    cutoff: float
    verify: bool
    """Candidates are looked up in the store."""

    def storage(self) -> Storage:
        """The graph's. Pure."""
        return Storage(self.root)


@dataclass(slots=True, kw_only=True)
class PartSorted:
    """What a task found about its share of the rows; mutable because it takes them batch by batch."""

    sorted: Sorted = field(default_factory=Sorted)
    """In the end without its candidates, which are in `parts`."""
    places: tuple[PlaceTotal, ...] = ()
    references: int = 0
    foreign: int = 0
    unknown_files: int = 0
    parts: list[PlanPart] = field(default_factory=list)
    empty: list[tuple[str, float]] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)


Source = Callable[[Judging], Iterator[_Row]]
"""Where rows come from: one of `reference_rows`, `stored_rows`, `folder_rows` and `inventory_rows`, but for its end."""


def read_references_of(
    target: str, settings: Settings, folder: str, paths: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the references of the datasets with these numbers into parts. Reads, and writes parts."""
    graph = open_graph(target, settings)
    for number in _numbers(batches):
        yield found_row(_put_references(graph, folder, number, paths[number]))


def _put_references(graph: Graph, folder: str, number: int, path: str) -> ReferencesRead:
    """Read the references of a dataset into parts; one that cannot be written fails the task. Reads, and writes."""
    attempt, parts = uuid4().hex, list[str]()
    try:
        branches = read_branches(graph, path)
        rows = ((way, name) for way, names in stream_references(graph, path, branches) for name in names)
        piece = list(islice(rows, MOST_IN_PART))
    except OpsError as error:
        return ReferencesRead(path=path, problem=str(error))
    while piece:
        name = f"references-{number:06d}-{len(parts):06d}.{attempt}.parquet"
        graph.storage.write(f"{folder}/{name}", to_parquet(_REFERENCES, piece))
        parts.append(name)
        try:
            piece = list(islice(rows, MOST_IN_PART))
        except OpsError as error:
            return ReferencesRead(path=path, problem=str(error))
    return ReferencesRead(path=path, branches=branches, parts=tuple(parts))


def rows_of_sources(
    judging: Judging, sources: Sequence[Source], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of the sources with these numbers. Reads."""
    rows = (row for number in _numbers(batches) for row in sources[number](judging))
    while some := list(islice(rows, _BATCH_ROWS)):
        columns = zip(*some, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _COLUMNS.values(), strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(_COLUMNS))


def _row(judging: Judging, item: Stored, number: int = 0) -> _Row:
    what = What.SPECIAL if item.is_special else What.FILE
    return judging.judge.meeting_point(item.path), what, item.path, item.size, item.modified_at, number


def stored_rows(items: Sequence[Stored], judging: Judging) -> Iterator[_Row]:
    """What is listed already. Pure."""
    return (_row(judging, item) for item in items)


def reference_rows(name: str, judging: Judging) -> Iterator[_Row]:
    """The references in a part of that name. Reads."""
    for row in from_parquet(judging.storage().read(f"{judging.folder}/{name}")):
        way, path = Reference(row["way"]), row["path"]
        yield judging.judge.point_of(way, path), way, path, 0, 0.0, 0


def inventory_rows(inventory: Inventory, piece: Piece, judging: Judging) -> Iterator[_Row]:
    """What an inventory has in a piece of it. Reads."""
    foreign = 0
    for number, stored in inventory.numbered_rows(piece):
        if stored is None:
            foreign += 1
        else:
            yield _row(judging, stored, number)
    yield "", What.FOREIGN, "", foreign, 0.0, 0


def folder_rows(folder: str, judging: Judging) -> Iterator[_Row]:
    """Everything below a folder but what tasks of this plan wrote there. Reads."""
    folders, files = Folders(judge=judging.judge), 0
    for item in below_folder(judging.storage(), folder):
        if item.path.startswith(f"{judging.folder}/"):
            continue
        folders.add(item)
        if not item.is_folder:
            files += 1
            yield _row(judging, item)
    for path, modified_at in folders.empty.items():
        yield path, What.EMPTY, path, 0, modified_at, 0
    if files:
        yield folder, What.FILLED, folder, 0, 0.0, 0


def judge_rows(judging: Judging, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sort the stored files among these rows, which come by point, references first. Reads, and writes parts."""
    context = TaskContext.get()
    number = context.partitionId() if context is not None else 0
    task = _Task(judging=judging, number=number, storage=judging.storage())
    for batch in batches:
        task.take(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    yield found_row(task.end())


@dataclass(slots=True, kw_only=True)
class _Task:
    """Judges rows batch by batch."""

    judging: Judging
    number: int
    storage: Storage
    attempt: str = field(default_factory=lambda: uuid4().hex)
    point: str = ""
    carried: list[tuple[int, str]] = field(default_factory=list)
    """References of the point that the last batch ended with."""
    last: tuple[int, str] = (-1, "")
    found: PartSorted = field(default_factory=PartSorted)
    totals: Totals = field(default_factory=Totals)

    def take(self, rows: Iterable[_Row]) -> None:
        """Judge a batch. Reads, and writes a part when there is enough for one."""
        held = {way: {path for kind, path in self.carried if kind == way} for way in Reference}
        items: list[Stored] = []
        for point, what, path, size, modified_at, _ in rows:
            if point != self.point:
                self.point, self.carried = point, []
            # The same path again: another version refers to it, or an inventory has it twice.
            repeated, self.last = (what, path) == self.last, (what, path)
            if what == What.FOREIGN:
                self.found.foreign += size
            elif repeated:
                continue
            elif what == What.EMPTY:
                self.found.empty.append((path, modified_at))
            elif what == What.FILLED:
                self.found.filled.append(path)
            elif what in (What.FILE, What.SPECIAL):
                items.append(Stored(path=path, size=size, modified_at=modified_at, is_special=what == What.SPECIAL))
            else:
                held[Reference(what)].add(path)
                self.carried.append((what, path))
                self.found.references += what == Reference.EXACT
        self._judge(items, held)

    def end(self) -> PartSorted:
        """What was found. Writes the last part."""
        self._put(self.found.sorted.candidates)
        self.found.sorted.candidates = []
        self.found.places = self.totals.places()
        return self.found

    def _judge(self, items: Sequence[Stored], held: dict[Reference, set[str]]) -> None:
        found, cutoff = self.found, self.judging.cutoff
        references = replace(
            self.judging.judge.references,
            exact=frozenset(held[Reference.EXACT]),
            loose=frozenset(held[Reference.LOOSE]),
            indexes=frozenset(held[Reference.INDEX]),
        )
        judge, some = replace(self.judging.judge, references=references), Sorted()
        for item in items:
            some.add(item, judge, cutoff)
        if self.judging.verify:
            some.verify(self.storage, cutoff)
        self.totals.add(some.candidates)
        found.unknown_files += len(some.unknown)
        seen = found.sorted
        seen.join(some)
        seen.unknown = sorted(seen.unknown, key=lambda u: u.path)[:MOST_UNKNOWN]
        while len(seen.candidates) >= MOST_IN_PART:
            full, seen.candidates = seen.candidates[:MOST_IN_PART], seen.candidates[MOST_IN_PART:]
            self._put(full)

    def _put(self, candidates: Sequence[Candidate]) -> None:
        if candidates:
            name = f"files-{self.number:06d}-{len(self.found.parts):06d}.{self.attempt}.parquet"
            self.found.parts.append(put_part(self.storage, self.judging.folder, name, candidates))


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    return (number for batch in batches for number in batch.column(0).to_pylist())
