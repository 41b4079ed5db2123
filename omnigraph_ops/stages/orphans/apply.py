"""Apply an orphans plan: what it listed, less whatever became needed or changed since, and nothing else."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.environment import refuse_wrong_clock
from omnigraph_ops.coordination.freezes import sweep_ended
from omnigraph_ops.coordination.graph_view import look
from omnigraph_ops.coordination.guards import begin_held, refuse_lasting
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.cleanup import PlannedFile
from omnigraph_ops.models.orphans import OrphanFile, OrphanKind, OrphansPlan, OrphansReport, SparedFile
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import SILENT, Progress, Stopped
from omnigraph_ops.stages.orphans.candidates import check_parts, files_of
from omnigraph_ops.stages.orphans.plan import dropped_to_keep
from omnigraph_ops.stages.orphans.quarantine import begin, discard_if_empty, place_of
from omnigraph_ops.stages.orphans.survey import Standing, Survey, check_age, survey
from omnigraph_ops.storage.inventory import (
    OpsFault,
    Stored,
    below_folder,
    look_again,
    move_files,
    remove_files,
    remove_folder,
    take_unchanged,
)
from omnigraph_ops.storage.store import BULK

_NOTHING = "nothing was deleted"
_CHANGED = "it changed since the plan"
_MADE_ANEW = frozenset({OrphanKind.DEAD_BRANCH, OrphanKind.DROPPED_TABLE})
"""Whose place an engine uses again."""


def apply_orphans(graph: Graph, plan: OrphansPlan, *, progress: Progress = SILENT) -> OrphansReport:
    """Delete the planned files that are still orphans and unchanged, or move them to quarantine, as planned. Destroys.

    Faults stay with their file. A run that is asked to stop reports what it did by then. A second run of plan and apply
    goes on where this one stopped.

    Raises:
        StalePlan: the plan was altered, has expired or is for another graph; nothing was deleted.
        ApprovalMissing: it is for files younger than an hour and the graph is not exclusive.
        RecoveryPending: something is pending.
        ClockWrong: this host and the store disagree about the time.
        CorruptGraph: a live branch or a hold cannot be read.
        LeaseHeld: another maintenance run holds, or took over, the committer lease.
    """
    sealed.verify(plan, uri=graph.uri, consequence=_NOTHING)
    if plan.parts is not None:
        check_parts(graph.storage, plan.parts)
    check_age(graph, plan.older_than_secs)
    refuse_wrong_clock(graph.storage, _NOTHING)
    sweep_ended(graph)
    with committer_turn(graph, "orphans") as keeper:
        run = _Run(
            graph=graph,
            plan=plan,
            keeper=keeper,
            look=survey(graph, cutoff=plan.cutoff),
            quarantine_id=begin(graph, plan, keeper) if plan.quarantine and plan.total_files else None,
            progress=progress,
        )
        with contextlib.suppress(Stopped):
            run.files()
            run.folders()
        return run.report()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Retained:
    """Which dropped datasets must stay, and what that was told by."""

    look: Survey
    tags: tuple[tuple[str, str | None, int], ...]
    """Of the graph manifest."""
    reasons: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class _Run:
    """One application of a plan under the lease."""

    graph: Graph
    plan: OrphansPlan
    keeper: LeaseKeeper
    look: Survey
    quarantine_id: str | None
    progress: Progress
    files_removed: int = 0
    bytes_removed: int = 0
    left: set[str] = field(default_factory=set)
    """Folders of a local graph from which files were removed."""
    folders_removed: int = 0
    gone: int = 0
    batches: int = 0
    dropped: tuple[str, ...] = ()
    """The dropped datasets of the plan."""
    kept: _Retained | None = None
    spared: list[SparedFile] = field(default_factory=list)
    failed: list[SparedFile] = field(default_factory=list)

    def files(self) -> None:
        """Everything that stands alone first, then group by group. Destroys."""
        groups: dict[str, list[OrphanFile]] = {}
        for batch in self._batches(self._single(groups)):
            self._remove(batch)
        kind = OrphanKind.DROPPED_TABLE
        self.dropped = tuple(path for path, files in groups.items() if any(f.kind is kind for f in files))
        for path, files in groups.items():
            self._look_again(path)
            reason = self._group_reason(path, files)
            if reason is not None:
                self.spared += [SparedFile(path=f.path, reason=reason) for f in files]
                continue
            # Without its manifests it is no dataset any more, whatever happens to the rest.
            for batch in self._batches(sorted(files, key=lambda f: ("/_versions/" not in f.path, f.path))):
                self._remove(batch)

    def folders(self) -> None:
        """Remove the planned empty folders and those that the removals emptied, children first. Destroys."""
        found = {f for f in self.plan.folders if self.look.judge.may_remove_folder(f)}
        for left in self.left:
            folder = left
            while folder and folder not in found and self.look.judge.may_remove_folder(folder):
                found.add(folder)
                folder = folder.rpartition("/")[0]
        if not found:
            return
        unit = self._unit("empty folders")
        self.graph.run.begins(unit)
        for folder in sorted(found, key=lambda f: (-f.count("/"), f)):
            self.folders_removed += remove_folder(self.graph.storage, folder)
        self.graph.run.ended(unit, self._done())

    def report(self) -> OrphansReport:
        """What came of it; an empty quarantine is taken back. Writes."""
        if (
            self.quarantine_id is not None
            and not self.files_removed
            and discard_if_empty(self.graph, self.quarantine_id)
        ):
            self.quarantine_id = None
        return replace(
            self._done(self.files_removed, self.bytes_removed),
            folders_removed=self.folders_removed,
            already_gone=self.gone,
            spared=tuple(self.spared),
            failed=tuple(self.failed),
        )

    def _single(self, groups: dict[str, list[OrphanFile]]) -> Iterator[OrphanFile]:
        """The files that stand alone; the others are put into their groups. Reads the parts of the plan."""
        for file in files_of(self.graph.storage, self.plan):
            verdict = self.look.judge.verdict(file.path)
            if verdict.standing is Standing.ORPHAN and verdict.group is not None:
                groups.setdefault(verdict.group, []).append(file)
            else:
                yield file

    def _group_reason(self, path: str, files: Sequence[OrphanFile]) -> str | None:
        """Why a dropped dataset or dead branch must stay now, None when it may go. Reads."""
        planned = {f.path: f for f in files}
        for stored in below_folder(self.graph.storage, path):
            if stored.is_folder or stored.is_special:
                continue
            verdict = self.look.judge.verdict(stored.path)
            if verdict.group == path and verdict.standing is not Standing.ORPHAN:
                return f"{stored.path}: {verdict.reason}"
            if verdict.group == path and not _is_same(planned.get(stored.path), stored):
                lacks = self.plan.listing is not None and stored.path not in planned
                why = "is not in the inventory of the plan" if lacks else "appeared or changed since the plan"
                return f"{stored.path} {why}"
        return self._why_kept(path) if path in self.dropped else None

    def _why_kept(self, path: str) -> str | None:
        """Why a dropped dataset must stay as one, None when it may go. Reads every retained version once.

        Whatever else retains one, as a publish, a branch or a hold, makes another look.
        """
        tags = self.graph.lance.tags(self.graph.manifest())
        if self.kept is None or self.kept.look is not self.look or self.kept.tags != tags:
            reasons = dropped_to_keep(self.graph, self.look, self.dropped)
            self.kept = _Retained(look=self.look, tags=tags, reasons=reasons)
        return self.kept.reasons.get(path)

    def _look_again(self, path: str) -> None:
        """Right before a group goes: a dropped dataset or a branch may have come back under its old path. Reads."""
        refuse_lasting(self.graph)
        dataset = self.look.judge.dataset_of(path) or ""
        known = self.look.judge.references.branch_names(dataset)
        moved = known is not None and self.graph.stored_branches(dataset) != known
        if moved or look(self.graph) != self.look.view:
            self.look = survey(self.graph, cutoff=self.plan.cutoff)

    def _batches(self, files: Iterable[OrphanFile]) -> Iterator[list[OrphanFile]]:
        """Bulks of files; with a ceiling on deletes a second's worth at a time, then the rest of that second."""
        limit, rest = self.graph.settings.max_deletes_per_second, iter(files)
        size, began = min(BULK, limit) if limit else BULK, 0.0
        while batch := list(itertools.islice(rest, size)):
            if limit and began:
                self.graph.run.pause(max(size / limit - (time.monotonic() - began), 0))
            began = time.monotonic()
            self.graph.run.check()
            yield batch

    def _remove(self, batch: Sequence[OrphanFile]) -> None:
        good = list(self._still_orphans(batch))
        if not good:
            return
        self.batches += 1
        unit = self._unit(f"batch {self.batches} ({len(good)} files)", good)
        begin_held(self.graph, unit, self.keeper)
        faults = {fault.path: fault for fault in self._effect(good)}
        for fault in faults.values():
            stays = SparedFile(path=fault.path, reason=fault.reason)
            (self.spared if fault.is_changed else self.failed).append(stays)
        done = [f for f in good if f.path not in faults]
        self.files_removed += len(done)
        if self.graph.storage.is_local:
            self.left |= {f.path.rpartition("/")[0] for f in done}
        size = sum(f.size for f in done)
        self.bytes_removed += size
        self.graph.run.ended(unit, self._done(len(done), size))
        verb = "deleting" if self.quarantine_id is None else "moving"
        self.progress.at(verb, self.files_removed, self.plan.total_files, "files")

    def _done(self, files: int = 0, size: int = 0) -> OrphansReport:
        """What a unit removed, in bytes. Pure."""
        return OrphansReport(
            uri=self.graph.uri,
            digest=self.plan.digest,
            quarantine_id=self.quarantine_id,
            files_removed=files,
            bytes_removed=size,
        )

    def _unit(self, name: str, files: Sequence[OrphanFile] = ()) -> Unit:
        return Unit(
            name=name,
            stage="orphans",
            digest=self.plan.digest,
            files=tuple(PlannedFile(path=f.path, size=f.size, kind=f.kind.value) for f in files),
            quarantine_id=self.quarantine_id or "",
        )

    def _effect(self, files: Sequence[OrphanFile]) -> tuple[OpsFault, ...]:
        storage, place = self.graph.storage, None
        if self.quarantine_id is not None:
            place = partial(place_of, self.quarantine_id)
        # Versions first, so that a kill leaves no dataset with files that it lacks.
        named_again = [f for f in files if _is_named_again(f)]
        seen = [Stored(path=f.path, size=f.size, modified_at=f.modified_at) for f in named_again]
        faults = take_unchanged(storage, seen, place)
        paths = [f.path for f in files if not _is_named_again(f)]
        return faults + (
            remove_files(storage, paths) if place is None else move_files(storage, [(p, place(p)) for p in paths])
        )

    def _still_orphans(self, batch: Sequence[OrphanFile]) -> Iterator[OrphanFile]:
        """Those of a batch that are what the plan saw and that nothing needs. Reads."""
        candidates = []
        for file in batch:
            verdict = self.look.judge.verdict(file.path)
            if verdict.standing is not Standing.ORPHAN:
                self.spared.append(SparedFile(path=file.path, reason=verdict.reason))
            elif verdict.kind is not file.kind:
                self.spared.append(SparedFile(path=file.path, reason=f"it is {verdict.kind} now"))
            elif file.modified_at >= self.look.cutoff:
                self.spared.append(SparedFile(path=file.path, reason="it is not older than what is held"))
            else:
                candidates.append(file)
        yield from self._unchanged(candidates)

    def _unchanged(self, candidates: Sequence[OrphanFile]) -> Iterator[OrphanFile]:
        """Those that are still what the plan saw. Reads."""
        for file, now in zip(candidates, look_again(self.graph.storage, [f.path for f in candidates]), strict=True):
            if now is None:
                self.gone += 1
            elif isinstance(now, OpsFault):
                self.failed.append(SparedFile(path=file.path, reason=now.reason))
            elif not _is_same(file, now):
                self.spared.append(SparedFile(path=file.path, reason=_CHANGED))
            else:
                yield file


def _is_same(planned: OrphanFile | None, now: Stored) -> bool:
    if planned is None or now.is_folder or now.is_special:
        return False
    return (planned.size, planned.modified_at) == (now.size, now.modified_at)


def _is_named_again(file: OrphanFile) -> bool:
    """Whether an engine may give the name of this file again; names of all other files are random. Pure."""
    return file.kind in _MADE_ANEW and ("/_versions/" in file.path or "/_refs/" in file.path)
