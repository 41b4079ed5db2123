"""Rows by age: which column is a clock, what lies below a cut, and one delete of exactly that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import lance
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.lance.gateway import Dataset, DatasetMissing, lance_errors
from omnigraph_ops.models.rows import EpochUnit

_UNITS = {
    "s": ("Second", 1_000_000_000),
    "ms": ("Millisecond", 1_000_000),
    "us": ("Microsecond", 1_000),
    "ns": ("Nanosecond", 1),
}
_NARROWEST = {EpochUnit.S: 32, EpochUnit.MS: 64}
"""Bits of an integer that holds the time of today."""
_DAY = 86_400 * 1_000_000_000
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A column that says when, as whole numbers since 1970."""

    column: str
    nanoseconds: int
    """What one of its units lasts."""
    sql_type: str | None
    """Arrow's name of its type as Lance's SQL spells it; None for an integer."""

    def cut_before(self, at_us: int, *, days: bool = False) -> int:
        """The largest cut that is not after a moment: all below lies wholly before it. Pure.

        Args:
            days: a date64 may be of days, as Arrow means it; engines keep times in it.
        """
        of_a_day = _DAY // self.nanoseconds if days and self.sql_type == "Date64" else 1
        cut = at_us * 1000 // self.nanoseconds
        return cut - cut % of_a_day

    def at_us(self, value: int) -> int:
        """A value of the column in microseconds since the epoch. Pure."""
        return value * self.nanoseconds // 1000

    def below(self, cut: int) -> str:
        """The predicate of the rows strictly below a cut; a null is not. Pure.

        No index answers `IS TRUE`: one that Lance before 9 folded still has what rows said before an update, and a
        delete would believe it.
        """
        literal = str(cut) if self.sql_type is None else f"arrow_cast({cut}, '{self.sql_type}')"
        return f"(`{self.column}` < {literal}) IS TRUE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What lies below a cut at one version of a table."""

    rows: int
    """All rows of the table."""
    expired: int
    oldest: int | None = None
    newest: int | None = None
    sample: tuple[str, ...] = ()


Keys: TypeAlias = pa.Array
"""Values of one column of some rows."""
Rows: TypeAlias = pa.Table
"""Values of some columns of some rows."""


_CLOCKS = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)


def clock_of(dataset: Dataset, column: str, unit: EpochUnit | None) -> Clock:
    """The clock that a column is; `InvalidInput` when it is none, or its unit is missing. Reads."""
    schema = dataset.schema
    if not column or "`" in column or schema.get_field_index(column) < 0:
        clocks = sorted(f.name for f in schema if any(is_kind(f.type) for is_kind in _CLOCKS))
        raise InvalidInput(
            f"there is no column {column!r} in {dataset.uri}; its dates, times and integers are "
            f"{', '.join(clocks) or 'none'}; nothing was deleted"
        )
    kind = schema.field(column).type
    if pa.types.is_integer(kind):
        if unit is None:
            raise InvalidInput(
                f"{column!r} is an integer: say what it counts by the unit s or ms of its policy (--unit); nothing was "
                "deleted"
            )
        if kind.bit_width < _NARROWEST[unit]:
            raise InvalidInput(f"{column!r} is {kind}, too narrow for {unit} since 1970; nothing was deleted")
        return Clock(column=column, nanoseconds=_UNITS[unit][1], sql_type=None)
    if unit is not None:
        raise InvalidInput(f"{column!r} is {kind}, which knows its unit: leave the unit out; nothing was deleted")
    if pa.types.is_date32(kind):
        return Clock(column=column, nanoseconds=_DAY, sql_type="Date32")
    if pa.types.is_date64(kind):
        return Clock(column=column, nanoseconds=_UNITS["ms"][1], sql_type="Date64")
    if pa.types.is_timestamp(kind) and "'" not in (kind.tz or "") and '"' not in (kind.tz or ""):
        name, nanoseconds = _UNITS[kind.unit]
        zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
        return Clock(column=column, nanoseconds=nanoseconds, sql_type=f"Timestamp({name}, {zone})")
    raise InvalidInput(f"{column!r} is {kind}: rows expire by a Date, a DateTime or an integer; nothing was deleted")


