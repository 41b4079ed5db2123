"""Rewrites that readers could not read: an array of text holds 2 GiB, and more is an "Offset overflow error".

Readers fill such an array with 8,192 rows of one fragment, and where they ask for batches of 32 MiB, as 0.9.0 does for
exports, merges and updates, with many more: before it has decoded any, Lance takes a text for 64 bytes
(lance-encoding 9, `estimate_bytes_per_row`). Fragments of loads have fewer rows: of a megabyte each, 30. Merged they
have more, and such a reader failed. So fragments of long texts are merged up to a bound, by what a few of their rows
take. Texts are stored compressed, so whoever rewrites also measures what was written.

From format 2.2 on, Lance writes a page whose values are all the same as that value and the places of its nulls, and a
reader gets the value in place of each null as well (lance-encoding 7 to 13, `ConstantPageDecoder`). Fragments without
any value share a page with the one that has a value once they are merged: one note of 30 KB in 80,000 rows became
2.4 GB, and the engine, which joins what it read, failed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph_ops.lance.gateway import Dataset, LanceFailure, fields_of, lance_errors
from omnigraph_ops.lance.rewrites import RewriteResult, data_bytes, result_sources

_BY_ROWS = 8192
"""What Lance reads at a time where nobody says otherwise."""
_READER_ROWS = 2**25 // (2 * 64)
"""The most that are read at a time: 32 MiB of an id and one text, before the length of any is known."""
_FIRST_FORMAT = (2, 2)
_HEADER_BYTES = 20
"""What precedes a text of at most 2 GiB in its buffer: their count, their lengths and two offsets."""
_LEVEL_BYTES = 2
"""Of each row in the buffer that tells the nulls."""
_ARRAY_BYTES = 2**31
"""What an array of text holds."""
_MOST_BYTES = _ARRAY_BYTES // 2
"""Of pages of one value: the values of the other pages come on top."""
_MOST_READ_BYTES = _ARRAY_BYTES * 7 // 8
"""Of texts that are read at a time: rows that are deleted later make room for others."""
_FRAGMENT_BYTES = _ARRAY_BYTES // 4
"""Of the texts of what becomes one fragment: those of other rows may be longer than the ones that were looked at."""
_LEAST_BYTES = 2**24
"""What new files may add without a look at the files that stay."""
_BATCH_BYTES = 2**24
_SAMPLED_BYTES, _SAMPLED_ROW_BYTES = 2**20, 16
"""Of files, in all and per row: below, no text is looked at, however well it is compressed."""
_SAMPLED_FRAGMENTS, _SAMPLED_ROWS = 4, 16
_LZ4_FACTOR = 255
"""The most that it makes of a byte."""
_TOO_LONG = "omnigraph_ops_too_long"
"""The key of a result as JSON that names the column whose texts readers could not hold; Lance does not look at it."""


def most_task_bytes(dataset: Dataset) -> int | None:
    """The most bytes of data that may become one fragment, None where no text is long. Reads a few rows."""
    with lance_errors(f"inspect {dataset.uri}"):
        per_row = {f: data_bytes(f.metadata) / max(f.metadata.physical_rows, 1) for f in dataset.get_fragments()}
    long = sorted((f for f, size in per_row.items() if size > _SAMPLED_ROW_BYTES), key=per_row.__getitem__)
    names = sorted(set(_texts(dataset).values()))
    if not names or sum(data_bytes(f.metadata) for f in long) < _SAMPLED_BYTES:
        return None
    texts, rows, stored = Counter[str](), 0, 0.0
    for fragment in long[-_SAMPLED_FRAGMENTS:]:
        # Whoever needs a file that is not there will tell.
        with contextlib.suppress(LanceFailure), lance_errors(f"read texts of {dataset.uri}"):
            few = _at_a_time(per_row[fragment])
            found = fragment.scanner(columns=names, limit=few, batch_size=few).to_table()
            texts.update({name: found.column(name).nbytes for name in names})
            rows += found.num_rows
            stored += found.num_rows * per_row[fragment]
    longest = max(texts.values(), default=0)
    return int(_FRAGMENT_BYTES * stored / longest) if longest * _READER_ROWS > _FRAGMENT_BYTES * rows else None


def divided(dataset: Dataset, most: int | None, *, by_bytes: bool) -> dict[int, int]:
    """The fragments with more text than readers can read, by id, and the rows that each new one gets. Pure.

    Args:
        most: as `most_task_bytes` says.
        by_bytes: whether there are readers that ask for batches by their bytes; a fragment is divided for their sake
            only where there are, while what is merged anew is bound for all.
    """
    at_a_time = _READER_ROWS if by_bytes else _BY_ROWS
    found = dict[int, int]()
    if most is None:
        return found
    for fragment in (f.metadata for f in dataset.get_fragments()):
        size, rows = data_bytes(fragment), int(fragment.physical_rows)
        texts = _FRAGMENT_BYTES * size / most * min(rows, at_a_time) / max(rows, 1)
        if rows > 1 and size > rows * _SAMPLED_ROW_BYTES and texts > _ARRAY_BYTES:
            found[int(fragment.id)] = max(1, rows * most // size)
    return found


def with_limits(dataset: Dataset, result: str) -> str:
    """A result of a rewrite that says whether its texts are too long for readers. Reads compressed texts of its files.

    Args:
        dataset: the table that was rewritten.
    """
    made = RewriteResult.from_json(result)
    if len(made.original_fragments) == 1:
        return result  # readers had all of it in one fragment before
    # Whoever commits will tell of a file that is not there.
    with contextlib.suppress(LanceFailure), lance_errors(f"read the length of texts of {dataset.uri}"):
        columns = _texts(dataset)
        for fragment in made.new_fragments:
            for file, name in _hiding(dataset, fragment, columns):
                if _is_too_long(dataset, file, name):
                    return json.dumps(json.loads(result) | {_TOO_LONG: name})
    return result


def _hiding(dataset: Dataset, fragment: Any, columns: Mapping[int, str]) -> Iterator[tuple[Any, str]]:
    """Files and columns of a fragment whose texts have to be read to tell how long they are. Reads footers."""
    for file in fragment.files:
        pages = _pages(dataset, file, columns)
        names = {columns[field] for field, found in pages if _hides(found, fragment.physical_rows)}
        yield from ((file, name) for name in sorted(names))


def swollen(dataset: Dataset, results: Sequence[str]) -> dict[int, str]:
    """The results, by number, that would make readers fail, with what would. Reads footers, of new files mostly.

    Args:
        dataset: the table that the results are for; its fragments that no result replaces stay.
    """
    marked = {number: json.loads(payload)[_TOO_LONG] for number, payload in enumerate(results) if _TOO_LONG in payload}
    found = {number: f"the texts of {name} would be more than a reader can hold" for number, name in marked.items()}
    return found | _with_long_nulls(dataset, {n: payload for n, payload in enumerate(results) if n not in found})


def refuse_swollen(dataset: Dataset, table_key: str, results: Sequence[str]) -> None:
    """Raise `LanceFailure` where committing these results would make readers fail. Reads footers."""
    for why in swollen(dataset, results).values():
        raise LanceFailure(
            f"{table_key} cannot be rewritten: merged, {why}, and readers would fail; nothing was committed, the table "
            "stays readable"
        )


def _with_long_nulls(dataset: Dataset, results: Mapping[int, str]) -> dict[int, str]:
    """Those whose pages of one value take too much. Reads footers."""
    if not results:
        return {}
    with lance_errors(f"read the footers of {dataset.uri}"):
        groups = {number: RewriteResult.from_json(payload).new_fragments for number, payload in results.items()}
        replaced = {number for payload in results.values() for number, _ in result_sources(payload)}
        staying = [f.metadata for f in dataset.get_fragments() if f.fragment_id not in replaced]
        if sum(map(_bound, itertools.chain(staying, *groups.values()))) <= _MOST_BYTES:
            return {}
        columns = _texts(dataset)
        made = {number: _sizes(dataset, fragments, columns) for number, fragments in groups.items()}
        large = {field for field, size in sum(made.values(), Counter[int]()).items() if size >= _LEAST_BYTES}
        total = _sizes(dataset, staying if large else (), {field: columns[field] for field in large})
    found: dict[int, str] = {}
    for number, sizes in sorted(made.items(), key=lambda each: each[1].total()):
        full = [field for field in large if sizes[field] and total[field] + sizes[field] > _MOST_BYTES]
        if full:
            found[number] = (
                f"each null of {columns[full[0]]} would take as much memory as its one long value (shorten it, or "
                "write its row again in one load with a row that has another)"
            )
        else:
            total += sizes
    return found


def _bound(fragment: Any) -> float:
    """What such pages of a fragment take at most, by the size of its files: value and levels lie in them. Pure."""
    return sum(float(file.file_size_bytes or "inf") ** 2 for file in fragment.files) / (4 * _LEVEL_BYTES)


def _texts(dataset: Dataset) -> dict[int, str]:
    """The columns, nested ones too, whose values lie in arrays of at most 2 GiB; by field id. Reads the schema."""
    fields = [(top.name(), field) for top in dataset.lance_schema.fields() for field in fields_of(top)]
    kinds = ((name, int(field.id()), field.to_arrow().type) for name, field in fields)
    return {number: name for name, number, kind in kinds if pa.types.is_string(kind) or pa.types.is_binary(kind)}


def _sizes(dataset: Dataset, fragments: Iterable[Any], columns: Mapping[int, str]) -> Counter[int]:
    """What pages of one value and of nulls take once they are read, by field id. Reads footers."""
    sizes = Counter[int]()
    for file in (file for fragment in fragments for file in fragment.files):
        if (file.file_major_version, file.file_minor_version) >= _FIRST_FORMAT:
            sizes.update({field: sum(map(_size, pages)) for field, pages in _pages(dataset, file, columns)})
    return sizes


def _pages(dataset: Dataset, file: Any, columns: Mapping[int, str]) -> Iterator[tuple[int, Sequence[Any]]]:
    """The pages of those of the columns that a file has, by field id. Reads its footer."""
    # Of a file before format 2.0 no places are listed.
    listed = zip(file.fields, file.column_indices, strict=True) if file.column_indices else ()
    places = {field: place for field, place in listed if field in columns and place >= 0}
    # A file with a base is not below this dataset, and no rewrite made it.
    if places and file.base_id is None:
        found = LanceFileReader(_path(dataset, file), dataset.initial_storage_options).metadata().columns
        yield from ((field, found[place].pages) for field, place in places.items())


def _path(dataset: Dataset, file: Any) -> str:
    return f"{dataset.uri}/data/{file.path}"


def _hides(pages: Sequence[Any], rows: int) -> bool:
    """Whether the texts of a column may take much more than what is stored of them, or what is stored is much. Pure."""
    # Pages of one value and of nulls are counted for all of the table.
    others = [page for page in pages if page.buffers and not _size(page)]
    stored = [(str(page.encoding), [int(buffer.size) for buffer in page.buffers]) for page in others]
    at_a_time = min(rows, _READER_ROWS)
    if any("Zstd" in encoding or _longest(encoding, sizes) * at_a_time > _MOST_BYTES for encoding, sizes in stored):
        return True
    return sum(sum(sizes) for _, sizes in stored) * at_a_time > _MOST_BYTES * rows


def _longest(encoding: str, sizes: Sequence[int]) -> int:
    """The bytes of what a page has once for many rows, 0 where it has each text for itself. Pure."""
    if "ConstantLayout" in encoding:
        return sizes[0]
    # Format 2.0 writes `Dictionary`, later ones say of every page whether it has one.
    is_dictionary = "dictionary: Some" in encoding or "Dictionary" in encoding
    return sizes[-1] * (_LZ4_FACTOR if "Lz4" in encoding else 1) if is_dictionary else 0


def _is_too_long(dataset: Dataset, file: Any, name: str) -> bool:
    """Whether a reader would hold too much of a column in the rows that it reads at a time. Reads the column."""
    reader = LanceFileReader(_path(dataset, file), dataset.initial_storage_options, columns=[name])
    rows = reader.num_rows()
    batch = _at_a_time((file.file_size_bytes or 0) / max(rows, 1))
    for start in range(0, rows, _READER_ROWS):
        count, size = min(_READER_ROWS, rows - start), 0
        for texts in reader.read_range(start, count, batch_size=batch, batch_readahead=2).to_batches():
            size += texts.nbytes
            if size > _MOST_READ_BYTES:
                return True
        batch = _at_a_time(size / count, _READER_ROWS)
    return False


def _at_a_time(row_bytes: float, most: int = _SAMPLED_ROWS) -> int:
    """How many rows of that size are read together. Pure."""
    return max(1, min(most, int(_BATCH_BYTES / max(row_bytes, 1))))


def _size(page: Any) -> int:
    """What a page with one value and with nulls takes once it is read, 0 for every other page. Pure."""
    if len(page.buffers) != 3:
        return 0
    value, _, levels = (int(buffer.size) for buffer in page.buffers)
    size = (value - _HEADER_BYTES) * (levels // _LEVEL_BYTES)
    if size <= 0 or not (encoding := str(page.encoding)).startswith("PageLayout") or "ConstantLayout" not in encoding:
        return 0
    # The inner layers come first: a null list has no item.
    return size if "NullableItem" in encoding.partition("List")[0] else 0
