"""Quarantine: orphans moved aside under `__maintenance/quarantine/<id>/`, brought back or purged later.

The record of what is about to be moved is written before the first move. A crash leaves every file in one
of its two places (on S3 perhaps in both, with the same bytes), and restoring goes by what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from omnigraph_ops.coordination.environment import refuse_wrong_clock
from omnigraph_ops.coordination.guards import begin_held, refuse_lasting
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.coordination.state import QUARANTINE_DIR, Records, refuse
from omnigraph_ops.errors import InvalidInput, OpsError, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import any_version_of, is_plain, is_ulid, made_at_us, new_ulid, now_us
from omnigraph_ops.models.cleanup import PlannedFile
from omnigraph_ops.models.orphans import (
    OrphanFile,
    OrphansPlan,
    QuarantineList,
    QuarantineRecord,
    QuarantineReport,
    QuarantineSummary,
    SparedFile,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.stages.orphans.candidates import copy_parts, files_in_parts
from omnigraph_ops.storage.inventory import (
    Stored,
    below_folder,
    files_below,
    files_in,
    folders_in,
    look_again,
    move_files,
    remove_files,
    remove_folder,
)
from omnigraph_ops.storage.store import BULK

_RECORD = "quarantine.json"
_PARTS = f"{_RECORD}.parts"
_RECORDS = Records(QuarantineRecord, unreadable=refuse)


def begin(graph: Graph, plan: OrphansPlan, keeper: LeaseKeeper) -> str:
    """Write the record of everything that the plan may move, and return the id of the quarantine. Writes.

    Removes what killed runs left of other quarantines: under the committer lease, a folder without a record is of no
    run that is at work.

    Raises:
        LeaseHeld: another run took the lease over.
    """
    for remains in _ids(graph):
        if not graph.storage.exists(place_of(remains, _RECORD)) and not _kept(graph, remains):
            keeper.assert_held()
            graph.storage.delete_tree(place_of(remains, "").rstrip("/"))
    quarantine_id, parts = new_ulid(), plan.parts
    if parts is not None:
        # The plan is swept some day, the quarantine never.
        parts = copy_parts(graph.storage, parts, place_of(quarantine_id, _PARTS))
    record = QuarantineRecord(
        quarantine_id=quarantine_id,
        uri=graph.uri,
        digest=plan.digest,
        created_at_us=now_us(),
        files=plan.files,
        parts=parts,
        groups=plan.groups if parts is not None else (),
    )
    _RECORDS.write(graph.storage, place_of(record.quarantine_id, _RECORD), record)
    return record.quarantine_id


def place_of(quarantine_id: str, path: str) -> str:
    """Where a file is kept, relative to the graph. Pure."""
    if not is_ulid(quarantine_id):
        raise InvalidInput(
            f"{quarantine_id!r} is not the id of a quarantine; nothing was done; "
            "`omnigraph-ops orphans GRAPH --quarantined` lists them"
        )
    return f"{QUARANTINE_DIR}/{quarantine_id}/{path}"


def discard_if_empty(graph: Graph, quarantine_id: str) -> bool:
    """Drop a quarantine that holds no file any more; whether it went. Destroys only its record."""
    if _kept(graph, quarantine_id):
        return False
    graph.storage.delete_tree(place_of(quarantine_id, _PARTS))
    graph.storage.delete(place_of(quarantine_id, _RECORD))
    _remove_empty_folders(graph, place_of(quarantine_id, "").rstrip("/"))
    return True


def list_quarantines(graph: Graph) -> QuarantineList:
    """Every quarantine with what it still holds. Reads."""
    found = [_listed(graph, name) for name in _ids(graph)]
    return QuarantineList(uri=graph.uri, quarantines=tuple(summary for summary in found if summary is not None))


def _listed(graph: Graph, quarantine_id: str) -> QuarantineSummary | None:
    """One quarantine, None for remains; one whose record is lost or damaged hides no other. Reads."""
    digest, made_at, problem = "", made_at_us(quarantine_id), None
    try:
        record = _record(graph, quarantine_id)
        digest, made_at = record.digest, record.created_at_us
    except OpsError as error:
        problem = str(error)
    kept = _kept(graph, quarantine_id)
    if problem is not None and not kept:
        return None
    return QuarantineSummary(
        quarantine_id=quarantine_id,
        created_at_us=made_at,
        digest=digest,
        files=len(kept),
        bytes=sum(s.size for s in kept.values()),
        problem=problem,
    )


def _ids(graph: Graph) -> list[str]:
    names = (folder.rpartition("/")[2] for folder in folders_in(graph.storage, QUARANTINE_DIR))
    return sorted(filter(is_ulid, names))


def preview_quarantine(graph: Graph, quarantine_id: str) -> QuarantineReport:
    """What emptying a quarantine would delete. Reads."""
    record = _record(graph, quarantine_id)
    return _report(graph, record, "preview", tuple(_kept(graph, quarantine_id).values()), ())


_UNNAMED = "the record of the quarantine does not name it; it stays in the quarantine"


def restore(graph: Graph, quarantine_id: str, *, progress: Progress = SILENT) -> QuarantineReport:
    """Bring everything back to where it was, manifests last. Writes.

    A file that is in its old place already stays as it is: the copy is dropped if it is the same, and kept
    and reported if it is not. A copy that the record does not name is kept and reported, too.

    Raises:
        InvalidInput: there is no such quarantine.
        StalePlan: a dataset or branch was written anew in the old place; nothing was moved.
        RecoveryPending, LeaseHeld: somebody else is at work.
    """
    _record(graph, quarantine_id)  # a wrong id waits for no turn
    with committer_turn(graph, f"restore {quarantine_id}") as keeper:
        refuse_lasting(graph)
        record = _record(graph, quarantine_id)  # another run may have ended it meanwhile
        kept = _kept(graph, quarantine_id)
        files = [f for f in _files(graph, record) if f.path in kept] if kept else []
        _refuse_new_chains(graph, record, kept.keys())
        files.sort(key=lambda f: f.path)
        unnamed = sorted(kept.keys() - {f.path for f in files})
        work = _Batches(graph=graph, keeper=keeper, record=record, kept=kept, progress=progress)
        bring_back = partial(_bring_back, graph, quarantine_id)
        done, failed = list[Stored](), list[SparedFile]()
        # Without its manifests a dataset is not there: it appears when all of it is.
        for are_manifests in (False, True):
            paths = [f.path for f in files if ("/_versions/" in f.path) == are_manifests]
            back, faults = work.each("restored", "restoring", paths, bring_back)
            done, failed = done + back, failed + faults
        failed += [SparedFile(path=path, reason=_UNNAMED) for path in unnamed]
        discard_if_empty(graph, quarantine_id)
    return _report(graph, record, "restored", done, tuple(failed))


def purge(graph: Graph, quarantine_id: str, *, progress: Progress = SILENT) -> QuarantineReport:
    """Delete what a quarantine holds, for good. Destroys.

    Raises:
        InvalidInput: there is no such quarantine.
        ClockWrong: this host and the store disagree about the time; how long it was kept is not known.
        LeaseHeld: somebody else is at work.
    """
    _record(graph, quarantine_id)  # a wrong id waits for no turn
    refuse_wrong_clock(graph.storage, "nothing was deleted")
    with committer_turn(graph, f"purge {quarantine_id}") as keeper:
        record = _record(graph, quarantine_id)
        kept = _kept(graph, quarantine_id)
        work = _Batches(graph=graph, keeper=keeper, record=record, kept=kept, progress=progress)
        done, failed = work.each("purged", "deleting", sorted(kept), partial(_delete, graph, quarantine_id))
        discard_if_empty(graph, quarantine_id)
    return _report(graph, record, "purged", done, tuple(failed))


def _delete(graph: Graph, quarantine_id: str, paths: Sequence[str]) -> list[SparedFile]:
    faults = remove_files(graph.storage, [place_of(quarantine_id, path) for path in paths])
    return [SparedFile(path=f.path, reason=f.reason) for f in faults]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batches:
    """The files of a quarantine, a bulk at a time."""

    graph: Graph
    keeper: LeaseKeeper
    record: QuarantineRecord
    kept: Mapping[str, Stored]
    progress: Progress

    def each(
        self, verb: str, doing: str, paths: Sequence[str], effect: Callable[[Sequence[str]], list[SparedFile]]
    ) -> tuple[list[Stored], list[SparedFile]]:
        """What was done and what was not, until the run is asked to stop; each bulk a unit. The effect of `effect`."""
        done, failed = list[Stored](), list[SparedFile]()
        for start in range(0, len(paths), BULK):
            if self.graph.run.stopping:
                break
            batch = paths[start : start + BULK]
            unit = self._unit(f"{verb} files {batch[0]} and on", batch)
            begin_held(self.graph, unit, self.keeper)
            faults = effect(batch)
            bad = {fault.path for fault in faults}
            good = [self.kept[p] for p in batch if not bad & {p, place_of(self.record.quarantine_id, p)}]
            self.graph.run.ended(unit, _report(self.graph, self.record, verb, good, ()))
            failed += faults
            done += good
            self.progress.at(doing, len(done), len(paths), "files")
        return done, failed

    def _unit(self, name: str, paths: Sequence[str]) -> Unit:
        files = tuple(PlannedFile(path=self.kept[p].path, size=self.kept[p].size, kind="quarantined") for p in paths)
        of = self.record
        return Unit(name=name, stage="quarantine", digest=of.digest, files=files, quarantine_id=of.quarantine_id)


def _record(graph: Graph, quarantine_id: str) -> QuarantineRecord:
    path, problem = place_of(quarantine_id, _RECORD), "is gone"
    try:
        record = _RECORDS.read(graph.storage, path)
    except InvalidInput as error:
        record, problem = None, f"cannot be read: {error}"
    if record is not None:
        return record
    if _kept(graph, quarantine_id):
        raise InvalidInput(
            f"{path} {problem}; nothing was done; the files of the quarantine are beside it: move them back or delete "
            "them by hand"
        )
    raise InvalidInput(f"there is no quarantine {quarantine_id} in {graph.uri}; see --quarantined")


def _files(graph: Graph, record: QuarantineRecord) -> Iterator[OrphanFile]:
    """What a quarantine was made for. Reads its parts."""
    parts = record.parts
    for file in record.files if parts is None else files_in_parts(graph.storage, parts, record.groups):
        if not is_plain(file.path):
            path = place_of(record.quarantine_id, _RECORD)
            raise InvalidInput(f"{path} names a file outside of the graph; nothing was moved")
        yield file


def _kept(graph: Graph, quarantine_id: str) -> dict[str, Stored]:
    """Original path to the file as it is kept now. Reads."""
    folder = place_of(quarantine_id, "")
    stored = {s.path[len(folder) :]: s for s in files_below(graph.storage, folder.rstrip("/"))}
    return {path: s for path, s in stored.items() if not path.startswith(_RECORD)}


def _bring_back(graph: Graph, quarantine_id: str, paths: Sequence[str]) -> list[SparedFile]:
    present = look_again(graph.storage, paths)
    absent = [path for path, now in zip(paths, present, strict=True) if now is None]
    moves = [(place_of(quarantine_id, path), path) for path in absent]
    faults = {f.path: f.reason for f in move_files(graph.storage, moves)}
    failed = [SparedFile(path=path, reason=faults[source]) for source, path in moves if source in faults]
    for path, now in zip(paths, present, strict=True):
        if now is None:
            continue
        if _is_copy(graph, quarantine_id, path):
            gone = remove_files(graph.storage, [place_of(quarantine_id, path)])
            failed += [SparedFile(path=path, reason=f.reason) for f in gone]
        else:
            failed.append(SparedFile(path=path, reason="another file is in its place; it stays in quarantine"))
    return failed


def _is_copy(graph: Graph, quarantine_id: str, path: str) -> bool:
    """Whether a file is in both places with the same bytes: a move that was cut short. Reads."""
    try:
        copy = place_of(quarantine_id, path)
        if graph.storage.stat(path).size != graph.storage.stat(copy).size:
            return False
        return graph.storage.read(path) == graph.storage.read(copy)
    except (OpsError, OSError):
        return False


def _refuse_new_chains(graph: Graph, record: QuarantineRecord, kept: Collection[str]) -> None:
    """Refuse to mix old manifests into a dataset or branch that was created anew in their place. Reads.

    Manifests that an earlier restore brought back are there already: the same bytes as their copy, or on
    local disk, where a move keeps the time, what the record says.
    """
    recorded = {f.path: f for f in _files(graph, record) if _is_manifest(f.path)} if kept else {}
    for folder in sorted({path.rpartition("/")[0] for path in recorded if path in kept}):
        newest = max(_version(path) for path in recorded if path.rpartition("/")[0] == folder)
        for now in files_in(graph.storage, folder):
            if not _is_manifest(now.path):
                continue
            old = recorded.get(now.path)
            if now.path in kept:
                same = _is_copy(graph, record.quarantine_id, now.path)
            elif old is None and graph.format.paths_by_name:
                # It stayed, as the mark of a used name. A dataset that was created anew begins with version 1.
                same = _version(now.path) > newest
            else:
                same = old is not None and (old.size, old.modified_at) == (now.size, now.modified_at)
            if not same:
                raise StalePlan(
                    f"{now.path} was written since; nothing was restored; the old files would become versions of a "
                    "dataset that is not theirs"
                )


def _is_manifest(path: str) -> bool:
    return "/_versions/" in path and path.endswith(".manifest")


def _version(manifest: str) -> int:
    return any_version_of(manifest.rpartition("/")[2]) or 0


def _report(
    graph: Graph, record: QuarantineRecord, action: str, files: Sequence[Stored], failed: tuple[SparedFile, ...]
) -> QuarantineReport:
    return QuarantineReport(
        uri=graph.uri,
        quarantine_id=record.quarantine_id,
        digest=record.digest,
        action=action,
        files=len(files),
        bytes=sum(f.size for f in files),
        failed=failed,
    )


def _remove_empty_folders(graph: Graph, folder: str) -> None:
    if not graph.storage.is_local:
        return
    folders = [s.path for s in below_folder(graph.storage, folder) if s.is_folder]
    for path in sorted([*folders, folder], key=lambda f: -f.count("/")):
        remove_folder(graph.storage, path)
