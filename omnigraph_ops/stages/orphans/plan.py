"""Plan orphans: exactly which files go, which groups stay and why, and a digest to approve.

An inventory file in place of a listing: CSV, JSON lines or Parquet, as S3 Inventory writes them or simpler. Columns by
name: `path`, `size`, `last_modified`, or `Bucket`, `Key`, `Size`, `LastModifiedDate`. Paths may be relative to the
graph, absolute or URIs; rows outside of the graph are counted and ignored.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.store_check import refuse_wrong_clock_unwritten
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models import OrphanFile, OrphanGroup, OrphanKind, OrphansPlan
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.stages.orphans.survey import Sorted, Survey, check_age, reasons_to_keep, survey
from omnigraph_ops.storage.inventory import Stored, look_again, parquet_rows

_PATH, _SIZE = ("path", "key"), ("size",)
_TIME = ("last_modified", "lastmodifieddate", "last_modified_date", "lastmodified")
_NAMES = frozenset({"bucket", *_PATH, *_SIZE, *_TIME})
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_LONGEST_LINE = 1024 * 1024
"""A key of S3 has at most 1,024 bytes."""


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
        """Every row that is inside the graph; `InvalidInput` names the first malformed one. Reads."""
        seen: set[str] = set()
        for line, row in self._raw():
            lowered = {str(k).strip().lower(): v for k, v in row.items()}
            try:
                path = self._relative(_path(lowered, encoded=self._is_csv()))
                stored = path and Stored(path=path, size=_size(lowered), modified_at=_time(lowered))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                unit = "row" if self._is_parquet() else "line"
                raise InvalidInput(f"{self.file}, {unit} {line}: {error}; nothing was deleted") from None
            if stored and stored.path not in seen:
                seen.add(stored.path)
                yield stored
            elif not stored:
                self.foreign += 1

    def _name(self) -> str:
        return self.file.name.lower().removesuffix(".gz")

    def _is_parquet(self) -> bool:
        return self._name().endswith(".parquet")

    def _is_csv(self) -> bool:
        return not self._name().endswith((".parquet", *_JSON_SUFFIXES))

    def _raw(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if self._is_parquet():
            yield from enumerate(parquet_rows(str(self.file), _NAMES), start=1)
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


def _cell(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise ValueError(f"there is no {names[0]}")


DEFAULT_AGE_SECONDS = 7 * 86_400
_REPORT_EVERY = 10_000
_OLDEST = 2**40


def plan_orphans(
    graph: Graph,
    *,
    older_than_seconds: int = DEFAULT_AGE_SECONDS,
    quarantine: bool = False,
    listing: Path | None = None,
    progress: Progress = SILENT,
) -> OrphansPlan:
    """What no version of any dataset, branch or tag refers to, and is old enough to go. Reads.

    Args:
        older_than_seconds: files modified later than so long ago stay.
        quarantine: apply moves the files aside instead of deleting them.
        listing: an inventory file to read instead of listing the store; every candidate is looked up again.
        progress: gets a sentence now and then.

    Raises:
        InvalidInput: the age or the inventory file is malformed.
        ApprovalMissing: the age is less than an hour and nothing keeps writers away.
        RecoveryPending: something is pending.
        ClockWrong: this host and the store disagree about the time.
        CorruptGraph: a live branch or a hold cannot be read.
    """
    if not 0 <= older_than_seconds < _OLDEST:
        raise InvalidInput(f"the age must be between 0 and {_OLDEST} seconds, it is {older_than_seconds}")
    check_age(graph, older_than_seconds)
    refuse_wrong_clock_unwritten(graph.storage, "nothing was planned")
    planned_at_us = now_us()
    cutoff = time.time() - older_than_seconds
    inventory = Inventory.of_file(listing, graph.uri) if listing is not None else None
    progress("reading references")
    found = Sorted(survey=survey(graph, cutoff=cutoff))
    for item in _counted(graph.stored() if inventory is None else inventory.rows(), progress):
        found.add(item)
    if inventory is not None:
        _verify_candidates(graph, found, progress)
    groups = _decide_groups(graph, found)
    gone = {path for path, group in found.groups.items() if groups[path].kept is None}
    files = [*found.single, *(f for path in gone for f in found.groups[path].files)]
    references = found.survey.judge.references
    return sealed.seal(
        OrphansPlan(
            uri=graph.uri,
            stamp=graph.stamp,
            older_than_secs=older_than_seconds,
            quarantine=quarantine,
            planned_at_us=planned_at_us,
            expires_at_us=sealed.expiry(planned_at_us, graph.settings),
            cutoff=found.survey.cutoff,
            files=tuple(sorted(files, key=lambda f: f.path)),
            folders=found.empty_folders(),
            groups=tuple(groups[path] for path in sorted(groups)),
            unknown=tuple(sorted(found.unknown, key=lambda f: f.path)),
            skipped=references.skipped,
            held_back=found.survey.held_back,
            listed_files=found.files,
            listed_bytes=found.bytes,
            young_files=found.young_files,
            young_bytes=found.young_bytes,
            listing=str(listing) if listing is not None else None,
            foreign_rows=inventory.foreign if inventory is not None else 0,
            missing_rows=len(references.exact) - found.seen_references if inventory is not None else 0,
        )
    )


def dropped_to_keep(graph: Graph, look: Survey, datasets: Iterable[str]) -> dict[str, str]:
    """Which of these datasets, published by no live branch, must stay nevertheless, and why. Reads."""
    wanted = sorted(datasets)
    skipped = look.judge.references.skipped
    if skipped:
        why = f"{skipped[0].path} could not be read, so what it refers to is unknown"
        return dict.fromkeys(wanted, why)
    return reasons_to_keep(graph, look.view, wanted, look.cutoff) if wanted else {}


def _decide_groups(graph: Graph, found: Sorted) -> dict[str, OrphanGroup]:
    dropped = [p for p, g in found.groups.items() if g.kind is OrphanKind.DROPPED_TABLE]
    kept = dropped_to_keep(graph, found.survey, dropped)
    return {
        path: OrphanGroup(
            path=path,
            kind=group.kind,
            files=len(group.files),
            bytes=sum(f.size for f in group.files),
            kept=kept.get(path) or group.kept,
        )
        for path, group in found.groups.items()
    }


def _verify_candidates(graph: Graph, found: Sorted, progress: Progress) -> None:
    """Replace what an inventory file says about candidates by what is stored now; drop what is gone. Reads."""
    progress("looking up the candidates of the inventory file")
    found.single = _as_stored(graph, found.single, found.survey.cutoff)
    for group in found.groups.values():
        expected = len(group.files)
        group.files = _as_stored(graph, group.files, found.survey.cutoff)
        if len(group.files) != expected:
            group.kept = group.kept or "it changed since the inventory was taken"


def _as_stored(graph: Graph, files: list[OrphanFile], cutoff: float) -> list[OrphanFile]:
    current = look_again(graph.storage, [f.path for f in files])
    return [
        replace(file, size=now.size, modified_at=now.modified_at)
        for file, now in zip(files, current, strict=True)
        if isinstance(now, Stored) and not now.is_special and not now.is_folder and now.modified_at < cutoff
    ]


def _counted(items: Iterable[Stored], progress: Progress) -> Iterator[Stored]:
    number = 0
    for item in items:
        yield item
        number += 1
        if number % _REPORT_EVERY == 0:
            progress.at("listing", number, None, "files")
    progress(f"listed {number:,} files and folders, all of them")
