"""Changes to a dataset that are prepared as a whole and become visible by one put-if-absent of one file.

Lance builds and commits in one go, puts its commit on top of whatever others committed meanwhile, and commits a
compaction twice. Here Lance commits to a copy of the newest manifest in a scratch folder; the manifest that it wrote
there is then put beside the original, where it is the next version or nothing. What it will be is proven before.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import lance
import pyarrow as pa
from lance import LanceDataset
from lance.dataset import LanceOperation, Transaction
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph_ops.lance.gateway import CommitConflict, Dataset, LanceFailure, every_index, fields_of, lance_errors
from omnigraph_ops.lance.rewrites import RewriteResult, current, result_sources, sources_of
from omnigraph_ops.quantities import count
from omnigraph_ops.storage.scratch import in_scratch, scratch_folder

OPERATION_PROPERTY = "omnigraph_ops.operation"
"""Property of the transactions of this tool: the id of the armed operation."""
_MOST_FRAGMENT_ID = 2**32 - 1


class Change(Protocol):
    """One prepared change that leaves every row as it is."""

    @property
    def name(self) -> str:
        """The Lance operation that commits it."""

    @property
    def files(self) -> dict[str, int]:
        """The files that it brings, relative to the dataset, with their sizes; 0 where the size is not known."""

    def refuse_stale(self, dataset: Dataset) -> None:
        """Raise `CommitConflict` when it does not fit the version that is open. Reads."""

    def operation(self, highest_fragment_id: int) -> Any:
        """The Lance operation that makes it visible. Pure."""

    def difference(self, before: Dataset, after: Dataset) -> str | None:
        """How `after` differs from what the change should make of `before`, to end a sentence. Reads metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A version of a chain as a file."""

    version: int
    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The next version of a chain as Lance would write it."""

    manifest: Manifest
    transaction_id: str
    transaction_name: str
    transaction: bytes
    dataset: Dataset
    """That version, as long as the draft is open. Of it metadata and row ids can be read."""


class Drafts:
    """Commits that Lance makes one upon the other to a copy of the newest manifest, in a scratch folder."""

    def __init__(self, folder: Path, newest: Manifest, beside: Sequence[Manifest]) -> None:
        self._folder, self._newest = folder, newest
        self._dataset: LanceDataset | None = None
        with in_scratch():
            (folder / "_versions").mkdir()
            for manifest in (*beside, newest):
                self._file(manifest.name).write_bytes(manifest.content)

    def add(self, next_name: str, operation: Any, mark: str) -> Draft:
        """The next version, which an operation makes of the newest one; the next call goes on from it. Writes there.

        Args:
            mark: what the transaction says about itself under `OPERATION_PROPERTY`.
        """
        transaction_id = str(uuid.uuid4())
        transaction = Transaction(
            read_version=self._newest.version,
            operation=operation,
            uuid=transaction_id,
            transaction_properties={OPERATION_PROPERTY: mark},
        )
        with lance_errors("prepare a commit"), in_scratch():
            before = lance.dataset(str(self._folder)) if self._dataset is None else self._dataset
            self._dataset = LanceDataset.commit(before, transaction, max_retries=0)
        with in_scratch():
            # Not by a pattern: compiling one for each draft took a fiftieth of the CPU of a run over small tables.
            (written,) = (file for file in (self._folder / "_transactions").iterdir() if transaction_id in file.name)
            content, said = self._file(next_name).read_bytes(), written.read_bytes()
        self._newest = Manifest(version=self._newest.version + 1, name=next_name, content=content)
        return Draft(
            manifest=self._newest,
            transaction_id=transaction_id,
            transaction_name=written.name,
            transaction=said,
            dataset=self._dataset,
        )

    def _file(self, name: str) -> Path:
        return self._folder / "_versions" / name


@contextlib.contextmanager
def drafting(newest: Manifest, *, beside: Sequence[Manifest] = ()) -> Iterator[Drafts]:
    """Let Lance commit to a copy of the newest manifest, for the block. Writes a scratch folder.

    Args:
        beside: older versions that an operation reads.
    """
    with scratch_folder() as folder:
        yield Drafts(folder, newest, beside)


