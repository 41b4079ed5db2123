"""An inventory file in place of a listing: CSV, JSON lines or Parquet, as S3 Inventory writes them or simpler.

Columns by name: `path`, `size`, `last_modified`, or `Bucket`, `Key`, `Size`, `LastModifiedDate`. Paths may be relative
to the graph, absolute or URIs; rows outside of the graph are counted and ignored. Of an inventory of all versions only
the current ones count: `IsLatest`, `IsDeleteMarker`.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.storage.inventory import Stored
from omnigraph_ops.storage.parquet import parquet_groups, parquet_rows

_PATH, _SIZE = ("path", "key"), ("size",)
_TIME = ("last_modified", "lastmodifieddate", "last_modified_date", "lastmodified")
_LATEST, _MARKER = ("islatest", "is_latest"), ("isdeletemarker", "is_delete_marker")
_NAMES = frozenset({"bucket", *_PATH, *_SIZE, *_TIME, *_LATEST, *_MARKER})
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_LONGEST_LINE = 1024 * 1024
"""A key of S3 has at most 1,024 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A row group of a Parquet file, or a whole file of another format."""

    group: int = 0
    first: int = 1
    """Number of its first row."""


@dataclass(slots=True, kw_only=True)
class Inventory:
    """The rows of one inventory file that belong to one graph."""

    file: Path
    root: str
    foreign: int = 0
    """Rows outside of the graph, known when all were read."""

    @classmethod
    def of_file(cls, file: Path, root: str) -> Inventory:
        """An inventory of the graph at `root`; `InvalidInput` when there is no such file. Reads."""
        if not file.is_file():
            raise InvalidInput(f"there is no inventory file {file}; nothing was deleted")
        return cls(file=file, root=root)

    def rows(self) -> Iterator[Stored]:
        """Every file that is inside the graph, once; `InvalidInput` names the first malformed row. Reads."""
        seen: set[str] = set()
        for _, stored in self.numbered_rows():
            if stored is None:
                self.foreign += 1
            elif stored.path not in seen:
                seen.add(stored.path)
                yield stored

    def numbered_rows(self, piece: Piece | None = None) -> Iterator[tuple[int, Stored | None]]:
        """Each row of a piece with its number, None for one outside of the graph; no earlier versions. Reads.

        Raises:
            InvalidInput: a row is malformed.
        """
        for line, row in self._raw(piece):
            lowered = {str(k).strip().lower(): v for k, v in row.items()}
            if _is_past(lowered):
                continue
            try:
                path = self._relative(_path(lowered, encoded=self._is_csv()))
                stored = Stored(path=path, size=_size(lowered), modified_at=_time(lowered)) if path else None
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                unit = "row" if self._is_parquet() else "line"
                raise InvalidInput(f"{self.file}, {unit} {line}: {error}; nothing was deleted") from None
            yield line, stored

    def pieces(self) -> tuple[Piece, ...]:
        """The parts that can be read apart: the row groups of Parquet, else the file as a whole. Reads."""
        if not self._is_parquet():
            return (Piece(),)
        rows = parquet_groups(str(self.file))
        starts = itertools.accumulate(rows, initial=1)
        return tuple(Piece(group=number, first=start) for number, start in zip(range(len(rows)), starts, strict=False))

    def _name(self) -> str:
        return self.file.name.lower().removesuffix(".gz")

    def _is_parquet(self) -> bool:
        return self._name().endswith(".parquet")

    def _is_csv(self) -> bool:
        return not self._name().endswith((".parquet", *_JSON_SUFFIXES))

    def _raw(self, piece: Piece | None) -> Iterator[tuple[int, dict[str, Any]]]:
        if self._is_parquet():
            groups = None if piece is None else [piece.group]
            rows = parquet_rows(str(self.file), _NAMES, groups)
            yield from enumerate(rows, start=1 if piece is None else piece.first)
            return
        opener: Any = gzip.open if self.file.name.lower().endswith(".gz") else io.open
        try:
            with opener(self.file, "rt", encoding="utf-8-sig", newline="") as text:
                lines = _lines(self.file, text)
                yield from _csv(self.file, lines) if self._is_csv() else _json_lines(self.file, lines)
        except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
            raise InvalidInput(f"cannot read the inventory {self.file}: {error}; nothing was deleted") from None

    def _relative(self, path: str) -> str | None:
        """The path below the graph, None when it is outside."""
        path = path.removeprefix("file://") if path.startswith("file:///") else path
        if path.startswith(f"{self.root}/"):
            return path[len(self.root) + 1 :]
        is_relative = not path.startswith("/") and "://" not in path
        return path if is_relative else None


def _lines(file: Path, text: Any) -> Iterator[str]:
    """The lines of a file, none of them longer than a row can be: a small archive may hold any length. Reads."""
    for number in itertools.count(1):
        line = text.readline(_LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > _LONGEST_LINE:
            raise InvalidInput(
                f"{file}, line {number}: it is longer than {_LONGEST_LINE:,} characters, which no row of an inventory "
                "is; nothing was deleted"
            )
        yield line


def _csv(file: Path, text: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = csv.DictReader(text, strict=True)
    try:
        names = {str(n).strip().lower() for n in rows.fieldnames or ()}
        for wanted in (_PATH, _SIZE, _TIME):
            if not names & set(wanted):
                raise InvalidInput(
                    f"{file}, line 1: there is no column {' or '.join(wanted[:2])}; an inventory starts with a header "
                    "`path,size,last_modified` or `Bucket,Key,Size,LastModifiedDate`; nothing was deleted"
                )
        for row in rows:
            if None in row:
                raise InvalidInput(f"{file}, line {rows.line_num}: more cells than the header has; nothing was deleted")
            yield rows.line_num, row
    except csv.Error as error:
        raise InvalidInput(f"{file}, line {rows.reader.line_num}: {error}; nothing was deleted") from None


def _json_lines(file: Path, text: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{file}, line {number}: {error}; nothing was deleted") from None
        if not isinstance(row, dict):
            raise InvalidInput(f"{file}, line {number}: not a JSON object; nothing was deleted")
        yield number, row


def _path(row: dict[str, Any], *, encoded: bool) -> str:
    bucket = row.get("bucket")
    name = _cell(row, _PATH)
    if not isinstance(name, str) or not name:
        raise ValueError("the path is empty")
    if "\0" in name:
        raise ValueError("the path has a NUL in it")
    name.encode()  # raises for what is no text
    if bucket:
        # S3 writes keys percent-encoded in CSV, as they are in the other formats.
        return f"s3://{bucket}/{unquote(name) if encoded else name}"
    return name


def _size(row: dict[str, Any]) -> int:
    size = int(_cell(row, _SIZE))
    if size < 0:
        raise ValueError(f"the size {size} is negative")
    return size


def _time(row: dict[str, Any]) -> float:
    value = _cell(row, _TIME)
    if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    seconds = float(value)
    if not math.isfinite(seconds):
        raise ValueError(f"the time {value} is not finite")
    return seconds


def _is_past(row: dict[str, Any]) -> bool:
    """Whether the row is of an earlier version, or says that an object was deleted. Pure."""
    latest, marker = ({str(row.get(name)).lower() for name in names} for names in (_LATEST, _MARKER))
    return "false" in latest or "true" in marker


def _cell(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise ValueError(f"there is no {names[0]}")
