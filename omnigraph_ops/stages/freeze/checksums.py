"""Checksums and absolute places of the files of a cut."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import replace

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.freeze import CutFile, CutFiles, FileRow
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.storage.copying import Pacing
from omnigraph_ops.storage.store import Storage

_CHUNK = 4 * 1024 * 1024


def with_checksums(
    graph: Graph, files: Sequence[CutFile], *, workers: int = 8, progress: Progress = SILENT
) -> tuple[CutFile, ...]:
    """The files with the SHA-256 of each, read in parallel. Reads all of them.

    Raises:
        CorruptGraph: one is gone.
    """
    done, lock = 0, threading.Lock()

    def one(file: CutFile) -> CutFile:
        nonlocal done
        try:
            summed = replace(file, checksum=checksum_of(graph.storage, file.source))
        except FileNotFoundError:
            raise CorruptGraph(f"{file.source} of the cut is gone; the freeze cannot be copied") from None
        with lock:
            done += 1
            progress.at("reading", done, len(files), "files")
        return summed

    return tuple(in_parallel(one, files, workers=workers))


def checksum_of(storage: Storage, path: str, pacing: Pacing | None = None) -> str:
    """`sha256:` of one stored file, read in chunks, no faster than `pacing` lets it. Reads.

    Raises:
        FileNotFoundError: it is gone.
    """
    found = hashlib.sha256()
    for chunk in storage.chunks(path, pacing.chunk if pacing is not None else _CHUNK):
        if pacing is not None:
            pacing.wait_for(len(chunk))
        found.update(chunk)
    return f"sha256:{found.hexdigest()}"


def listed(graph: Graph, freeze_id: str, files: Sequence[CutFile]) -> CutFiles:
    """The list as a person or a script reads it. Pure."""
    return CutFiles(
        uri=graph.target,
        freeze_id=freeze_id,
        files=tuple(
            FileRow(
                file=f.file,
                normalized=graph.context.location.uri(f.source),
                size=f.size,
                kind=f.kind,
                records_root=f.records_root,
                checksum=f.checksum,
            )
            for f in files
        ),
    )
