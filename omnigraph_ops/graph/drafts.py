"""Drafts of the next versions of a table, one upon the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import highest_fragment_id, name_after, read_manifest
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.commits import Change, Draft, drafted
from omnigraph_ops.lance.gateway import Dataset


@contextlib.contextmanager
def drafts_of(
    graph: Graph, entry: TableEntry, pinned: Dataset, changes: Sequence[Change], *, mark: str
) -> Iterator[list[Draft]]:
    """Draft the commits of changes one upon the other, from the published version on. Reads the graph.

    Raises:
        CommitConflict: a change does not fit what the one before it makes.
    """
    drafts: list[Draft] = []
    newest, before = read_manifest(graph.storage, entry.path, entry.version), pinned
    with contextlib.ExitStack() as stack:
        for change in changes:
            change.refuse_stale(before)
            highest = max((f.fragment_id for f in before.get_fragments()), default=-1)
            operation = change.operation(max(highest, highest_fragment_id(newest)))
            made = stack.enter_context(drafted(newest, name_after(newest), operation, mark=mark))
            drafts.append(made)
            newest, before = made.manifest, made.dataset
        yield drafts
