"""Which finished results can be committed right now, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omnigraph_ops.coordination.rewrites.journal import Attempt, FinishedTask, read_attempts
from omnigraph_ops.coordination.rewrites.reclaim import intact
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.errors import LanceFailure
from omnigraph_ops.lance.rewrites import Current, current, rebased, result_sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Results that one unit commits together."""

    results: tuple[str, ...]
    names: tuple[Attempt, ...]


def batches(names: Sequence[Attempt], size: int) -> Iterator[tuple[Attempt, ...]]:
    """Finished results in the order of their rows, cut into batches; size 0 puts all into one. Pure."""
    # Lance numbers new fragments in the order of the results, and reads rows in that order.
    ordered = sorted(names, key=lambda name: name.index)
    step = size or max(len(ordered), 1)
    for start in range(0, len(ordered), step):
        yield tuple(ordered[start : start + step])


def ready(graph: Graph, entry: TableEntry, rewrite_id: str, names: tuple[Attempt, ...]) -> Batch:
    """Those of the results that fit the published version and whose files are all there. Reads.

    A commit does not look at the files it takes in, and one result that does not fit fails all others: so
    both are found out before anything is armed.
    """
    now = current(graph.open_pinned(entry))
    found = read_attempts(graph.storage, entry.path, rewrite_id, names)
    fitting = [f for f in found if isinstance(f, FinishedTask) and _fits(f, now)]
    whole = intact(graph, [file for f in fitting for file in f.files])
    good = [f for f in fitting if all(file in whole for file in f.files)]
    return Batch(results=tuple(rebased(f.result, now) for f in good), names=tuple(f.name for f in good))


def _fits(finished: FinishedTask, now: Current) -> bool:
    try:
        return now.accepts(result_sources(finished.result))
    except LanceFailure:
        return False
