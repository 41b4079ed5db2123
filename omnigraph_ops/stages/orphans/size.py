"""How many files a graph has at least: what decides whether a plan of orphans is submitted, without listing them."""

from __future__ import annotations

import contextlib
from functools import partial

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.references import datasets_to_read
from omnigraph_ops.lance.gateway import lance_errors
from omnigraph_ops.parallel import in_parallel

_FILES_PER_VERSION = 2
"""A manifest and a transaction."""


def known_files(graph: Graph) -> int:
    """Count the data files of the newest versions and two files for each stored version, of all datasets. Reads.

    Costs a listing of the versions and one manifest per dataset. Left out are branches, indexes, deletions, data files
    that only older versions refer to, and the orphans themselves.
    """
    paths = datasets_to_read(graph, (entry.path for entry in graph.state().entries))
    return sum(in_parallel(partial(_files_of, graph), paths, workers=graph.settings.concurrency))


def _files_of(graph: Graph, path: str) -> int:
    count = _FILES_PER_VERSION * len(stored_versions(graph.storage, path))
    # Of a dataset that cannot be opened the plan says why; here its versions are all that is known.
    with contextlib.suppress(OpsError), lance_errors(f"list the fragments of {path}"):
        newest = graph.lance.open(graph.context.location.uri(path))
        count += sum(len(fragment.metadata.files) for fragment in newest.get_fragments())
    return count
