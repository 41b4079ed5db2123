"""What optimize needs from Lance: facts about a table version, and its commits."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import pyarrow as pa
from lance import optimize as lance_optimize
from lance.query import DocumentGranularity

from omnigraph_ops.lance.gateway import (
    SYSTEM_PREFIX,
    Dataset,
    auto_cleanup_keys,
    described,
    every_index,
    fields_of,
    lance_errors,
)
from omnigraph_ops.lance.reader_limits import divided, with_limits
from omnigraph_ops.lance.rewrites import (
    RewriteMetrics,
    RewriteResult,
    data_bytes,
    metrics_of,
    with_fragments,
)
from omnigraph_ops.lance.row_ids import with_safe_row_ids
from omnigraph_ops.storage.scratch import native_scratch

# Shapes of index details that the engine accepts as "this column is indexed", by requested type.
VECTOR_DETAILS, TEXT_DETAILS = "VectorIndexDetails", "InvertedIndexDetails"
BTREE_DETAILS = "BTreeIndexDetails"
_OF_FRAGMENTS = {"ZoneMapIndexDetails", "BloomFilterIndexDetails"}
_DETAILS = {"BTREE": BTREE_DETAILS, "INVERTED": TEXT_DETAILS, "IVF_FLAT": VECTOR_DETAILS}
DELETED_SHARE = 0.1
"""Of a fragment: when more of its rows are deleted, Lance rewrites it for its own sake."""
_EVERY_FRAGMENT = -1.0
"""A share of deleted rows that each has more than."""
_BATCHES = 32
"""In which what becomes one fragment is read, where all of it would be too much."""
_Compaction: Any = lance_optimize.Compaction
_CompactionTask: Any = lance_optimize.CompactionTask


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentFacts:
    """One fragment: physical rows, deleted rows, bytes of its data files."""

    fragment_id: int
    physical_rows: int
    deleted_rows: int
    data_bytes: int
    divided_into: int = 0
    """How many fragments a rewrite makes of it, where it has more text than readers can read."""

    @property
    def live_rows(self) -> int:
        """Rows that are not deleted, which a rewrite would copy. Pure."""
        return self.physical_rows - self.deleted_rows


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
    trained_on: int = 0
    """How many vectors a vector index is trained on at least."""

    @property
    def is_of_fragments(self) -> bool:
        """Whether it tells which parts of fragments to read, so that a rewrite leaves it without any. Pure."""
        return self.details in _OF_FRAGMENTS

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
Split = Callable[[Sequence[FragmentFacts]], Sequence[Sequence[FragmentFacts]]]
"""The neighbours of one task as smaller tasks."""


def fragment_facts(dataset: Dataset) -> tuple[FragmentFacts, ...]:
    """The fragments of the version that is open, in storage order. Reads."""
    with lance_errors(f"inspect the fragments of {dataset.uri}"):
        return tuple(_fragment(f.metadata) for f in dataset.get_fragments())


def table_facts(
    dataset: Dataset,
    target_rows: int,
    exclude: Exclude | None = None,
    split: Split | None = None,
    deleted_share: float = DELETED_SHARE,
    *,
    text_bytes: int | None = None,
    by_bytes: bool = False,
) -> TableFacts:
    """Fragments, indexes and Lance's compaction plan of the open version; arguments as for `plan_tasks`. Reads."""
    with lance_errors(f"inspect {dataset.uri}"):
        indexes = tuple(_indexes(dataset))
        rows = int(dataset.count_rows())
    tasks = plan_tasks(dataset, target_rows, exclude, split, deleted_share, text_bytes=text_bytes, by_bytes=by_bytes)
    return TableFacts(
        version=dataset.version,
        rows=rows,
        fragments=_with_parts(fragment_facts(dataset), divided(dataset, text_bytes, by_bytes=by_bytes)),
        indexes=indexes,
        compaction_tasks=tuple(task.fragment_ids for task in tasks),
        auto_cleanup_keys=auto_cleanup_keys(dataset),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """One Lance compaction task as JSON, so that any process can execute it."""

    payload: str
    fragment_ids: tuple[int, ...]


def plan_tasks(
    dataset: Dataset,
    target_rows: int,
    exclude: Exclude | None = None,
    split: Split | None = None,
    deleted_share: float = DELETED_SHARE,
    *,
    text_bytes: int | None = None,
    by_bytes: bool = False,
) -> tuple[RewriteTask, ...]:
    """Lance's compaction plan at the open version, but for what is excluded, split smaller or divided. Reads.

    Args:
        deleted_share: a fragment of which more is deleted is rewritten for its own sake.
        text_bytes: as `most_task_bytes` says; None divides no fragment.
        by_bytes: as for `divided`.
    """
    rows_each = divided(dataset, text_bytes, by_bytes=by_bytes)
    left = set[int]()
    if exclude is not None:
        left.update(exclude(_with_parts(fragment_facts(dataset), rows_each), index_facts(dataset)))
    with lance_errors(f"plan the compaction of {dataset.uri}"):
        # Never across an excluded fragment, which ends a group.
        tasks = _planned(dataset, target_rows, deleted_share, left | rows_each.keys())
        parts = [part for task in tasks for part in _parts(task, split)]
        for number in sorted(rows_each.keys() - left):
            others = {int(f.fragment_id) for f in dataset.get_fragments()} - {number}
            rows = rows_each[number]
            for task in _planned(dataset, rows, _EVERY_FRAGMENT, others, batch_size=max(1, rows // _BATCHES)):
                parts += _parts(task, None)
        return tuple(parts)


def _planned(
    dataset: Dataset, target_rows: int, deleted_share: float, left: Collection[int], **others: int
) -> list[Any]:
    options: dict[str, object] = {
        "target_rows_per_fragment": target_rows,
        "materialize_deletions_threshold": deleted_share,
        **others,
    }
    if left:
        options["excluded_fragment_ids"] = sorted(left)
    return list(_Compaction.plan(dataset, options).tasks)


def _with_parts(fragments: Sequence[FragmentFacts], rows_each: Mapping[int, int]) -> tuple[FragmentFacts, ...]:
    live = {f.fragment_id: f.live_rows for f in fragments}
    parts = {number: max(1, ceil(live[number] / rows)) for number, rows in rows_each.items()}
    return tuple(replace(f, divided_into=parts.get(f.fragment_id, 0)) for f in fragments)


def _parts(task: Any, split: Split | None) -> Iterator[RewriteTask]:
    whole = tuple(_fragment(f) for f in task.fragments)
    payload = task.json()
    for run in (whole,) if split is None else split(whole):
        ids = tuple(f.fragment_id for f in run)
        yield RewriteTask(payload=payload if run == whole else with_fragments(payload, ids), fragment_ids=ids)


def execute_task(dataset: Dataset, payload: str) -> str:
    """Run one compaction task: writes data files, makes no version. Returns the result as JSON. Writes."""
    with lance_errors(f"rewrite fragments of {dataset.uri}"):
        made = _CompactionTask.from_json(payload).execute(dataset).json()
        result = with_safe_row_ids(made, (f.metadata for f in dataset.get_fragments()))
    return with_limits(dataset, result)


def commit_results(dataset: Dataset, results: Sequence[str], *, defer_index_remap: bool = False) -> RewriteMetrics:
    """Commit finished rewrites: ReserveFragments and Rewrite, two versions. Writes."""
    with lance_errors(f"commit the compaction of {dataset.uri}"):
        rewrites = [RewriteResult.from_json(r) for r in results]
        _Compaction.commit(dataset, rewrites, {"defer_index_remap": True} if defer_index_remap else None)
    return metrics_of(results)


def fold_index(dataset: Dataset, name: str, segments: int) -> None:
    """Fold uncovered fragments into one index and merge its segments; at most one commit. Writes.

    Merging all `segments` leaves one; merging none is never asked for, it serves stale rows on
    tables with stable row ids.
    """
    with native_scratch(), lance_errors(f"fold index {name} of {dataset.uri}"):
        dataset.optimize.optimize_indices(index_names=[name], num_indices_to_merge=max(segments, 1))


def build_index(dataset: Any, column: str, index_type: str, name: str) -> None:
    """Build a declared index with the engine's parameters; one commit. Writes."""
    with native_scratch(), lance_errors(f"build index {name} of {dataset.uri}"):
        if index_type == "IVF_FLAT":
            dataset.create_index(column, "IVF_FLAT", name=name, metric="L2", num_partitions=1, replace=True)
        else:
            dataset.create_scalar_index(column, index_type, name=name, replace=True)


def build_text_again(dataset: Any, name: str, column: str, parameters: Mapping[str, object]) -> None:
    """Build a text index with what `text_parameters` found; one commit. Writes."""
    options = dict(parameters)
    options["document_granularity"] = DocumentGranularity(options.get("document_granularity", "row"))
    with native_scratch(), lance_errors(f"build index {name} of {dataset.uri}"):
        dataset.create_scalar_index(column, "INVERTED", name=name, replace=True, **options)


def text_parameters(dataset: Dataset, name: str) -> tuple[str, dict[str, object]]:
    """The column of a text index, and its format and how it takes words apart, as its builder accepts them. Reads."""
    with lance_errors(f"inspect index {name} of {dataset.uri}"):
        (index,) = (i for i in described(dataset) if i.name == name)
        # What is described lacks the stop words.
        given = {**index.details, **segment_statistics(dataset, name)[0]["params"]}
        paths = (_path(field, index.fields[0]) for field in dataset.lance_schema.fields())
    given["format_version"] = min(segment.index_version for segment in index.segments)
    # The type of the column decides whether documents are text or JSON. Older releases know documents of one row only.
    known = {k: v for k, v in given.items() if k != "lance_tokenizer" and (k, v) != ("document_granularity", "row")}
    return next(filter(None, paths)), known


def _path(field: Any, wanted: int) -> str | None:
    """The names that lead from a field to one below it, without those of the elements of lists. Pure."""
    name: str = field.name()
    if field.id() == wanted:
        return name
    within = next(filter(None, (_path(child, wanted) for child in field.children())), None)
    if within is None:
        return None
    if pa.types.is_list(field.to_arrow().type) or pa.types.is_large_list(field.to_arrow().type):
        _, _, within = within.partition(".")
    return f"{name}.{within}" if within else name


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
                segment_statistics(dataset, index.name)


def segment_statistics(dataset: Dataset, name: str) -> list[dict[str, Any]]:
    """What Lance says of each segment of an index; `LanceFailure` when a file is missing. Reads."""
    # Lance warns at every call until somebody says whether centroids are wanted.
    os.environ["LANCE_INCLUDE_VECTOR_CENTROIDS"] = "true"
    with lance_errors(f"inspect index {name} of {dataset.uri}"):
        statistics: Any = dataset.stats.index_stats(name)
        return list(statistics["indices"])


def column_bytes(dataset: Dataset, columns: Collection[str]) -> dict[str, int]:
    """Data bytes of top-level columns, nested fields included, as they are stored. Reads file metadata."""
    with lance_errors(f"measure the columns of {dataset.uri}"):
        statistics: Any = dataset.stats.data_stats()
        stored = {field.id: int(field.bytes_on_disk) for field in statistics.fields}
        fields = [field for field in dataset.lance_schema.fields() if field.name() in columns]
        return {field.name(): sum(stored.get(part.id(), 0) for part in fields_of(field)) for field in fields}


def values_in(dataset: Dataset, column: str) -> int:
    """How many live rows have a value there. Reads."""
    with lance_errors(f"look at column {column} of {dataset.uri}"):
        return int(dataset.count_rows(filter=f"`{column}` IS NOT NULL"))


def vectors_to_train(index: IndexFacts, fragments: Sequence[FragmentFacts]) -> int:
    """How many vectors an index takes that covers nothing; 0 where it is trained or is no vector index. Pure."""
    if index.details != VECTOR_DETAILS or any(f.fragment_id in index.covered for f in fragments):
        return 0
    return index.trained_on


def _trained_on(details: Mapping[str, Any] | None) -> int:
    """As `IndexFacts`: with fewer, Lance leaves an index with a product quantizer empty, at every fold anew. Pure."""
    compression = (details or {}).get("compression") or {}
    return int(2 ** int(compression.get("num_bits", 8))) if compression.get("type") == "pq" else 1


def defers_index_remap(dataset: Dataset) -> bool:
    """Whether an earlier rewrite noted where rows went instead of writing the indexes anew. Reads."""
    with lance_errors(f"inspect the indexes of {dataset.uri}"):
        return any(index.name == _MOVED_ROWS for index in every_index(dataset))


_MOVED_ROWS = f"{SYSTEM_PREFIX}_frag_reuse"


def _fragment(metadata: Any) -> FragmentFacts:
    return FragmentFacts(
        fragment_id=int(metadata.id),
        physical_rows=int(metadata.physical_rows),
        deleted_rows=int(metadata.num_deletions or 0),
        data_bytes=data_bytes(metadata),
    )


def _indexes(dataset: Dataset) -> list[IndexFacts]:
    return [
        IndexFacts(
            name=index.name,
            columns=tuple(index.field_names),
            details=str(index.type_url).rsplit(".", 1)[-1],
            segments=len(index.segments),
            covered=frozenset(int(f) for s in index.segments for f in s.fragment_ids),
            size_bytes=int(index.total_size_bytes or 0),
            trained_on=_trained_on(index.details),
        )
        for index in described(dataset)
    ]
