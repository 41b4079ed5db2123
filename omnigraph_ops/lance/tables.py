"""What optimize needs from Lance: facts about a table version, stale entries of its indexes, and its commits."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from lance import optimize as lance_optimize
from lance.file import LanceFileReader
from lance.query import DocumentGranularity

from omnigraph_ops.lance.gateway import SYSTEM_PREFIX, Dataset, LanceFailure, auto_cleanup_keys, lance_errors
from omnigraph_ops.lance.rewrites import RewriteMetrics, metrics_of, with_fragments
from omnigraph_ops.lance.row_ids import with_safe_row_ids

# Shapes of index details that the engine accepts as "this column is indexed", by requested type.
VECTOR_DETAILS, TEXT_DETAILS = "VectorIndexDetails", "InvertedIndexDetails"
_DETAILS = {"BTREE": "BTreeIndexDetails", "INVERTED": TEXT_DETAILS, "IVF_FLAT": VECTOR_DETAILS}
# The wheel's stubs lack the JSON methods of tasks and results, which are what makes them portable.
_Compaction: Any = lance_optimize.Compaction
_CompactionTask: Any = lance_optimize.CompactionTask
_RewriteResult: Any = lance_optimize.RewriteResult


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentFacts:
    """One fragment: physical rows, deleted rows, bytes of its data files."""

    fragment_id: int
    physical_rows: int
    deleted_rows: int
    data_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFacts:
    """One index by name: what it covers is the union over its segments."""

    name: str
    columns: tuple[str, ...]
    details: str
    """The last part of the details type, e.g. `BTreeIndexDetails`."""
    segments: int
    covered: frozenset[int]
    size_bytes: int = 0

    def serves(self, column: str, index_type: str) -> bool:
        """Whether the engine would count this as the index of that type on exactly that column. Pure."""
        return self.columns == (column,) and self.details == _DETAILS[index_type]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table at one version, as far as planning needs it."""

    version: int
    rows: int
    fragments: tuple[FragmentFacts, ...]
    indexes: tuple[IndexFacts, ...]
    compaction_tasks: tuple[tuple[int, ...], ...]
    """Fragment ids per task that would run at this version, with its current coverage."""
    auto_cleanup_keys: tuple[str, ...]


Exclude = Callable[[Sequence[FragmentFacts], Sequence[IndexFacts]], Collection[int]]
"""Which fragments a compaction leaves alone, by id: the policy of a graph as a function of what is there."""
Cut = Callable[[Sequence[FragmentFacts]], Sequence[Sequence[FragmentFacts]]]
"""The neighbours of one task as smaller tasks."""


def fragment_facts(dataset: Dataset) -> tuple[FragmentFacts, ...]:
    """The fragments of the version that is open, in storage order. Reads."""
    with lance_errors(f"inspect the fragments of {dataset.uri}"):
        return tuple(_fragment(f.metadata) for f in dataset.get_fragments())


