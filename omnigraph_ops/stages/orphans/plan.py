"""Plan orphans: exactly which files go, which groups stay and why, and a digest to approve."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.environment import refuse_wrong_clock_unwritten
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.graph.references import datasets_to_read
from omnigraph_ops.lance.gateway import lance_errors
from omnigraph_ops.models.orphans import (
    SAFE_AGE_SECONDS,
    FilesInParts,
    OrphanGroup,
    OrphanKind,
    OrphansPlan,
    SkippedDataset,
)
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.stages.orphans.candidates import Folders, Group, Sorted, Totals, described
from omnigraph_ops.stages.orphans.inventory_file import Inventory
from omnigraph_ops.stages.orphans.survey import Judge, Survey, check_age, reasons_to_keep, survey
from omnigraph_ops.storage.inventory import Stored

_REPORT_EVERY = 10_000
_OLDEST = 2**40
_FILES_PER_VERSION = 2
"""A manifest and a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What was found in a graph and sorted; it does not grow with the files where those are in parts."""

    look: Survey
    sorted: Sorted
    """Its candidates are in parts, and of its unknown files there are only the first ones, where `parts` is set."""
    totals: Totals
    folders: tuple[str, ...]
    references: int
    """Paths that are referred to."""
    foreign: int = 0
    """Rows of an inventory outside of the graph."""
    parts: FilesInParts | None = None


Search = Callable[[Graph, Inventory | None, float, Progress], Searched]
"""Reads everything that protects files, lists what is stored, and sorts it. Reads.

An inventory is read instead of listing the store; every candidate is looked up again. What was modified at or after the
cutoff stays.
"""


def plan_orphans(
    graph: Graph,
    *,
    older_than_seconds: int = SAFE_AGE_SECONDS,
    quarantine: bool = False,
    listing: Path | None = None,
    search: Search | None = None,
    progress: Progress = SILENT,
) -> OrphansPlan:
    """What no version of any dataset, branch or tag refers to, and is old enough to go. Reads.

    Args:
        older_than_seconds: files modified later than so long ago stay.
        quarantine: apply moves the files aside instead of deleting them.
        listing: an inventory file to read instead of listing the store; every candidate is looked up again.
        search: how files are found and sorted; by default in this process.
        progress: gets a sentence now and then.

    Raises:
        InvalidInput: the age or the inventory file is malformed.
        ApprovalMissing: the age is less than an hour and the graph is not exclusive.
        RecoveryPending: something is pending.
        ClockWrong: this host and the store disagree about the time.
        CorruptGraph: a live branch or a hold cannot be read.
    """
    if not 0 <= older_than_seconds < _OLDEST:
        raise InvalidInput(f"the age must be between 0 and {_OLDEST} seconds, it is {older_than_seconds}")
    check_age(graph, older_than_seconds)
    refuse_wrong_clock_unwritten(graph.storage)
    planned_at_us = now_us()
    cutoff = time.time() - older_than_seconds
    inventory = Inventory.of_file(listing, graph.uri) if listing is not None else None
    progress("reading references")
    found = (search or search_here)(graph, inventory, cutoff, progress)
    seen, groups = found.sorted, _decide_groups(graph, found)
    staying = {path for path, group in groups.items() if group.kept is not None}
    return sealed.seal(
        OrphansPlan(
            uri=graph.uri,
            stamp=graph.stamp,
            older_than_secs=older_than_seconds,
            quarantine=quarantine,
            planned_at_us=planned_at_us,
            expires_at_us=sealed.expiry(planned_at_us, graph.settings),
            cutoff=found.look.cutoff,
            files=tuple(sorted((c.file for c in seen.candidates if c.group not in staying), key=lambda f: f.path)),
            folders=found.folders,
            groups=tuple(groups[path] for path in sorted(groups)),
            unknown=tuple(sorted(seen.unknown, key=lambda f: f.path)),
            skipped=(*found.look.judge.references.skipped, *_worked_on(found.look.judge)),
            held_back=found.look.held_back,
            listed_files=seen.files,
            listed_bytes=seen.bytes,
            young_files=seen.young_files,
            young_bytes=seen.young_bytes,
            listing=str(listing) if listing is not None else None,
            foreign_rows=found.foreign,
            missing_rows=found.references - seen.seen_references if inventory is not None else 0,
            parts=found.parts and described(graph.storage, found.parts, found.totals, staying),
        )
    )


def search_here(graph: Graph, inventory: Inventory | None, cutoff: float, progress: Progress) -> Searched:
    """Search in this process. As `Search`."""
    look = survey(graph, cutoff=cutoff)
    seen, folders, totals = Sorted(), Folders(judge=look.judge), Totals()
    items = graph.stored() if inventory is None else inventory.rows()
    what = "files and folders, all of them" if inventory is None else "files of this graph in the inventory"
    for item in _counted(items, what, progress):
        folders.add(item)
        if not item.is_folder:
            seen.add(item, look.judge, look.cutoff)
    if inventory is not None:
        progress("looking up the candidates of the inventory file")
        seen.verify(graph.storage, look.cutoff)
    totals.add(seen.candidates)
    return Searched(
        look=look,
        sorted=seen,
        totals=totals,
        folders=folders.old(look.cutoff),
        references=len(look.judge.references.exact),
        foreign=inventory.foreign if inventory is not None else 0,
    )


def dropped_to_keep(graph: Graph, look: Survey, datasets: Iterable[str]) -> dict[str, str]:
    """Which of these datasets, published by no live branch, must stay nevertheless, and why. Reads."""
    wanted = sorted(datasets)
    skipped = look.judge.references.skipped
    if skipped:
        why = f"{skipped[0].path} could not be read, so what it refers to is unknown"
        return dict.fromkeys(wanted, why)
    return reasons_to_keep(graph, look.view, wanted, look.cutoff) if wanted else {}


def _worked_on(judge: Judge) -> Iterator[SkippedDataset]:
    """The datasets that are left out because an optimize is at work on them. Pure."""
    why = "an optimize of its table is at work and may need files that nothing refers to yet; plan again later"
    for path in sorted(judge.worked_on & judge.live):
        if not judge.references.is_skipped(path):
            yield SkippedDataset(path=path, reason=why)


def _decide_groups(graph: Graph, found: Searched) -> dict[str, OrphanGroup]:
    groups: Mapping[str, Group] = found.sorted.groups
    kept = dropped_to_keep(graph, found.look, [p for p, g in groups.items() if g.kind is OrphanKind.DROPPED_TABLE])
    return {
        path: OrphanGroup(
            path=path,
            kind=group.kind,
            files=found.totals.files[path, group.kind],
            bytes=found.totals.bytes[path, group.kind],
            kept=kept.get(path) or group.kept,
        )
        for path, group in groups.items()
    }


def _counted(items: Iterable[Stored], what: str, progress: Progress) -> Iterator[Stored]:
    number = 0
    for item in items:
        yield item
        number += 1
        if number % _REPORT_EVERY == 0:
            progress.at("listing", number, None, "files")
    progress(f"listed {number:,} {what}")


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
        newest = graph.open_at(path)
        count += sum(len(fragment.metadata.files) for fragment in newest.get_fragments())
    return count
