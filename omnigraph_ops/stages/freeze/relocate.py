"""A copy under another root: which files of a cut must be rewritten, and what they become.

Lance branches record the absolute root of their dataset. A copy that is not rewritten reads the files of the
original: it looks right as long as that exists. The version metadata in the graph manifest names the old root, too,
and stays: no reader follows it, and it marks a copy (ADR 0007).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.freeze import CutFile, RelocatedFile
from omnigraph_ops.stages.freeze.roots import below_root, rename_roots
from omnigraph_ops.storage.location import locate


def relocation(graph: Graph, files: Iterable[CutFile], new_root: str) -> Iterator[RelocatedFile]:
    """Every file that records the root, as it must be below `new_root`. Reads.

    Args:
        new_root: as readers will open the copy: an absolute plain path or an `s3://` URI. Lance compares it as a
            string when it decides which files a branch protects.

    Raises:
        InvalidInput: readers would not all take `new_root` for the same place.
        CorruptGraph: a branch records a place outside of this graph.
    """
    root = locate(new_root).root
    for file in files:
        if file.records_root:
            data = rename_roots(graph.storage.read(file.source), lambda old: f"{root}/{below_root(graph, old)}")
            yield RelocatedFile(file=file.file, data=data)
