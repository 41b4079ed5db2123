"""Roots that Lance branches record, as places in the graph, and the manifests that record them rewritten.

A Lance manifest lists the roots of other chains; everything else in it, unknown fields too, stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import legible, manifest_message, with_message

Rename = Callable[[str], str]


def below_root(graph: Graph, recorded: str) -> str:
    """A recorded root relative to the graph; `CorruptGraph` when it is not in this graph. Reads links."""
    plain = recorded.rstrip("/")
    if plain.startswith(f"{graph.uri}/"):
        return plain[len(graph.uri) + 1 :]
    found = _same_directory(graph, plain)
    if found is None:
        raise CorruptGraph(
            f"files are recorded at {recorded!r}, which is not in {graph.uri}: they belong to another graph or to an "
            "unregistered place and are no part of a file list"
        )
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


def _same_directory(graph: Graph, recorded: str) -> str | None:
    """The place below the graph, where the recorded root is this very directory spelled otherwise. Reads links."""
    if not graph.context.location.is_local or not os.path.isabs(recorded):
        return None
    real, root = os.path.realpath(recorded), os.path.realpath(graph.uri)
    return real[len(root) + 1 :] if real.startswith(f"{root}/") else None
