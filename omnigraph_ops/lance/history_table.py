"""The Lance table of the history: its rows, and how they are appended, read and kept few.

Records of the history as rows of its table and back: one row per run, one per table of it. Both kinds share their
columns, so that a trend of the graph (`table_key IS NULL`) and one of a table (`table_key = '…'`) are the same plain
query, over the few columns it names, for any reader of Lance.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import lance
import pyarrow as pa
from lance.dataset import ColumnOrdering
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from omnigraph_ops.lance.gateway import (
    CommitConflict,
    CommitContention,
    DatasetMissing,
    LanceFailure,
    lance_errors,
    refuse_file,
)
from omnigraph_ops.models.history import (
    Answer,
    Measured,
    RunDecision,
    RunHeader,
    RunOrigin,
    RunOutcome,
    RunRecord,
    TableCounts,
    TableRecord,
    TableTrendPoint,
    UnitWindow,
    Work,
)

VERSION = "1"
VERSION_KEY = "omnigraph_ops:history_version"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = pa.timestamp("us", tz="UTC")
_INTEGERS = ("version", "rows", "fragments", "data_bytes", "dead_bytes", "versions")
_SHARES = ("deleted_share", "unindexed_share")
_HEADER = tuple(f.name for f in fields(RunHeader))
_WORK = tuple(f.name for f in fields(Work))
_MEASURED = tuple(f.name for f in fields(Measured))


def _measured(when: str) -> list[pa.Field]:
    types = {**dict.fromkeys(_INTEGERS, pa.int64()), **dict.fromkeys(_SHARES, pa.float64()), "score": pa.int32()}
    return [pa.field(f"{name}_{when}", types[name]) for name in _MEASURED]


_DECISION = pa.struct(
    [
        pa.field("stage", pa.string()),
        pa.field("answer", pa.string()),
        pa.field("by", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("at", _TIME),
        pa.field("forced", pa.bool_()),
    ]
)
_WINDOW = pa.struct([pa.field("unit", pa.string()), pa.field("seconds", pa.float64())])

SCHEMA = pa.schema(
    [
        pa.field("record_id", pa.string()),
        pa.field("run_id", pa.string()),
        pa.field("table_key", pa.string()),
        pa.field("outcome", pa.string()),
        pa.field("started_at", _TIME),
        pa.field("ended_at", _TIME),
        pa.field("seconds", pa.float64()),
        pa.field("origin", pa.string()),
        pa.field("verb", pa.string()),
        pa.field("triggered_by", pa.string()),
        pa.field("dag_id", pa.string()),
        pa.field("dag_run_id", pa.string()),
        pa.field("logical_date", _TIME),
        pa.field("graph", pa.string()),
        pa.field("stamp", pa.int32()),
        pa.field("tool_version", pa.string()),
        pa.field("stages", pa.list_(pa.string())),
        pa.field("reason", pa.string()),
        pa.field("errors", pa.list_(pa.string())),
        pa.field("attention", pa.list_(pa.string())),
        pa.field("notes", pa.list_(pa.string())),
        pa.field("tables_succeeded", pa.int64()),
        pa.field("tables_failed", pa.int64()),
        pa.field("tables_nothing_to_do", pa.int64()),
        pa.field("tables_interrupted", pa.int64()),
        *_measured("before"),
        *_measured("after"),
        *(pa.field(name, pa.float64() if name == "write_amplification" else pa.int64()) for name in _WORK),
        pa.field("executor", pa.string()),
        pa.field("windows", pa.list_(_WINDOW)),
        pa.field("decisions", pa.list_(_DECISION)),
    ],
    metadata={VERSION_KEY: VERSION},
)


def rows_of(record: RunRecord) -> pa.Table:
    """The rows of one record: the run first, then its tables. Pure."""
    rows = [_run_row(record), *(_table_row(record, table) for table in record.tables)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def records_of(table: pa.Table) -> tuple[RunRecord, ...]:
    """The newest record of every run in these rows, newest first; a missing column reads as nothing. Pure."""
    rows = table.to_pylist()
    newest: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["table_key"] is None and row["record_id"] > newest.get(row["run_id"], {"record_id": ""})["record_id"]:
            newest[row["run_id"]] = row
    tables: dict[str, dict[str, TableRecord]] = {}
    for row in rows:
        if row["table_key"] is not None:  # twice where the reply to a commit was lost, and Lance made another one
            tables.setdefault(row["record_id"], {})[row["table_key"]] = _table_record(row)
    found = [_run_record(row, tables.get(row["record_id"], {}).values()) for row in newest.values()]
    return tuple(sorted(found, key=lambda r: (r.header.started_at_us, r.record_id), reverse=True))


def points_of(table: pa.Table) -> tuple[TableTrendPoint, ...]:
    """The runs of one table in these rows, newest first; of a run that was written twice the newer record. Pure."""
    newest: dict[str, dict[str, Any]] = {}
    for row in sorted(table.to_pylist(), key=lambda row: str(row["record_id"])):
        newest[row["run_id"]] = row
    points = [
        TableTrendPoint(
            run_id=row["run_id"],
            started_at_us=_us(row["started_at"]) or 0,
            ended_at_us=_us(row["ended_at"]) or 0,
            verb=row["verb"],
            table=_table_record(row),
        )
        for row in newest.values()
    ]
    return tuple(sorted(points, key=lambda p: (p.started_at_us, p.run_id), reverse=True))


def time_of(microseconds: int | None) -> datetime | None:
    """A moment as Arrow takes it. Pure."""
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)


def _run_row(record: RunRecord) -> dict[str, Any]:
    return {
        **_identity(record),
        **_result(record),
        "table_key": None,
        "seconds": record.seconds,
        "stages": [],
        "reason": "",
        "errors": list(record.errors),
        "attention": list(record.attention),
        "notes": list(record.notes),
        **{f"tables_{name}": number for name, number in asdict(record.counts).items()},
        "windows": [],
    }


def _table_row(record: RunRecord, table: TableRecord) -> dict[str, Any]:
    return {
        **_identity(record),
        **_result(table),
        "table_key": table.table_key,
        "seconds": table.armed_seconds,
        "stages": list(table.stages),
        "reason": table.reason,
        "errors": [] if table.error is None else [table.error],
        "attention": [],
        "notes": [],
        "executor": table.executor,
        "windows": [asdict(w) for w in table.windows],
    }


def _identity(record: RunRecord) -> dict[str, Any]:
    header = asdict(record.header)
    times = {
        "started_at": time_of(header.pop("started_at_us")),
        "logical_date": time_of(header.pop("logical_date_us")),
        "ended_at": time_of(record.ended_at_us),
    }
    return {**header, **times, "origin": record.header.origin.value, "record_id": record.record_id}


def _result(of: RunRecord | TableRecord) -> dict[str, Any]:
    return {
        "outcome": of.outcome.value,
        **{f"{name}_before": value for name, value in asdict(of.before).items()},
        **{f"{name}_after": value for name, value in asdict(of.after).items()},
        **asdict(of.work),
        "decisions": [_decision_row(d) for d in of.decisions],
    }


def _decision_row(decision: RunDecision) -> dict[str, Any]:
    row = asdict(decision)
    at = time_of(row.pop("at_us"))
    return {**row, "answer": decision.answer.value, "at": at}


def _run_record(row: Mapping[str, Any], tables: Iterable[TableRecord]) -> RunRecord:
    times = {"started_at_us": _us(row["started_at"]) or 0, "logical_date_us": _us(row.get("logical_date"))}
    known = {name: row.get(name) for name in _HEADER if name not in times}
    counts = {f.name: row.get(f"tables_{f.name}") or 0 for f in fields(TableCounts)}
    return RunRecord(
        record_id=row["record_id"],
        header=RunHeader(**{**known, **times, "origin": RunOrigin(row["origin"])}),  # type: ignore[arg-type]
        ended_at_us=_us(row["ended_at"]) or 0,
        outcome=RunOutcome(row["outcome"]),
        errors=tuple(row.get("errors") or ()),
        attention=tuple(row.get("attention") or ()),
        notes=tuple(row.get("notes") or ()),
        counts=TableCounts(**counts),
        before=_state(row, "before"),
        after=_state(row, "after"),
        work=_work(row),
        decisions=_decisions(row),
        tables=tuple(sorted(tables, key=lambda t: t.table_key)),
    )


def _table_record(row: Mapping[str, Any]) -> TableRecord:
    return TableRecord(
        table_key=row["table_key"],
        outcome=RunOutcome(row["outcome"]),
        stages=tuple(row.get("stages") or ()),
        reason=row.get("reason") or "",
        error=next(iter(row.get("errors") or ()), None),
        before=_state(row, "before"),
        after=_state(row, "after"),
        work=_work(row),
        executor=row.get("executor"),
        windows=tuple(UnitWindow(**w) for w in row.get("windows") or ()),
        decisions=_decisions(row),
    )


def _state(row: Mapping[str, Any], when: str) -> Measured:
    return Measured(**{name: row.get(f"{name}_{when}") for name in _MEASURED})


def _work(row: Mapping[str, Any]) -> Work:
    return Work(**{name: row[name] for name in _WORK if row.get(name) is not None})


def _decisions(row: Mapping[str, Any]) -> tuple[RunDecision, ...]:
    return tuple(_decision(dict(d)) for d in row.get("decisions") or ())


def _decision(row: dict[str, Any]) -> RunDecision:
    at_us = _us(row.pop("at"))
    return RunDecision(**{**row, "answer": Answer(row["answer"]), "at_us": at_us})


def _us(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // timedelta(microseconds=1)


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


@contextlib.contextmanager
def _remedied() -> Iterator[None]:
    """Say what is to be done about damage. Pure."""
    try:
        yield
    except LanceFailure as error:
        if type(error) is not LanceFailure:
            raise
        raise LanceFailure(f"{error}; it holds only the history of runs: if it is damaged, remove it") from None


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
        with _remedied(), lance_errors(f"read {self.uri}"):
            order: list[ColumnOrdering | str] | None = None
            if newest is not None:
                order = [ColumnOrdering("started_at", ascending=False)]
            scanner = dataset.scanner(filter=where, limit=newest, order_by=order)
            found: pa.Table = scanner.to_table()
        return found

    def _open(self) -> lance.LanceDataset:
        with _remedied(), lance_errors(f"open {self.uri}"):
            refuse_file(self.uri)
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
        """Create the table with these rows, unless somebody else is first. Writes.

        Not by `write_dataset`: in pylance 13 its commit retries, and replaces the table of whoever was first.
        """
        try:
            with lance_errors(f"create {self.uri}"):
                options = self._options
                fragments = lance.fragment.write_fragments(rows, self.uri, mode="create", storage_options=options)
                made = lance.LanceOperation.Overwrite(rows.schema, fragments)
                lance.LanceDataset.commit(self.uri, made, read_version=0, max_retries=0, storage_options=options)
        except LanceFailure as error:
            if self._is_there():
                raise CommitConflict(f"{self.uri} was created by somebody else first") from error
            raise

    def _is_there(self) -> bool:
        try:
            self._open()
        except LanceFailure:
            return False
        return True


def moment_literal(microseconds: int) -> str:
    """A moment as a literal of a filter. Pure."""
    return f"timestamp '{time_of(microseconds):%Y-%m-%d %H:%M:%S.%f}'"


def literal(text: str) -> str:
    """A text as a literal of a filter. Pure."""
    return "'" + text.replace("'", "''") + "'"
