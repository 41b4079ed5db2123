"""Full-text indexes as a Lance manifest records them: which analyser wrote the words of each, and who accepts it.

Of InvertedIndexDetails, Lance 9 was the first to write field 12 and Lance 11 the first to write field 15; seen with
pylance 8.0.1, 9.0.0, 10.0.0, 11.0.0 and 13.0.0, in builds and folds alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.lance_manifest import (
    field_numbers,
    index_segments,
    read_manifest,
    writer_of,
)
from omnigraph_ops.graph.layout import MANIFEST_DIR, any_version_of
from omnigraph_ops.lance.gateway import SYSTEM_PREFIX
from omnigraph_ops.storage.store import Storage

CERTIFICATE = "omnigraph_fts_compat.json"
"""File of a segment by which the engine from 0.10 on accepts it."""
_SINCE_9, _SINCE_11 = 12, 15
_OWN_WRITER, _CERTIFYING_WRITER = "lance 13.", "lance 11."
_LOOK_BACK = 64


class Analyser(StrEnum):
    """How words become the terms of an index; equal for all releases of one member."""

    LANCE_8 = "Lance 8 or older"
    """rust-stemmers, 33 English stop words."""
    LANCE_10 = "Lance 9 or 10"
    """rust-stemmers, 198 English stop words."""
    LANCE_11 = "Lance 11 or newer"
    """frostem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWriter:
    """How the text indexes of a graph generation are written."""

    release: str
    """The pylance release that writes them."""
    reads: frozenset[Analyser]
    """Analysers whose terms the engine finds."""
    folds: bool
    """Whether that release may fold; else it builds the index anew."""
    cure: str = ""
    """What is at stake for readers while the index lags."""
    certifies: bool = False
    """Whether a later engine of the stamp accepts only what it certified itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextIndex:
    """One full-text index by name, over its segments."""

    analysers: frozenset[Analyser]
    certified: bool


def text_indexes(storage: Storage, table_path: str, version: int) -> Mapping[str, TextIndex]:
    """The full-text indexes of a version of a main chain, by name. Reads.

    Raises:
        CorruptGraph: the manifest cannot be read.
    """
    found: dict[str, TextIndex] = {}
    manifest = read_manifest(storage, table_path, version)
    for segment in index_segments(manifest.content, manifest.name):
        name, details = segment.name, segment.index_details
        if name.startswith(SYSTEM_PREFIX) or not details.type_url.endswith(".InvertedIndexDetails"):
            continue
        certified = any(file.path == CERTIFICATE for file in segment.files)
        before = found.get(name)
        found[name] = TextIndex(
            analysers=frozenset({analyser_of(details.value)}) | (before.analysers if before else frozenset()),
            certified=certified or (before is not None and before.certified),
        )
    return found


def older_texts(storage: Storage, table_path: str, version: int) -> tuple[str, ...]:
    """The full-text indexes with words of an analyser that this pylance does not have. Reads."""
    found = text_indexes(storage, table_path, version)
    return tuple(name for name, index in found.items() if index.analysers != {Analyser.LANCE_11})


def analyser_of(details: bytes) -> Analyser:
    """The analyser of a segment from its InvertedIndexDetails. Pure."""
    numbers = field_numbers(details)
    if _SINCE_11 in numbers:
        return Analyser.LANCE_11
    return Analyser.LANCE_10 if _SINCE_9 in numbers else Analyser.LANCE_8


def certifying_engine(storage: Storage, table_path: str, version: int) -> str | None:
    """The sign that an engine wrote here that certifies its text indexes; None when there is none. Reads."""
    for path, newest in ((table_path, version), (MANIFEST_DIR, None)):
        writer = _newest_foreign_writer(storage, path, newest)
        if writer is not None and writer.startswith(_CERTIFYING_WRITER):
            return f"{path} was written by {writer}"
    return None


def _newest_foreign_writer(storage: Storage, path: str, newest: int | None) -> str | None:
    """Who wrote the newest version that is not ours, as `lance 9.0.0`; within a bound. Reads."""
    numbers = sorted(filter(None, map(any_version_of, storage.list(f"{path}/_versions"))), reverse=True)
    for number in [n for n in numbers if newest is None or n <= newest][:_LOOK_BACK]:
        try:
            writer = writer_of(read_manifest(storage, path, number))
        except CorruptGraph:
            continue
        if writer is not None and not writer.startswith(_OWN_WRITER):
            return writer
    return None
