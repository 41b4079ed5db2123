"""How big compaction tasks get under a ceiling on bytes per second. Pure: facts in, fragments out.

The throttle admits whole tasks, and a task that runs reads as fast as it can: what it reads is the burst. Booking
it in pieces would keep the average and bound nothing, so tasks are cut. The rule is Lance's for rows, in bytes:
a fragment of more than half of the bound is full and stays; smaller neighbours become one task up to the bound.
What two neighbouring tasks write is together more than the bound, so the next run has nothing to do. A table keeps
more fragments than without a ceiling: merging further would take a larger task, whoever plans it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph_ops.lance.tables import FragmentFacts
from omnigraph_ops.stages.optimize.tiers import mostly_deleted


def is_full(fragment: FragmentFacts, most_bytes: int | None) -> bool:
    """Whether the bound, if there is one, leaves no room to merge it with its like. Pure."""
    return most_bytes is not None and 2 * fragment.data_bytes > most_bytes and not mostly_deleted(fragment)


def counted(fragments: Sequence[FragmentFacts], most_bytes: int | None, target_rows: int) -> list[FragmentFacts]:
    """The fragments as a policy counts them: one that is full has reached the target size. Pure."""
    return [
        replace(f, physical_rows=max(f.physical_rows, target_rows)) if is_full(f, most_bytes) else f for f in fragments
    ]


def cut(group: Sequence[FragmentFacts], most_bytes: int) -> tuple[tuple[FragmentFacts, ...], ...]:
    """The neighbours of a task as tasks within the bound; what would not get fewer or lose deletions drops out. Pure.

    A fragment cannot be divided: one that is mostly deleted is rewritten whatever its size.
    """
    runs: list[list[FragmentFacts]] = []
    size = 0
    for fragment in group:
        if not runs or size + fragment.data_bytes > most_bytes:
            runs.append([])
            size = 0
        runs[-1].append(fragment)
        size += fragment.data_bytes
    _share_the_last(runs, most_bytes)
    return tuple(tuple(run) for run in runs if len(run) > 1 or mostly_deleted(run[0]))


def _share_the_last(runs: list[list[FragmentFacts]], most_bytes: int) -> None:
    """Give one that is left over at the end a neighbour, else outputs would come between it and later loads."""
    if len(runs) < 2 or len(runs[-1]) > 1 or len(runs[-2]) < 3:
        return
    if runs[-2][-1].data_bytes + runs[-1][0].data_bytes <= most_bytes:
        runs[-1].insert(0, runs[-2].pop())