def table_facts(
    dataset: Dataset, target_rows: int, exclude: Exclude | None = None, cut: Cut | None = None
) -> TableFacts:
    """Fragments, indexes and Lance's compaction plan of the open version under a policy. Reads."""
    with lance_errors(f"inspect {dataset.uri}"):
        fragments = tuple(_fragment(f.metadata) for f in dataset.get_fragments())
        indexes = tuple(_indexes(dataset))
        rows = int(dataset.count_rows())
    return TableFacts(
        version=dataset.version,
        rows=rows,
        fragments=fragments,
        indexes=indexes,
        compaction_tasks=tuple(task.fragment_ids for task in plan_tasks(dataset, target_rows, exclude, cut)),
        auto_cleanup_keys=auto_cleanup_keys(dataset),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """One Lance compaction task as JSON, so that any process can execute it."""

    payload: str
    fragment_ids: tuple[int, ...]


def plan_tasks(
    dataset: Dataset, target_rows: int, exclude: Exclude | None = None, cut: Cut | None = None
) -> tuple[RewriteTask, ...]:
    """Lance's compaction plan at the open version, but for what is excluded or cut smaller. Reads."""
    options: dict[str, object] = {"target_rows_per_fragment": target_rows}
    # Never across an excluded fragment: it ends a group, so the order of rows stays.
    excluded = sorted(exclude(fragment_facts(dataset), index_facts(dataset))) if exclude is not None else []
    if excluded:
        options["excluded_fragment_ids"] = excluded
    with lance_errors(f"plan the compaction of {dataset.uri}"):
        plan = _Compaction.plan(dataset, options)
        return tuple(part for task in plan.tasks for part in _parts(task, cut))


def _parts(task: Any, cut: Cut | None) -> Iterator[RewriteTask]:
    whole = tuple(_fragment(f) for f in task.fragments)
    payload = task.json()
    for run in (whole,) if cut is None else cut(whole):
        ids = tuple(f.fragment_id for f in run)
        yield RewriteTask(payload=payload if run == whole else with_fragments(payload, ids), fragment_ids=ids)


def execute_task(dataset: Dataset, payload: str) -> str:
    """Run one compaction task: writes data files, makes no version. Returns the result as JSON. Writes."""
    with lance_errors(f"rewrite fragments of {dataset.uri}"):
        return with_safe_row_ids(_CompactionTask.from_json(payload).execute(dataset).json())


def commit_results(dataset: Dataset, results: Sequence[str], *, defer_index_remap: bool = False) -> RewriteMetrics:
    """Commit finished rewrites: ReserveFragments and Rewrite, two versions. Writes."""
    with lance_errors(f"commit the compaction of {dataset.uri}"):
        rewrites = [_RewriteResult.from_json(r) for r in results]
        _Compaction.commit(dataset, rewrites, {"defer_index_remap": True} if defer_index_remap else None)
    return metrics_of(results)


def fold_index(dataset: Dataset, name: str, segments: int) -> None:
    """Fold uncovered fragments into one index and merge its segments; at most one commit. Writes.

    Merging all `segments` leaves one; merging none is never asked for, it serves stale rows on
    tables with stable row ids.
    """
    with lance_errors(f"fold index {name} of {dataset.uri}"):
        dataset.optimize.optimize_indices(index_names=[name], num_indices_to_merge=max(segments, 1))


def build_index(dataset: Any, column: str, index_type: str, name: str) -> None:
    """Build a declared index with the engine's parameters; one commit. Writes."""
    with lance_errors(f"build index {name} of {dataset.uri}"):
        if index_type == "IVF_FLAT":
            dataset.create_index(column, "IVF_FLAT", name=name, metric="L2", num_partitions=1, replace=True)
        else:
            dataset.create_scalar_index(column, index_type, name=name, replace=True)


def text_parameters(dataset: Dataset, name: str) -> dict[str, object]:
    """How a text index takes words apart and its format, as its builder accepts them again. Reads."""
    with lance_errors(f"inspect index {name} of {dataset.uri}"):
        (index,) = (i for i in described(dataset) if i.name == name)
        given = {**index.details, "format_version": min(segment.index_version for segment in index.segments)}
    # The type of the column decides whether documents are text or JSON. Older releases know documents of one row only.
    return {k: v for k, v in given.items() if k != "lance_tokenizer" and (k, v) != ("document_granularity", "row")}


def build_text_again(dataset: Any, column: str, name: str, parameters: Mapping[str, object]) -> None:
    """Build a text index with the parameters that it had; one commit. Writes."""
    options = dict(parameters)
    options["document_granularity"] = DocumentGranularity(options.get("document_granularity", "row"))
    with lance_errors(f"build index {name} of {dataset.uri}"):
        dataset.create_scalar_index(column, "INVERTED", name=name, replace=True, **options)


def index_type_of(index: IndexFacts) -> str | None:
    """The type to rebuild an index with, None for a kind that the engine does not build. Pure."""
    return next((kind for kind, details in _DETAILS.items() if details == index.details), None)


def index_facts(dataset: Dataset) -> tuple[IndexFacts, ...]:
    """Indexes of the version that is open. Reads."""
    with lance_errors(f"inspect the indexes of {dataset.uri}"):
        return tuple(_indexes(dataset))


def inherited_indexes(dataset: Dataset) -> tuple[str, ...]:
    """The indexes of which a file belongs to the dataset that this branch was made of, by name. Reads."""
    with lance_errors(f"inspect the indexes of {dataset.uri}"):
        found = (i for i in described(dataset) if any(segment.base_id is not None for segment in i.segments))
        return tuple(index.name for index in found)


def open_indexes(dataset: Dataset, *, besides: Dataset | None) -> None:
    """Open every index with a segment that `besides` does not have; `LanceFailure` when a file is missing. Reads."""
    others = described(besides) if besides is not None else []
    known = {segment.uuid for index in others for segment in index.segments}
    with lance_errors(f"open the indexes of {dataset.uri}"):
        for index in described(dataset):
            if any(segment.uuid not in known for segment in index.segments):
                dataset.stats.index_stats(index.name)


def column_bytes(dataset: Dataset, columns: Collection[str]) -> dict[str, int]:
    """Data bytes of top-level columns, nested fields included, as they are stored. Reads file metadata."""
    with lance_errors(f"measure the columns of {dataset.uri}"):
        statistics: Any = dataset.stats.data_stats()
        stored = {field.id: int(field.bytes_on_disk) for field in statistics.fields}
        fields = [field for field in dataset.lance_schema.fields() if field.name() in columns]
        return {field.name(): sum(stored.get(number, 0) for number in _field_ids(field)) for field in fields}


def has_values(dataset: Dataset, column: str) -> bool:
    """Whether any live row has a non-null value there. Reads."""
    with lance_errors(f"look at column {column} of {dataset.uri}"):
        return int(dataset.count_rows(filter=f"`{column}` IS NOT NULL")) > 0


def _field_ids(field: Any) -> Iterator[int]:
    yield field.id()
    for child in field.children():
        yield from _field_ids(child)


def _fragment(metadata: object) -> FragmentFacts:
    files = getattr(metadata, "files", ())
    deletion = getattr(metadata, "deletion_file", None)
    return FragmentFacts(
        fragment_id=int(getattr(metadata, "id")),  # noqa: B009 - untyped native object
        physical_rows=int(getattr(metadata, "physical_rows", 0)),
        deleted_rows=int(getattr(deletion, "num_deleted_rows", 0) or 0) if deletion else 0,
        data_bytes=sum(int(f.file_size_bytes or 0) for f in files),
    )


def described(dataset: Dataset) -> list[Any]:
    """What Lance says of the indexes of the version that is open, without its own. Reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return [index for index in dataset.describe_indices() if not index.name.startswith(SYSTEM_PREFIX)]


def _indexes(dataset: Dataset) -> list[IndexFacts]:
    return [
        IndexFacts(
            name=index.name,
            columns=tuple(index.field_names),
            details=str(index.type_url).rsplit(".", 1)[-1],
            segments=len(index.segments),
            covered=frozenset(int(f) for s in index.segments for f in s.fragment_ids),
            size_bytes=int(index.total_size_bytes or 0),
        )
        for index in described(dataset)
    ]


_BATCH_ROWS = 1_000_000
Ids = npt.NDArray[np.uint64]
Marks = npt.NDArray[np.bool_]


def stale_indexes(dataset: Dataset, facts: TableFacts) -> frozenset[str]:
    """The BTREE and text indexes that still have entries of updated rows, by name; empty when none has. Reads.

    Before Lance 9 a fold keeps every entry whose row id is still in the metadata of a fragment that the index covered.
    An updated row keeps its id, and its old fragment keeps the id until a tenth of it is deleted. So the index gets a
    second entry of that row: every load by key fails from then on ("from_sorted_iter called with non-sorted input"),
    and a text search finds what a row no longer says. No later fold takes the old entries out, of whichever Lance.

    A BTREE with two entries of one row tells, and is looked into only where rows were ever updated, or where it is
    folded anyway. The text indexes of the table were folded with it.
    """
    suspect = _has_updated_rows(dataset)
    live = {f.fragment_id: f.physical_rows - f.deleted_rows for f in facts.fragments}
    trees = {i.name: i for i in facts.indexes if index_type_of(i) == "BTREE" and (suspect or _is_behind(i, live))}
    own = _own_segments(dataset, trees)
    stale = frozenset(name for name, folders in own if _is_stale(dataset, trees[name], folders, live))
    return stale | frozenset(i.name for i in facts.indexes if stale and index_type_of(i) == "INVERTED")


def with_dead_entries(dataset: Dataset, facts: TableFacts, *, texts: bool) -> frozenset[str]:
    """The indexes with entries of rows that are gone, by name; only writing them anew drops these. Reads.

    None without stable row ids, where a rewrite drops them itself. Row ids of entries are read only where there may be
    more entries than rows.

    Args:
        texts: whether text indexes are looked into, too, or vector indexes only.
    """
    if not dataset.has_stable_row_ids:
        return frozenset()
    live = {f.fragment_id: f.physical_rows - f.deleted_rows for f in facts.fragments}
    kinds = (VECTOR_DETAILS, TEXT_DETAILS) if texts else (VECTOR_DETAILS,)
    wanted = {i.name: i for i in facts.indexes if i.details in kinds}
    own = _own_segments(dataset, wanted)
    return frozenset(name for name, folders in own if _has_dead_entries(dataset, wanted[name], folders, live))


def shown_dead_entries(facts: TableFacts, dead: Collection[str]) -> frozenset[str]:
    """Those of the indexes with dead entries whose queries meet these. Pure.

    Lance looks only for rows that are there while a fragment that the index covers has a deletion file, or is gone.
    When a compaction has dropped the last of these files, entries of rows that are gone take the places of the nearest
    or the most relevant: a query for ten rows finds fewer, or none (Lance 7 to 13).
    """
    whole = {f.fragment_id for f in facts.fragments if not f.deleted_rows}
    return frozenset(i.name for i in facts.indexes if i.name in dead and i.covered <= whole)


def _has_dead_entries(dataset: Dataset, index: IndexFacts, folders: list[str], live: dict[int, int]) -> bool:
    """Whether an entry is of a row that is not there. Reads."""

    def any_gone(batches: Iterator[Ids]) -> bool:
        there = _row_ids(dataset)
        return any(int(ids.max()) >= len(there) or not there[ids].all() for ids in batches if len(ids))

    # A row without a value has no entry, so where there may be such rows the number of entries says nothing.
    counted = index.details == VECTOR_DETAILS and _has_a_value_in_every_row(dataset, index.columns[0])
    return _holds(dataset, index, folders, any_gone, more_than=_covered_rows(index, live) if counted else 0)


def _has_a_value_in_every_row(dataset: Dataset, column: str) -> bool:
    """Whether the schema says so; it does of no nested column. Reads."""
    position: int = dataset.schema.get_field_index(column)
    return position >= 0 and not dataset.schema.field(position).nullable


def _row_ids(dataset: Dataset) -> Marks:
    """Which row ids are there. Reads metadata."""
    there = np.zeros(0, dtype=bool)
    for batch in dataset.scanner(columns=[], with_row_id=True, batch_size=_BATCH_ROWS).to_batches():
        ids = batch.column("_rowid").to_numpy()
        there = _with_room(there, ids)
        there[ids] = True
    return there


def _has_updated_rows(dataset: Dataset) -> bool:
    """Whether there are rows that were updated after they were inserted, rewritten since or not. Reads."""
    with lance_errors(f"inspect the fragments of {dataset.uri}"):
        return any(_is_updated(fragment.metadata) for fragment in dataset.get_fragments())


def _is_updated(fragment: Any) -> bool:
    inserted, updated = fragment.created_at_version_meta, fragment.last_updated_at_version_meta
    return bool((inserted and inserted.json()) != (updated and updated.json()))


def _is_behind(index: IndexFacts, live: dict[int, int]) -> bool:
    return index.segments > 1 or not index.covered.issuperset(live)


def _own_segments(dataset: Dataset, wanted: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Of each of these indexes the folders of its segments, but for those of a clone's original. Reads."""
    if wanted:
        with lance_errors(f"inspect the indexes of {dataset.uri}"):
            found = [(i.name, list(i.segments)) for i in described(dataset) if i.name in wanted]
        for name, segments in found:
            if all(segment.base_id is None for segment in segments):
                yield name, [f"{dataset.uri}/_indices/{segment.uuid}" for segment in segments]


def _covered_rows(index: IndexFacts, live: dict[int, int]) -> int:
    return sum(rows for fragment, rows in live.items() if fragment in index.covered)


def _is_stale(dataset: Dataset, index: IndexFacts, folders: list[str], live: dict[int, int]) -> bool:
    """Whether one row has two entries. Reads the ids of all entries where there are more of them than live rows."""
    return _holds(dataset, index, folders, _repeats, more_than=_covered_rows(index, live))


_ENTRIES = {_DETAILS["BTREE"]: ("page_data.lance", "ids"), VECTOR_DETAILS: ("auxiliary.idx", "_rowid")}
"""Where an index has the row ids of its entries, by its details: file and column."""


def _entry_files(folder: str, index: IndexFacts, options: dict[str, str] | None) -> list[LanceFileReader]:
    """The files of one segment with its entries, opened for their row ids. Reads."""
    if index.details != TEXT_DETAILS:
        file, column = _ENTRIES[index.details]
        return [LanceFileReader(f"{folder}/{file}", options, columns=[column])]
    written = LanceFileReader(f"{folder}/metadata.lance", options).metadata().schema.metadata
    parts = [f"part_{number}_docs.lance" for number in json.loads(written.get(b"partitions", b"[]"))]
    return [LanceFileReader(f"{folder}/{part}", options, columns=["_rowid"]) for part in parts]


def _holds(
    dataset: Dataset,
    index: IndexFacts,
    folders: list[str],
    true: Callable[[Iterator[Ids]], bool],
    *,
    more_than: int,
) -> bool:
    """Whether something is true of the row ids of all entries, if there are more of these than that. Reads."""
    options = dataset.initial_storage_options
    try:
        with lance_errors(f"read index {index.name} of {dataset.uri}"):
            readers = [reader for folder in folders for reader in _entry_files(folder, index, options)]
            if sum(int(reader.num_rows()) for reader in readers) <= more_than:
                return False
            return true(ids for reader in readers for ids in _ids(reader))
    except LanceFailure:
        return False  # its files are gone, perhaps: a fold finds that out and builds it anew


def _ids(reader: LanceFileReader) -> Iterator[Ids]:
    for batch in reader.read_all(batch_size=_BATCH_ROWS).to_batches():
        yield batch.column(0).to_numpy()


def _repeats(batches: Iterator[Ids]) -> bool:
    """Whether a number stands twice. Pure."""
    seen = np.zeros(0, dtype=bool)
    for ids in batches:
        seen = _with_room(seen, ids)
        if len(np.unique(ids)) < len(ids) or seen[ids].any():
            return True
        seen[ids] = True
    return False


def _with_room(marks: Marks, ids: Ids) -> Marks:
    """Marks of row ids, a byte for each up to the largest and perhaps more: ids are counted up. Pure."""
    wanted = int(ids.max(initial=0)) + 1
    if wanted <= len(marks):
        return marks
    # Twice as many each time: marks are not copied for every batch.
    return np.concatenate([marks, np.zeros(max(wanted, 2 * len(marks)) - len(marks), dtype=bool)])
