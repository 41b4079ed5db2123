"""Compaction tasks and results as JSON: what they replace, what they made, and what they may still replace."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from lance import optimize as lance_optimize
from lance.file import LanceFileReader

from omnigraph_ops.lance.gateway import Dataset, LanceFailure, LanceGateway, described, fragment_print, lance_errors

Sources = frozenset[tuple[int, str]]
"""Fragments by id and fingerprint: the same fingerprint is the same files with the same deleted rows."""
_LARGE_PAGE_BYTES = 1024 * 1024
"""Lance ends a page at 8 MiB, and sooner where a load does."""
_BATCH_BYTES = 16 * 1024 * 1024
_LANCE_BATCH_ROWS = 8192
"""Of a task that says nothing else."""
_MOST_SAMPLED = 8
# Opening every file of a table costs about 0.1 ms per fragment on a local disk.
_MOST_VALIDATED = 1000
# The wheel's stubs lack the JSON methods of tasks and results, which are what makes them portable.
_Task: Any = lance_optimize.CompactionTask
RewriteResult: Any = lance_optimize.RewriteResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """What one compaction task may use, whatever the size of the table."""

    num_threads: int
    batch_size: int
    io_buffer_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteMetrics:
    """What a rewrite commit replaced."""

    fragments_removed: int = 0
    fragments_added: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """What a version holds, as far as a rewrite result must agree with it."""

    version: int
    sources: Sources
    stable_row_ids: bool
    covered: tuple[frozenset[int], ...]
    """Fragment ids per index segment."""

    def accepts(self, sources: Sources) -> bool:
        """Whether these fragments are all as they were, and no index segment covers only some of them. Pure."""
        ids = {number for number, _ in sources}
        return sources <= self.sources and all(ids <= part or not ids & part for part in self.covered)


def current(dataset: Dataset) -> Current:
    """What the open version holds. Reads."""
    with lance_errors(f"inspect {dataset.uri}"):
        return Current(
            version=int(dataset.version),
            sources=sources_of(dataset),
            stable_row_ids=bool(dataset.has_stable_row_ids),
            covered=tuple(frozenset(s.fragment_ids) for i in described(dataset) for s in i.segments),
        )


def sources_of(dataset: Dataset) -> Sources:
    """The fragments of the open version. Reads no data file."""
    with lance_errors(f"inspect {dataset.uri}"):
        return _prints(f.metadata for f in dataset.get_fragments())


def task_sources(payload: str) -> Sources:
    """The fragments that a task rewrites, as they were when it was planned. Pure."""
    with lance_errors("read a compaction task"):
        return _prints(_Task.from_json(payload).fragments)


def result_sources(payload: str) -> Sources:
    """The fragments that a result replaces, as they were when it was executed. Pure."""
    with lance_errors("read a rewrite result"):
        return _prints(RewriteResult.from_json(payload).original_fragments)


def source_bytes(payload: str) -> int:
    """Bytes of the data files that a task reads. Pure."""
    return _rows_and_bytes(payload)[1]


def result_files(payload: str) -> tuple[str, ...]:
    """The data files that a result made, relative to the dataset. Pure."""
    with lance_errors("read a rewrite result"):
        return tuple(f"data/{file.path}" for f in RewriteResult.from_json(payload).new_fragments for file in f.files)


def metrics_of(results: Iterable[str]) -> RewriteMetrics:
    """What committing these results replaces. Pure."""
    with lance_errors("read a rewrite result"):
        found = [RewriteResult.from_json(payload) for payload in results]
    made = [fragment for result in found for fragment in result.new_fragments]
    return RewriteMetrics(
        fragments_removed=sum(len(result.original_fragments) for result in found),
        fragments_added=len(made),
        bytes_written=sum(map(data_bytes, made)),
    )


def rebased(payload: str, now: Current) -> str:
    """A task or result that `now` accepts, as if it had been planned at that version. Pure.

    Lance reads the version that a task names, which a cleanup may have removed, and refuses a result when
    any index was built since. With stable row ids neither matters to fragments that are as they were.
    """
    if not now.stable_row_ids:
        return payload
    return json.dumps(json.loads(payload) | {"read_version": now.version})


def limited(payload: str, limits: TaskLimits | None = None) -> str:
    """The same task within these limits, and with no more rows to a batch than memory is meant for. Pure."""
    task = json.loads(payload)
    options = task["options"]
    if limits is not None:
        options["num_threads"], options["io_buffer_size"] = limits.num_threads, limits.io_buffer_size
        options["batch_size"] = limits.batch_size
    rows, size = _rows_and_bytes(payload)
    # Lance reads ahead by batches, which it counts in rows: 8,192 rows of a megabyte are 8 GB.
    most = max(_BATCH_BYTES * rows // size, 1) if size else None
    if most is not None and most < (options["batch_size"] or _LANCE_BATCH_ROWS):
        options["batch_size"] = most
    return json.dumps(task)


def _rows_and_bytes(payload: str) -> tuple[int, int]:
    """How many rows a task reads, deleted ones included, and how many bytes. Pure."""
    with lance_errors("read a compaction task"):
        fragments = _Task.from_json(payload).fragments
    return sum(f.physical_rows for f in fragments), sum(map(data_bytes, fragments))


def copying(payload: str) -> str:
    """The same task, copying pages as they are where no row is deleted and no fragment is divided. Pure.

    Lance encodes anew what it cannot copy: columns that were added later, files of another format version.
    """
    task = json.loads(payload)
    fragments = task["task"]["fragments"]
    divides = any(f["physical_rows"] > task["options"]["target_rows_per_fragment"] for f in fragments)
    if divides or any(fragment.get("deletion_file") for fragment in fragments):
        return payload
    task["options"]["compaction_mode"] = "TryBinaryCopy"
    return json.dumps(task)


def has_large_pages(lance: LanceGateway, uri: str, payload: str) -> bool:
    """Whether the pages of a task's largest fragments are worth keeping as they are. Reads their footers.

    What was loaded in small pieces, or copied together from small pieces, is encoded anew: a page per few rows
    makes a file larger and slower to scan. A task with deleted rows is not looked at: nothing of it can be copied.
    """
    with lance_errors("read a compaction task"):
        fragments = sorted(_Task.from_json(payload).fragments, key=data_bytes, reverse=True)
    if any(f.deletion_file for f in fragments):
        return False
    fragments = fragments[:_MOST_SAMPLED]
    size = sum(data_bytes(f) for f in fragments)
    if not fragments or size < len(fragments) * _LARGE_PAGE_BYTES:
        return False
    files = [file for f in fragments for file in f.files]
    if any(file.base_id is not None for file in files):
        # Not below this dataset: somebody else's layout.
        return False
    with lance_errors(f"read the footers of {uri}"):
        readers = (LanceFileReader(f"{uri}/data/{file.path}", lance.storage_options) for file in files)
        pages = sum(len(column.pages) for reader in readers for column in reader.metadata().columns)
    return size >= pages * _LARGE_PAGE_BYTES


def data_bytes(fragment: Any) -> int:
    """Bytes of the data files of a fragment, as far as they are known. Pure."""
    return sum(int(file.file_size_bytes or 0) for file in fragment.files)


def with_sizes(payload: str, size_of: Callable[[str], int]) -> str:
    """A result that knows the size of its data files: Lance leaves it out where it copied pages. Pure.

    Without sizes such a fragment would count as empty when the next rewrite is planned.
    """
    result = json.loads(payload)
    unknown = [f for made in result["new_fragments"] for f in made["files"] if not f.get("file_size_bytes")]
    for file in unknown:
        file["file_size_bytes"] = size_of(f"data/{file['path']}")
    return json.dumps(result) if unknown else payload


def with_fragments(payload: str, fragment_ids: Collection[int]) -> str:
    """The same task for some of its fragments. Pure."""
    task = json.loads(payload)
    task["task"]["fragments"] = [f for f in task["task"]["fragments"] if f["id"] in fragment_ids]
    return json.dumps(task)


def validate_rewrite(head: Any, before: Dataset | None) -> None:
    """Check the fragments of `head` that `before` did not have; nothing when there are none. Reads.

    Raises:
        LanceFailure: a file is missing or does not hold what its fragment says.
    """
    fragments = head.get_fragments()
    known = {f.fragment_id for f in before.get_fragments()} if before is not None else set()
    fresh = [f for f in fragments if f.fragment_id not in known]
    with lance_errors(f"validate {head.uri}"):
        if fresh and len(fragments) <= _MOST_VALIDATED:
            head.validate()
            return
        for fragment in fresh:
            last = int(fragment.count_rows()) - 1  # rows are taken by their places among those that are left
            if last >= 0 and fragment.take([0, last]).num_rows == 0:
                raise LanceFailure(f"fragment {fragment.fragment_id} of {head.uri} has no row")


def _prints(fragments: Iterable[Any]) -> Sources:
    return frozenset((int(f.id), fragment_print(f)) for f in fragments)