@contextlib.contextmanager
def drafted(
    newest: Manifest, next_name: str, operation: Any, *, mark: str, beside: Sequence[Manifest] = ()
) -> Iterator[Draft]:
    """The next version, made by one operation, for the block: `drafting` and `add`. Writes a scratch folder."""
    with drafting(newest, beside=beside) as drafts:
        yield drafts.add(next_name, operation, mark)


def restored(version: int) -> Any:
    """The operation that puts an older version on top. Pure."""
    return LanceOperation.Restore(version=version)


def appended_rows(dataset: Dataset, rows: pa.Table, storage_options: dict[str, str] | None) -> tuple[Any, list[str]]:
    """The operation that appends rows, and the files of the dataset that it brings. Writes data files; no version."""
    with lance_errors(f"write rows to {dataset.uri}"):
        made = write_fragments(rows, dataset, mode="append", storage_options=storage_options)
        return LanceOperation.Append(made), [f"data/{file.path}" for fragment in made for file in fragment.files]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRemoval:
    """Keys that leave the configuration of a dataset."""

    keys: tuple[str, ...]
    name: str = "UpdateConfig"

    @property
    def files(self) -> dict[str, int]:
        return {}

    def refuse_stale(self, dataset: Dataset) -> None:
        """Nothing: a key that is gone meanwhile is gone."""

    def operation(self, highest_fragment_id: int) -> Any:
        return LanceOperation.UpdateConfig(config_updates=LanceOperation.UpdateMap(dict.fromkeys(self.keys)))

    def difference(self, before: Dataset, after: Dataset) -> str | None:
        return _moved(before, after)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexChange:
    """Index segments that were built elsewhere and take the place of others."""

    added: tuple[Any, ...]
    """Lance's records of the new segments, whose files are in place."""
    removed: tuple[Any, ...]
    covered: frozenset[tuple[int, str]]
    """Fragments that the new segments cover, by id and data files."""
    columns: frozenset[tuple[int, str]]
    """Their columns, by field id and type."""
    name: str = "CreateIndex"

    @property
    def files(self) -> dict[str, int]:
        return {f"_indices/{s.uuid}/{f.path}": int(f.size_bytes) for s in self.added for f in s.files or ()}

    def refuse_stale(self, dataset: Dataset) -> None:
        """Rows of a covered fragment may be deleted since, which every reader masks; its files must be the same."""
        with lance_errors(f"inspect {dataset.uri}"):
            missing = self.covered - data_prints(f.metadata for f in dataset.get_fragments())
        if missing:
            raise CommitConflict(
                f"{count(len(missing), 'fragment')} changed while their indexes were built; nothing was committed"
            )
        if not self.columns <= column_prints(dataset):
            raise CommitConflict("a column was changed or dropped while its index was built; nothing was committed")
        if segment_ids(dataset, {s.name for s in self.added}) != {s.uuid for s in self.removed}:
            raise CommitConflict("an index was changed by another writer while it was built; nothing was committed")

    def operation(self, highest_fragment_id: int) -> Any:
        return LanceOperation.CreateIndex(new_indices=list(self.added), removed_indices=list(self.removed))

    def difference(self, before: Dataset, after: Dataset) -> str | None:
        expected = (segment_ids(before) - {s.uuid for s in self.removed}) | {s.uuid for s in self.added}
        if segment_ids(after) != expected:
            return "does not have the index segments that were built"
        return _moved(before, after)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteChange:
    """Results of compaction tasks, as JSON."""

    results: tuple[str, ...]
    name: str = "Rewrite"

    @property
    def files(self) -> dict[str, int]:
        made = (f for payload in self.results for f in RewriteResult.from_json(payload).new_fragments)
        return {f"data/{file.path}": int(file.file_size_bytes or 0) for fragment in made for file in fragment.files}

    def refuse_stale(self, dataset: Dataset) -> None:
        """Every replaced fragment must be as it was, its deleted rows included."""
        now = current(dataset)
        if not all(now.accepts(result_sources(payload)) for payload in self.results):
            raise CommitConflict("fragments changed while they were rewritten; nothing was committed")

    def operation(self, highest_fragment_id: int) -> Any:
        """The new fragments take the next ids: nobody else's commit can come between the look and this one."""
        groups, number = [], highest_fragment_id
        for payload in self.results:
            result = RewriteResult.from_json(payload)
            made = []
            for fragment in result.new_fragments:
                number += 1
                made.append(FragmentMetadata.from_json(json.dumps(fragment.to_json() | {"id": number})))
            groups.append(LanceOperation.RewriteGroup(old_fragments=result.original_fragments, new_fragments=made))
        if number > _MOST_FRAGMENT_ID:
            raise LanceFailure("the dataset has no fragment ids left; nothing was committed; load its rows anew")
        return LanceOperation.Rewrite(groups=groups, rewritten_indices=[])

    def difference(self, before: Dataset, after: Dataset) -> str | None:
        old, new = sources_of(before), sources_of(after)
        replaced = frozenset[tuple[int, str]]().union(*map(result_sources, self.results))
        fresh = {number for number, _ in new - old}
        fragments = [f.metadata for f in after.get_fragments() if f.fragment_id in fresh]
        made = {f"data/{file.path}" for fragment in fragments for file in fragment.files}
        if old - new != replaced or made != self.files.keys():
            return "does not have the fragments that were made"
        return None