def expired_rows(dataset: Dataset, clock: Clock, cut: int) -> Expired:
    """Count what lies below the cut, with its ends and a few keys. Reads one column."""
    with lance_errors(f"read {clock.column} of {dataset.uri}"):
        rows, ends = int(dataset.count_rows()), _Ends()
        for batch in dataset.scanner(columns=[clock.column], filter=clock.below(cut)).to_batches():
            ends.add(_numbers(batch.column(0)))
    sample = _sample(dataset, clock.below(cut)) if ends.rows else ()
    return Expired(rows=rows, expired=ends.rows, oldest=ends.least, newest=ends.most, sample=sample)


def count_below(dataset: Dataset, clock: Clock, cut: int) -> int:
    """Rows strictly below the cut. Reads."""
    with lance_errors(f"count the expired rows of {dataset.uri}"):
        return int(dataset.count_rows(filter=clock.below(cut)))


def columns_below(dataset: Dataset, clock: Clock, cut: int, columns: Sequence[str]) -> Rows:
    """Some columns of the rows strictly below the cut, dates and times as text. Reads."""
    with lance_errors(f"read the expired rows of {dataset.uri}"):
        found = dataset.to_table(columns=list(columns), filter=clock.below(cut)).combine_chunks()
    return pa.table([_as_text(column) for column in found.columns], names=found.schema.names)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates and times as ISO 8601, others as they are. Python knows no year below 1, and no time of a date64. Pure."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.string())
    if pa.types.is_date64(column.type):
        return pc.strftime(column.cast(pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%SZ")
    return column


def ids_below(dataset: Dataset, clock: Clock, cut: int) -> Keys:
    """The ids of the rows strictly below the cut. Reads."""
    return columns_below(dataset, clock, cut, ("id",)).column(0).combine_chunks()


def ids_left(dataset: Dataset, ids: Keys, column: str = "id") -> Keys:
    """Those of the ids that the open version still has in a column, as often as it has them. Reads one column."""
    with lance_errors(f"look for removed rows in {dataset.uri}"):
        found = [among(batch.column(0), ids) for batch in dataset.scanner(columns=[column]).to_batches()]
    return pa.chunked_array(found, ids.type).combine_chunks()


def among(keys: Keys, others: Keys) -> Keys:
    """Those of the keys that are among others. Pure."""
    return keys.filter(pc.is_in(keys, value_set=others))


def besides(keys: Keys, others: Keys) -> Keys:
    """Those of the keys that are not among others. Pure."""
    return keys.filter(pc.invert(pc.is_in(keys, value_set=others)))


def touching(dataset: Dataset, columns: Sequence[str], keys: Keys) -> Keys:
    """Ids of the edges that have one of those keys in one of the columns. Reads three columns."""
    with lance_errors(f"look for edges in {dataset.uri}"):
        found = [
            batch.column("id").filter(reduce(pc.or_, [pc.is_in(batch.column(c), value_set=keys) for c in columns]))
            for batch in dataset.scanner(columns=["id", *columns]).to_batches()
        ]
    return pa.chunked_array(found, pa.string()).combine_chunks()


def ends_besides(dataset: Dataset, columns: Sequence[str], keys: Keys, edges: Keys) -> Keys:
    """Those of the keys that another edge than those has in one of the columns. Reads three columns."""
    found = list[Keys]()
    with lance_errors(f"look for edges in {dataset.uri}"):
        for batch in dataset.scanner(columns=["id", *columns]).to_batches():
            others = batch.filter(pc.invert(pc.is_in(batch.column("id"), value_set=edges)))
            found += [among(others.column(column), keys) for column in columns]
    return pa.chunked_array(found, keys.type).combine_chunks()


def left_with_fewer(dataset: Dataset, edges: Keys, nodes: Keys | None, least: int) -> str | None:
    """A node that would be the source of too few edges without those, None where there is none. Reads two columns.

    Args:
        edges: ids of those that go.
        nodes: ids of those that go themselves, None where none do.
    """
    with lance_errors(f"look for edges in {dataset.uri}"):
        found = [
            batch.column("src").filter(pc.is_in(batch.column("id"), value_set=edges))
            for batch in dataset.scanner(columns=["id", "src"]).to_batches()
        ]
    losing = pa.chunked_array(found, pa.string()).unique()
    losing = losing if nodes is None else besides(losing, nodes)
    values, counts = pc.value_counts(ends_besides(dataset, ("src",), losing, edges)).flatten()
    few = besides(losing, values.filter(pc.greater_equal(counts, least)))
    return few[0].as_py() if len(few) else None


def delete_below(dataset: Dataset, clock: Clock, cut: int) -> int:
    """Mark every row of the open version below the cut as deleted, in one commit; how many. Destroys rows.

    A conflict is raised and not replayed: whoever planned counts again before the next attempt.
    """
    with lance_errors(f"delete the expired rows of {dataset.uri}"):
        return int(dataset.delete(clock.below(cut), conflict_retries=0)["num_deleted_rows"])


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentDelete:
    """What a delete that is not committed does to one fragment."""

    fragment_id: int
    rows: int
    left: str | None
    """The fragment afterwards, as Lance writes it; None: nothing is left of it."""
    file: str | None
    """Its new deletion file, below the dataset."""


def fragment_ids(dataset: Dataset) -> tuple[int, ...]:
    """The fragments of the open version. Pure."""
    return tuple(fragment.fragment_id for fragment in dataset.get_fragments())


def delete_in_fragment(dataset: Dataset, fragment_id: int, predicate: str) -> FragmentDelete | None:
    """Mark the rows of a fragment as deleted, without a commit; None when there are none. Writes a deletion file."""
    with lance_errors(f"delete expired rows in fragment {fragment_id} of {dataset.uri}"):
        fragment = dataset.get_fragment(fragment_id)
        if fragment is None:
            raise DatasetMissing(f"version {dataset.version} of {dataset.uri} has no fragment {fragment_id}")
        before, after = fragment.metadata, fragment.delete(predicate)
        if after is None:
            return FragmentDelete(fragment_id=fragment_id, rows=before.num_rows, left=None, file=None)
        if after.num_rows == before.num_rows or after.deletion_file is None:
            return None
        return FragmentDelete(
            fragment_id=fragment_id,
            rows=before.num_rows - after.num_rows,
            left=json.dumps(after.to_json()),
            file=after.deletion_file.path(fragment_id),
        )


def commit_deletes(dataset: Dataset, deletes: Iterable[FragmentDelete], predicate: str) -> None:
    """Commit deletes of the open version as one; whoever deleted, changed or moved rows of them since makes it fail.

    Destroys rows.
    """
    updated, gone = list[lance.FragmentMetadata](), list[int]()
    for each in deletes:
        if each.left is None:
            gone.append(each.fragment_id)
        else:
            updated.append(lance.FragmentMetadata.from_json(each.left))
    operation = lance.LanceOperation.Delete(updated, gone, predicate)
    with lance_errors(f"delete the expired rows of {dataset.uri}"):
        lance.LanceDataset.commit(dataset, operation, read_version=int(dataset.version), max_retries=0)


class _Ends:
    """Count, least and most of a stream of numbers."""

    def __init__(self) -> None:
        self.rows = 0
        self.least: int | None = None
        self.most: int | None = None

    def add(self, numbers: pa.Array) -> None:
        if len(numbers) == 0:
            return
        ends = pc.min_max(numbers).as_py()
        self.rows += len(numbers)
        self.least = ends["min"] if self.least is None else min(self.least, ends["min"])
        self.most = ends["max"] if self.most is None else max(self.most, ends["max"])


def _numbers(column: pa.Array) -> pa.Array:
    """The whole numbers that a clock column stores. Pure."""
    if pa.types.is_integer(column.type):
        return column
    return column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())


def _sample(dataset: Dataset, predicate: str) -> tuple[str, ...]:
    """The ids of a few rows, row ids where there is no such column. Reads."""
    named = dataset.schema.get_field_index("id") >= 0
    with lance_errors(f"read some expired rows of {dataset.uri}"):
        columns = {"columns": ["id"]} if named else {"columns": [], "with_row_id": True}
        table = dataset.scanner(filter=predicate, limit=_SHOWN, **columns).to_table()
    return tuple(str(value) for value in table.column("id" if named else "_rowid").to_pylist())
