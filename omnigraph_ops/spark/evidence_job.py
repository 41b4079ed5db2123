"""The job `evidence`: two versions of a table compared row by row, as DataFrames.

One partition per fragment that differs reads its row ids and a hash per value, by pylance. The rows of both versions
are then partitioned by stable row id, so that each partition has both sides of its rows and is compared by itself. What
comes back is one sum per partition: the driver's memory does not grow with the table.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ByteType, LongType, StructField, StructType

from omnigraph_ops import serde
from omnigraph_ops.lance.evidence import ColumnFacts, ColumnHashes, RowVersions, column_hashes, row_versions
from omnigraph_ops.spark.job import FOUND, Job, found_row, in_tasks, open_table
from omnigraph_ops.stages.repair.compare import Compared, Sides, read_side
from omnigraph_ops.stages.repair.differences import ColumnDiff, Differences, RowDiff, Rows, diff_column, diff_rows

_ROWS_PER_PARTITION = 250_000
_BATCH_ROWS = 65_536
_BEFORE, _AFTER = 0, 1
_FIXED = ("id", "created", "updated")


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentRead:
    """One fragment that a task reads."""

    side: int
    version: int
    fragment_id: int
    columns: tuple[ColumnFacts, ...]
    """Those whose values are hashed, in the order of the comparable columns."""


def _evidence(spark: SparkSession, arguments: Namespace) -> Compared:
    """Compare the fragments of two versions that differ. Reads."""
    sides = Sides(
        before=read_side(open_table(arguments.dataset, arguments.before)),
        after=read_side(open_table(arguments.dataset, arguments.after)),
    )
    reads = list(_reads(sides, values=arguments.values))
    columns = len(reads[0].columns) if reads else 0
    nothing = Differences(rows=RowDiff(), columns=(ColumnDiff(),) * columns)
    if not reads:
        return Compared(differences=nothing, bytes_read=0)
    counted = spark.sparkContext.accumulator(0)
    rows = sum(f.rows for side in (sides.before, sides.after) for f in sides.differing(side))
    found = _compared(_hashed(spark, arguments.dataset, reads, counted), columns, -(-rows // _ROWS_PER_PARTITION))
    parts = [serde.from_json(Differences, row.found) for row in found.toLocalIterator()]
    return Compared(differences=reduce(add, parts, nothing), bytes_read=int(counted.value))


def _reads(sides: Sides, *, values: bool) -> Iterator[FragmentRead]:
    pairs = [pair for pair in sides.columns if pair.comparable] if values else []
    for number, side in ((_BEFORE, sides.before), (_AFTER, sides.after)):
        chosen = tuple(c for p in pairs if (c := p.before if number == _BEFORE else p.after) is not None)
        for fragment in sides.differing(side):
            yield FragmentRead(
                side=number,
                version=int(side.dataset.version),
                fragment_id=fragment.fragment_id,
                columns=chosen,
            )


def _hashed(spark: SparkSession, uri: str, reads: Sequence[FragmentRead], counted: Accumulator[int]) -> DataFrame:
    """Every row of these fragments with the hashes of its values: a partition per fragment."""
    columns = len(reads[0].columns)
    names = [*_FIXED, *(f"hash{n}" for n in range(columns))]
    schema = StructType([StructField("side", ByteType()), *(StructField(name, LongType()) for name in names)])
    numbers = spark.range(0, len(reads), 1, len(reads))
    return numbers.mapInArrow(in_tasks(partial(_read_all, uri, tuple(reads), counted)), schema)


def _read_all(
    uri: str, reads: Sequence[FragmentRead], counted: Accumulator[int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _read(uri, reads[number], counted)


def _read(uri: str, read: FragmentRead, counted: Accumulator[int]) -> Iterator[pa.RecordBatch]:
    """One fragment in this worker. Reads."""
    dataset = open_table(uri, read.version)
    versions = row_versions(dataset, [read.fragment_id])
    order = np.argsort(versions.ids)
    arrays = [versions.ids[order], versions.created[order], versions.updated[order]]
    bytes_read = versions.bytes_read
    for column in read.columns:
        hashed = column_hashes(dataset, [read.fragment_id], column)
        arrays.append(hashed.hashes[np.argsort(hashed.ids)])
        bytes_read += hashed.bytes_read
    counted.add(bytes_read)
    names = ["side", *_FIXED, *(f"hash{n}" for n in range(len(read.columns)))]
    sides = pa.array(np.full(len(order), read.side, np.int8))
    table = pa.table([sides, *(pa.array(array.view(np.int64)) for array in arrays)], names=names)
    yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def _compared(rows: DataFrame, columns: int, partitions: int) -> DataFrame:
    """One row per partition: what differs in it, as JSON."""
    apart = rows.repartition(max(partitions, 1), "id")
    compare: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]] = partial(_compare_part, columns)
    return apart.mapInArrow(in_tasks(compare), FOUND)


def _compare_part(columns: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compare both sides of the rows of one partition. Pure."""
    kept = list(batches)
    if not kept:
        return
    table = pa.Table.from_batches(kept)
    before, after = (table.filter(pc.equal(table["side"], side)) for side in (_BEFORE, _AFTER))
    rows = diff_rows(_versions(before), _versions(after))
    found, changed = list[ColumnDiff](), np.zeros(0, np.uint64)
    for number in range(columns):
        diff, ids = diff_column(_hashes(before, number), _hashes(after, number))
        found.append(diff)
        changed = np.union1d(changed, ids)
    yield found_row(Differences(rows=rows, columns=tuple(found), changed=Rows.of(changed)))


def _versions(side: pa.Table) -> RowVersions:
    ids, created, updated = (_numbers(side, name) for name in _FIXED)
    return RowVersions(ids=ids, created=created, updated=updated, bytes_read=0)


def _hashes(side: pa.Table, number: int) -> ColumnHashes:
    return ColumnHashes(ids=_numbers(side, "id"), hashes=_numbers(side, f"hash{number}"), bytes_read=0)


def _numbers(table: pa.Table, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    # A hash may have the highest bit: Spark's numbers are signed, the bits are the same.
    numbers: np.ndarray[tuple[int, ...], np.dtype[np.uint64]] = table[name].to_numpy().astype(np.int64).view(np.uint64)
    return numbers


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dataset", required=True, help="the table, as every executor reaches it")
    parser.add_argument("--before", type=int, required=True, help="the published version")
    parser.add_argument("--after", type=int, required=True, help="the newest version")
    parser.add_argument("--values", action="store_true", help="compare every value, not only row ids")


EVIDENCE = Job(
    name="evidence", summary="Compare two versions of a table.", subject="dataset", arguments=_arguments, work=_evidence
)