def index_change(dataset: Dataset, clone: Dataset, since: int) -> IndexChange | None:
    """What the commits of a clone after `since` did to its indexes, as one change of its dataset. Reads.

    Raises:
        LanceFailure: a commit of the clone did something else.
    """
    added: dict[str, Any] = {}
    removed: dict[str, Any] = {}
    with lance_errors(f"read what was built for {dataset.uri}"):
        for version in range(since + 1, int(clone.version) + 1):
            transaction: Any = clone.read_transaction(version)
            operation = transaction.operation
            if not isinstance(operation, LanceOperation.CreateIndex):
                raise LanceFailure(f"version {version} of {clone.uri} is no index; nothing was committed")
            for segment in operation.removed_indices:
                if added.pop(segment.uuid, None) is None:
                    removed[segment.uuid] = replace(segment, base_id=None)
            added |= {segment.uuid: segment for segment in operation.new_indices}
        if not added and not removed:
            return None
        ids = {int(number) for segment in added.values() for number in segment.fragment_ids}
        covered = data_prints(f.metadata for f in dataset.get_fragments() if f.fragment_id in ids)
        fields = {int(number) for segment in added.values() for number in segment.fields}
        columns = frozenset(column for column in column_prints(dataset) if column[0] in fields)
    return IndexChange(added=tuple(added.values()), removed=tuple(removed.values()), covered=covered, columns=columns)


def data_prints(fragments: Iterable[Any]) -> frozenset[tuple[int, str]]:
    """Fragments by id and data files, whatever rows of them are deleted. Pure."""
    return frozenset((int(f.id), json.dumps([str(file.path) for file in f.files])) for f in fragments)


def column_prints(dataset: Dataset) -> frozenset[tuple[int, str]]:
    """All columns, nested ones too, by field id and type. Reads."""
    columns = (column for top in dataset.lance_schema.fields() for column in fields_of(top))
    return frozenset((int(column.id()), str(column.to_arrow().type)) for column in columns)


def segment_ids(dataset: Dataset, names: Collection[str] | None = None) -> frozenset[str]:
    """Ids of the segments of all indexes, or of those of some names. Reads."""
    with lance_errors(f"inspect the indexes of {dataset.uri}"):
        return frozenset(s.uuid for i in every_index(dataset) if names is None or i.name in names for s in i.segments)


def _moved(before: Dataset, after: Dataset) -> str | None:
    return None if sources_of(before) == sources_of(after) else "has other fragments"
