"""The Lance table of the history: append, read, and keep it small. It is state of this tool, no table of a graph."""

from __future__ import annotations

from datetime import timedelta

import lance
import pyarrow as pa
from lance.dataset import ColumnOrdering
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from omnigraph_ops.lance.errors import CommitConflict, CommitContention, DatasetMissing, LanceFailure, lance_errors
from omnigraph_ops.lance.history_rows import SCHEMA, time_of

MAINTAINED_EVERY = 32
"""Appends between two times that the table itself is compacted: one append is one fragment."""
_READERS_HAVE = timedelta(hours=1)
"""How long an old version stays for those who read it."""
_ONE_FRAGMENT = 1024 * 1024
"""Rows per fragment of the compacted table."""
_LOST_RACES = (CommitConflict, CommitContention)
_again_if_lost = Retrying(
    retry=retry_if_exception_type(_LOST_RACES),
    stop=stop_after_attempt(8),
    wait=wait_exponential(multiplier=0.05),
    reraise=True,
)
"""Tries a commit again while other writers are first."""


class HistoryTable:
    """The history of one graph (or plain folder), opened with the storage options of that graph."""

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        self.uri = uri
        self._options = options

    def append(self, rows: pa.Table) -> None:
        """Add the rows of one record in one commit, beside whoever else appends. Writes.

        Raises:
            LanceFailure: they are not in the history.
        """
        _again_if_lost(self._append, rows)

    def drop_older_records(self, run_id: str, record_id: str) -> None:
        """Remove what an earlier attempt of the same run wrote. Destroys records."""
        _again_if_lost(self._delete, f"run_id = {literal(run_id)} AND record_id < {literal(record_id)}")

    def maintain(self, *, expired_before_us: int) -> bool:
        """Drop expired records, compact and clean up, when enough was appended; whether it was. Destroys."""
        if len(self._open().get_fragments()) < MAINTAINED_EVERY:
            return False
        try:
            self._delete(f"started_at < {moment_literal(expired_before_us)}")
            dataset = self._open()
            with lance_errors(f"compact {self.uri}"):
                dataset.optimize.compact_files(target_rows_per_fragment=_ONE_FRAGMENT)
                # Nobody pins versions of this table, so age is all that counts.
                dataset.cleanup_old_versions(older_than=_READERS_HAVE)
        except _LOST_RACES:
            return False  # somebody else is at it, or the next append is
        return True

    def read(self, where: str, *, newest: int | None = None) -> pa.Table:
        """The rows that a condition takes, only the newest so many if asked; no table has none. Reads."""
        try:
            dataset = self._open()
        except DatasetMissing:
            return SCHEMA.empty_table()
        with lance_errors(f"read {self.uri}"):
            order: list[ColumnOrdering | str] | None = None
            if newest is not None:
                order = [ColumnOrdering("started_at", ascending=False)]
            scanner = dataset.scanner(filter=where, limit=newest, order_by=order)
            found: pa.Table = scanner.to_table()
        return found

    def _open(self) -> lance.LanceDataset:
        with lance_errors(f"open {self.uri}"):
            return lance.dataset(self.uri, storage_options=self._options)

    def _delete(self, where: str) -> None:
        dataset = self._open()
        with lance_errors(f"remove records from {self.uri}"):
            if dataset.count_rows(filter=where):
                dataset.delete(where)

    def _append(self, rows: pa.Table) -> None:
        try:
            dataset = self._open()
        except DatasetMissing:
            return self._create(rows)
        with lance_errors(f"append to {self.uri}"):
            missing = [field for field in rows.schema if field.name not in dataset.schema.names]
            if missing:  # written by an older release: columns are only ever added
                dataset.add_columns(missing)
            lance.write_dataset(rows, dataset, mode="append", storage_options=self._options)
        return None

    def _create(self, rows: pa.Table) -> None:
        try:
            with lance_errors(f"create {self.uri}"):
                lance.write_dataset(rows, self.uri, mode="create", storage_options=self._options)
        except LanceFailure as error:
            if "already exists" in str(error):
                raise CommitConflict(str(error)) from error
            raise


def moment_literal(microseconds: int) -> str:
    """A moment as a literal of a filter. Pure."""
    return f"timestamp '{time_of(microseconds):%Y-%m-%d %H:%M:%S.%f}'"


def literal(text: str) -> str:
    """A text as a literal of a filter. Pure."""
    return "'" + text.replace("'", "''") + "'"
