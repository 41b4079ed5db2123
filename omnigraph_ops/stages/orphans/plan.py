"""Plan orphans: exactly which files go, which groups stay and why, and a digest to approve."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.store_clock import refuse_wrong_clock_unwritten
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.ids import now_us
from omnigraph_ops.models import OrphanFile, OrphanGroup, OrphanKind, OrphansPlan
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.stages.orphans.listing import Inventory
from omnigraph_ops.stages.orphans.retained import reasons_to_keep
from omnigraph_ops.stages.orphans.survey import Sorted, Survey, check_age, survey
from omnigraph_ops.storage.inventory import Stored, look_again

DEFAULT_AGE_SECONDS = 7 * 86_400
_REPORT_EVERY = 10_000
_OLDEST = 2**40


def plan_orphans(
    graph: Graph,
    *,
    older_than_seconds: int = DEFAULT_AGE_SECONDS,
    quarantine: bool = False,
    listing: Path | None = None,
    progress: Progress = SILENT,
) -> OrphansPlan:
    """What no version of any dataset, branch or tag refers to, and is old enough to go. Reads.

    Args:
        older_than_seconds: files modified later than so long ago stay.
        quarantine: apply moves the files aside instead of deleting them.
        listing: an inventory file to read instead of listing the store; every candidate is looked up again.
        progress: gets a sentence now and then.

    Raises:
        InvalidInput: the age or the inventory file is malformed.
        ApprovalMissing: the age is less than an hour and nothing keeps writers away.
        RecoveryPending: something is pending.
        ClockWrong: this host and the store disagree about the time.
        CorruptGraph: a live branch or a hold cannot be read.
    """
    if not 0 <= older_than_seconds < _OLDEST:
        raise InvalidInput(f"the age must be between 0 and {_OLDEST} seconds, it is {older_than_seconds}")
    check_age(graph, older_than_seconds)
    refuse_wrong_clock_unwritten(graph.storage, "nothing was planned")
    planned_at_us = now_us()
    cutoff = time.time() - older_than_seconds
    inventory = Inventory.of_file(listing, graph.uri) if listing is not None else None
    progress("reading references")
    found = Sorted(survey=survey(graph, cutoff=cutoff))
    for item in _counted(graph.stored() if inventory is None else inventory.rows(), progress):
        found.add(item)
    if inventory is not None:
        _verify_candidates(graph, found, progress)
    groups = _decide_groups(graph, found)
    gone = {path for path, group in found.groups.items() if groups[path].kept is None}
    files = [*found.single, *(f for path in gone for f in found.groups[path].files)]
    references = found.survey.judge.references
    return sealed.seal(
        OrphansPlan(
            uri=graph.uri,
            stamp=graph.stamp,
            older_than_secs=older_than_seconds,
            quarantine=quarantine,
            planned_at_us=planned_at_us,
            expires_at_us=sealed.expiry(planned_at_us, graph.settings),
            cutoff=found.survey.cutoff,
            files=tuple(sorted(files, key=lambda f: f.path)),
            folders=found.empty_folders(),
            groups=tuple(groups[path] for path in sorted(groups)),
            unknown=tuple(sorted(found.unknown, key=lambda f: f.path)),
            skipped=references.skipped,
            held_back=found.survey.held_back,
            listed_files=found.files,
            listed_bytes=found.bytes,
            young_files=found.young_files,
            young_bytes=found.young_bytes,
            listing=str(listing) if listing is not None else None,
            foreign_rows=inventory.foreign if inventory is not None else 0,
            missing_rows=len(references.exact) - found.seen_references if inventory is not None else 0,
        )
    )


def dropped_to_keep(graph: Graph, look: Survey, datasets: Iterable[str]) -> dict[str, str]:
    """Which of these datasets, published by no live branch, must stay nevertheless, and why. Reads."""
    wanted = sorted(datasets)
    skipped = look.judge.references.skipped
    if skipped:
        why = f"{skipped[0].path} could not be read, so what it refers to is unknown"
        return dict.fromkeys(wanted, why)
    return reasons_to_keep(graph, look.view, wanted, look.cutoff) if wanted else {}


def _decide_groups(graph: Graph, found: Sorted) -> dict[str, OrphanGroup]:
    dropped = [p for p, g in found.groups.items() if g.kind is OrphanKind.DROPPED_TABLE]
    kept = dropped_to_keep(graph, found.survey, dropped)
    return {
        path: OrphanGroup(
            path=path,
            kind=group.kind,
            files=len(group.files),
            bytes=sum(f.size for f in group.files),
            kept=kept.get(path) or group.kept,
        )
        for path, group in found.groups.items()
    }


def _verify_candidates(graph: Graph, found: Sorted, progress: Progress) -> None:
    """Replace what an inventory file says about candidates by what is stored now; drop what is gone. Reads."""
    progress("looking up the candidates of the inventory file")
    found.single = _as_stored(graph, found.single, found.survey.cutoff)
    for group in found.groups.values():
        expected = len(group.files)
        group.files = _as_stored(graph, group.files, found.survey.cutoff)
        if len(group.files) != expected:
            group.kept = group.kept or "it changed since the inventory was taken"


def _as_stored(graph: Graph, files: list[OrphanFile], cutoff: float) -> list[OrphanFile]:
    current = look_again(graph.storage, [f.path for f in files])
    return [
        replace(file, size=now.size, modified_at=now.modified_at)
        for file, now in zip(files, current, strict=True)
        if isinstance(now, Stored) and not now.is_special and not now.is_folder and now.modified_at < cutoff
    ]


def _counted(items: Iterable[Stored], progress: Progress) -> Iterator[Stored]:
    number = 0
    for item in items:
        yield item
        number += 1
        if number % _REPORT_EVERY == 0:
            progress.at("listing", number, None, "files")
    progress(f"listed {number:,} files and folders, all of them")
