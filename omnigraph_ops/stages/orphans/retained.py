"""Which datasets are still reached: by live branches, by retained graph versions, by tags and by holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from omnigraph_ops.coordination.graph_view import GraphView
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MANIFEST_DIR, version_of_manifest_file
from omnigraph_ops.graph.paths import chain_folder
from omnigraph_ops.storage.inventory import files_in

_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _GraphVersion:
    """A version of the graph manifest that must stay readable, and why."""

    branch: str | None
    version: int
    reason: str


def live_tables(view: GraphView) -> frozenset[str]:
    """Dataset paths that a live branch publishes. Pure."""
    return frozenset(e.path for state in (view.main, *view.branches) for e in state.entries)


def reasons_to_keep(graph: Graph, view: GraphView, datasets: Collection[str], cutoff: float) -> dict[str, str]:
    """Dataset path to why it must stay although no live branch has it; only for those that must. Reads.

    Args:
        cutoff: graph versions superseded at or after this moment are retained.
    """
    reasons = _held(view, datasets)
    for path in datasets:
        if path not in reasons and graph.storage.list(f"{path}/_refs/tags"):
            reasons[path] = "it has a Lance tag"
    if not set(datasets) - set(reasons):
        return reasons
    for retained in _retained_versions(graph, view, cutoff):
        try:
            manifest = graph.lance.open(
                graph.context.location.uri(MANIFEST_DIR), branch=retained.branch, version=retained.version
            )
            paths = {e.path for e in graph.decode(manifest, retained.branch).entries}
        except OpsError as error:
            why = f"{retained.reason} cannot be read, so what it refers to is unknown: {error}"
            return {path: reasons.get(path, why) for path in datasets}
        for path in paths & set(datasets):
            reasons.setdefault(path, f"{retained.reason} reads it")
        if not set(datasets) - set(reasons):
            break
    return reasons


def _held(view: GraphView, datasets: Collection[str]) -> dict[str, str]:
    return {v.table_path: h.label() for h in view.holds for v in h.versions if v.table_path in datasets}


def _retained_versions(graph: Graph, view: GraphView, cutoff: float) -> Iterator[_GraphVersion]:
    for hold in view.holds:
        for held in hold.versions:
            if held.table_path == MANIFEST_DIR:
                yield _GraphVersion(branch=held.branch, version=held.version, reason=hold.label())
    for name, branch, version in graph.lance.tags(graph.manifest()):
        yield _GraphVersion(branch=branch, version=version, reason=f"graph version {version}, tag {name!r},")
    for chain in (None, *(ref.name for ref in graph.lance_branches())):
        yield from _recent(graph, chain, cutoff)


def _recent(graph: Graph, branch: str | None, cutoff: float) -> Iterator[_GraphVersion]:
    """Versions of one chain that were current at or after `cutoff`, newest first. Reads.

    A version was superseded when the manifest file of the next one was written.
    """
    stored = {}
    for file in files_in(graph.storage, f"{chain_folder(MANIFEST_DIR, branch)}/_versions"):
        version = version_of_manifest_file(file.path.rpartition("/")[2])
        if version is not None:
            stored[version] = file.modified_at
    superseded_at = _NEVER
    for version in sorted(stored, reverse=True):
        recent, superseded_at = superseded_at >= cutoff, stored[version]
        if not recent:
            continue
        where = f" of branch {branch!r}" if branch else ""
        yield _GraphVersion(branch=branch, version=version, reason=f"retained graph version {version}{where}")
