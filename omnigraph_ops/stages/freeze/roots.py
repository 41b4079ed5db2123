"""Roots that manifests record: where they are in this graph, and the manifests of a copy under another root.

Lance branches record the absolute root of their dataset. A copy that is not rewritten reads the files of the original,
and looks right as long as that exists. Only the roots change; every other field, known or not, stays. The version
metadata in the graph manifest keeps the old root: no reader follows it, and it marks a copy (ADR 0007).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator

from omnigraph_ops.errors import CorruptGraph, InvalidInput
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import legible, manifest_message, with_message
from omnigraph_ops.models.freeze import CutFile, RelocatedFile
from omnigraph_ops.storage.location import locate, refuse_as_new_place

Rename = Callable[[str], str]


def place_of_root(graph: Graph, recorded: str) -> str | None:
    """A recorded root relative to the graph, empty for that itself; None when it is not in this graph. Reads links."""
    plain = recorded.rstrip("/")
    if "://" in recorded:
        with contextlib.suppress(InvalidInput):
            plain = locate(recorded).root
    for root in filter(None, (graph.uri, graph.settings.engine_root)):
        if f"{plain}/".startswith(f"{root}/"):
            return plain[len(root) + 1 :]
    return _same_directory(graph, plain)


def below_root(graph: Graph, recorded: str) -> str:
    """As `place_of_root`; `CorruptGraph` when the root is not in this graph. Reads links."""
    found = place_of_root(graph, recorded)
    if found is None:
        why = "they belong to another graph or to an unregistered place and are no part of a file list"
        if "://" not in recorded and not os.path.isabs(recorded):
            why = "an engine was given a relative path; set OMNIGRAPH_OPS_ENGINE_ROOT to that, and run where it ran"
        raise CorruptGraph(f"files are recorded at {recorded!r}, which is not in {graph.uri}: {why}")
    return found


def rename_roots(manifest: bytes, rename: Rename) -> bytes:
    """The manifest file with every recorded root renamed; `CorruptGraph` for what is no manifest. Pure."""
    with legible("of a cut"):
        message = manifest_message(manifest)
        changed = False
        for base in message.base_paths:
            renamed = rename(base.path)
            changed, base.path = changed or renamed != base.path, renamed
        return with_message(manifest, message) if changed else manifest


def recorded_roots(manifest: bytes) -> tuple[str, ...]:
    """The roots that a manifest file records, in order; raises as `rename_roots`. Pure."""
    with legible("of a cut"):
        return tuple(base.path for base in manifest_message(manifest).base_paths)


def has_plain_base(manifest: bytes) -> bool:
    """Whether a manifest file records a place that is no dataset. Raises as `rename_roots`. Pure."""
    with legible("of a cut"):
        return any(not base.is_dataset_root for base in manifest_message(manifest).base_paths)


def _same_directory(graph: Graph, recorded: str) -> str | None:
    """The place below the graph, where the recorded root is this very directory spelled otherwise. Reads links."""
    if not graph.storage.is_local or not os.path.isabs(recorded):
        return None
    real, root = os.path.realpath(recorded), os.path.realpath(graph.uri)
    return real[len(root) + 1 :] if f"{real}/".startswith(f"{root}/") else None


def relocation(graph: Graph, files: Iterable[CutFile], new_root: str) -> Iterator[RelocatedFile]:
    """Every file that records the root, as it must be below `new_root`. Reads.

    Args:
        new_root: as readers will open the copy: an absolute plain path or an `s3://` URI. Lance compares it as a
            string when it decides which files a branch protects.

    Raises:
        InvalidInput: readers would not all take `new_root` for the same place.
        CorruptGraph: a manifest cannot be read.
    """
    root = locate(new_root).root
    if graph.format.publishes:
        refuse_as_new_place(root)

    def renamed(old: str) -> str:
        place = place_of_root(graph, old)
        # Nothing of the cut is outside: `cut_files` refuses that.
        return old if place is None else f"{root}/{place}".rstrip("/")

    for file in files:
        if file.records_root:
            yield RelocatedFile(file=file.file, data=rename_roots(graph.storage.read(file.source), renamed))
