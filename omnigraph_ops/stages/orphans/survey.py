"""One fresh look at a graph for orphans, and the sorting of what is stored by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from omnigraph_ops.coordination.freezes import refuse_any_freeze
from omnigraph_ops.coordination.graph_view import GraphView, beside_deletes, look_once
from omnigraph_ops.coordination.guards import refuse_lasting
from omnigraph_ops.coordination.holds import HoldKind, freezes
from omnigraph_ops.coordination.rewrite_journal import named_files, table_path_of
from omnigraph_ops.coordination.state import Kept, is_unfinished, kept_by
from omnigraph_ops.errors import ApprovalMissing, CorruptGraph, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import (
    INTERNAL_DATASETS,
    MANIFEST_DIR,
    RECOVERY_DIR,
    LanceFile,
    Part,
    chain_folder,
    data_file_of_blob,
    dataset_of,
    index_id,
    is_plain,
    is_root_file,
    lance_file,
    version_of_manifest_file,
)
from omnigraph_ops.graph.references import Reference, References, dropped_manifests, lost_reference, read_references
from omnigraph_ops.models.cleanup import SHORTEST_AGE_SECONDS
from omnigraph_ops.models.orphans import OrphanKind, SkippedDataset
from omnigraph_ops.storage.inventory import files_in

_KINDS = {
    Part.DATA: OrphanKind.DATA,
    Part.BLOB: OrphanKind.BLOB,
    Part.DELETION: OrphanKind.DELETION,
    Part.INDEX: OrphanKind.INDEX,
    Part.TRANSACTION: OrphanKind.TRANSACTION,
    Part.TEMPORARY: OrphanKind.TEMPORARY,
}


class Standing(StrEnum):
    """Where a stored file stands."""

    NEEDED = "needed"
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a path is, and why it stays if it does."""

    standing: Standing
    reason: str = ""
    kind: OrphanKind | None = None
    """Set for orphans."""
    group: str | None = None
    """The dropped dataset or dead branch that the orphan goes with: as a whole or not at all."""


_UNKNOWN = Verdict(standing=Standing.UNKNOWN, reason="it is no part of any known layout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Everything a verdict depends on, read at one moment."""

    references: References
    live: frozenset[str]
    """Datasets that a live branch publishes."""
    active_holds: frozenset[str]
    journalled: frozenset[str] = frozenset()
    """Files that the journal of an unfinished rewrite of a live table names."""
    worked_on: frozenset[str] = frozenset()
    """Datasets of which a running optimize holds a version: what it wrote so far nothing refers to yet."""
    dropped_manifests: frozenset[str] = frozenset()
    """Manifests of dropped datasets by which the engine knows that a name was used."""
    publishes: bool = True
    """Whether a graph manifest says which tables there are; without one nothing is called dropped."""

    def dataset_of(self, path: str) -> str | None:
        """The dataset that a path is below: where an engine puts one, or a plain one that is live. Pure."""
        first = path.partition("/")[0]
        return first if first in self.live else dataset_of(path)

    def meeting_point(self, path: str) -> str:
        """What a stored file has in common with every reference that its verdict depends on. Pure.

        So the verdict needs only the references that meet it there, of all that there are.
        """
        dataset = self.dataset_of(path)
        file = lance_file(path, self.references.branch_names(dataset) or (), dataset)
        if file is not None and file.part is Part.INDEX:
            return index_id(file.tail)
        if file is not None and file.part is Part.BLOB:
            return data_file_of_blob(file.tail).rpartition("/")[2]
        return path.rpartition("/")[2]

    def may_judge(self, dataset: str) -> bool:
        """Whether a dataset that nothing publishes counts as dropped. Pure."""
        return self.publishes or dataset in self.live

    def point_of(self, way: Reference, reference: str) -> str:
        """The meeting point of a reference. Pure."""
        match way:
            case Reference.EXACT:
                return self.meeting_point(reference)
            case Reference.LOOSE:
                return index_id(reference) if reference.startswith("_indices/") else reference.rpartition("/")[2]
            case Reference.INDEX:
                return reference

    def may_remove_folder(self, folder: str) -> bool:
        """Whether an empty folder is inside of a dataset, or is one that no branch publishes. Pure."""
        dataset = self.dataset_of(folder)
        if dataset is None or self.references.is_skipped(dataset) or not self.may_judge(dataset):
            return False
        return folder != dataset or (dataset not in self.live and "/" in dataset)

    def verdict(self, path: str) -> Verdict:
        """What that path is. Age is not considered. Pure."""
        if not is_plain(path):
            return _UNKNOWN
        dataset = self.dataset_of(path)
        if dataset is None:
            return self._outside(path)
        if self.references.is_skipped(dataset):
            return _needed("the references of its dataset cannot be read")
        if dataset in self.live or dataset in INTERNAL_DATASETS:
            return self._in_live_dataset(path, dataset)
        return self._in_dropped_dataset(path, dataset) if self.may_judge(dataset) else _UNKNOWN

    def _in_live_dataset(self, path: str, dataset: str) -> Verdict:
        branches = self.references.branch_names(dataset)
        if branches is None:
            return _needed("the references of its dataset are not known")
        file = lance_file(path, branches, dataset)
        if file is None:
            return _UNKNOWN
        if self.references.needs(file):
            return _needed("a version refers to it")
        if path in self.journalled:
            return _needed("a rewrite that goes on made it")
        if file.branch is not None and file.branch not in branches:
            return self._in_dead_branch(file, path)
        if file.part not in _KINDS:
            return _needed("it belongs to a live chain")
        if dataset in self.worked_on:
            return _needed("an optimize of its table is at work and may have made it")
        return Verdict(standing=Standing.ORPHAN, kind=_KINDS[file.part])

    def _in_dead_branch(self, file: LanceFile, path: str) -> Verdict:
        group = chain_folder(file.dataset, file.branch)
        if self.references.is_forked_from(file.dataset, file.branch):
            return _needed(f"a live branch forks from {file.branch!r}")
        return Verdict(standing=Standing.ORPHAN, kind=OrphanKind.DEAD_BRANCH, group=group)

    def _in_dropped_dataset(self, path: str, dataset: str) -> Verdict:
        file = lance_file(path, ())
        if file is None:
            return _UNKNOWN
        if path in self.dropped_manifests:
            return _needed("the engine knows by it that the name of its table was used")
        if self.references.needs(file):
            return _needed("a version of another dataset refers to it", group=dataset)
        return Verdict(standing=Standing.ORPHAN, kind=OrphanKind.DROPPED_TABLE, group=dataset)

    def _outside(self, path: str) -> Verdict:
        if is_root_file(path):
            return _needed("it belongs to the schema of the graph")
        if path.startswith(f"{RECOVERY_DIR}/") and path.endswith(".json"):
            return _needed("it is a recovery sidecar")
        own = kept_by(path)
        if own is not None:
            return self._own(*own)
        if is_unfinished(path):
            return Verdict(standing=Standing.ORPHAN, kind=OrphanKind.TEMPORARY)
        return _UNKNOWN

    def _own(self, kept: Kept, name: str) -> Verdict:
        """What belongs to a hold stays as long as it counts, and what belongs to a table as long as it is live."""
        match kept:
            case Kept.ALWAYS:
                return _needed("it is state of this tool")
            case Kept.BY_HOLD if name in self.active_holds:
                return _needed("it is state of this tool")
            case Kept.BY_TABLE if table_path_of(name) in self.live or not self.publishes:
                return _needed("it is the journal of a rewrite")
        return Verdict(standing=Standing.ORPHAN, kind=OrphanKind.OWN_STATE)


def _needed(reason: str, group: str | None = None) -> Verdict:
    return Verdict(standing=Standing.NEEDED, reason=reason, group=group)


def reasons_to_keep(graph: Graph, view: GraphView, datasets: Collection[str], cutoff: float) -> dict[str, str]:
    """Dataset path to why it must stay although no live branch has it; only for those that must. Reads.

    Args:
        cutoff: graph versions superseded at or after this moment are retained.
    """
    reasons = {v.table_path: h.label() for h in view.holds for v in h.versions if v.table_path in datasets}
    for path in datasets:
        if path not in reasons and graph.storage.list(f"{path}/_refs/tags"):
            reasons[path] = "it has a Lance tag"
    if not set(datasets) - set(reasons):
        return reasons
    for branch, version, label in _retained_versions(graph, view, cutoff):
        try:
            paths = {e.path for e in graph.state(branch, version).entries}
        except OpsError as error:
            why = f"{label} cannot be read, so what it refers to is unknown: {error}"
            return {path: reasons.get(path, why) for path in datasets}
        for path in paths & set(datasets):
            reasons.setdefault(path, f"{label} reads it")
        if not set(datasets) - set(reasons):
            break
    return reasons


def _retained_versions(graph: Graph, view: GraphView, cutoff: float) -> Iterator[tuple[str | None, int, str]]:
    """Branch and number of every graph version that must stay readable, and what to call it. Reads."""
    for hold in view.holds:
        for held in hold.versions:
            if held.table_path == MANIFEST_DIR:
                yield held.branch, held.version, hold.label()
    for name, branch, version in graph.lance.tags(graph.manifest()):
        yield branch, version, f"graph version {version}, tag {name!r},"
    for chain in (None, *(ref.name for ref in graph.lance_branches())):
        yield from _recent(graph, chain, cutoff)


def _recent(graph: Graph, branch: str | None, cutoff: float) -> Iterator[tuple[str | None, int, str]]:
    """Versions of one chain that were current at or after `cutoff`, newest first. Reads.

    A version was superseded when the manifest file of the next one was written.
    """
    stored = {}
    for file in files_in(graph.storage, f"{chain_folder(MANIFEST_DIR, branch)}/_versions"):
        version = version_of_manifest_file(file.path.rpartition("/")[2])
        if version is not None:
            stored[version] = file.modified_at
    superseded_at = math.inf
    for version in sorted(stored, reverse=True):
        recent, superseded_at = superseded_at >= cutoff, stored[version]
        if not recent:
            continue
        where = f" of branch {branch!r}" if branch else ""
        yield branch, version, f"retained graph version {version}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What protects files right now."""

    view: GraphView
    judge: Judge
    cutoff: float
    held_back: tuple[str, ...]


ReferenceReader = Callable[[Graph, Iterable[str]], References]
"""Reads what some datasets, and the internal ones, refer to, as `read_references`."""


def survey(graph: Graph, *, cutoff: float, reader: ReferenceReader = read_references) -> Survey:
    """Read everything that can protect a file. Reads.

    Raises:
        RecoveryPending: something is pending; nothing may be judged beside a recovery.
        GraphFrozen: something is frozen; files that only the frozen versions need are judged afterwards.
        CorruptGraph: a live branch or a hold cannot be read, so what it refers to is unknown.
    """
    refuse_lasting(graph)
    refuse_any_freeze(graph)
    return beside_deletes(_survey, graph, cutoff, reader)


def _survey(graph: Graph, cutoff: float, reader: ReferenceReader) -> Survey:
    view = look_once(graph)
    if view.unreadable:
        name, problem = view.unreadable[0]
        raise CorruptGraph(
            f"branch {name!r} cannot be read, so what it refers to is unknown: {problem}; nothing was deleted"
        )
    live = frozenset(e.path for state in (*view.states, *view.bases) for e in state.entries)
    # Before the references: a result that is committed in between is then known to them.
    journalled = named_files(graph.storage, live)
    judge = Judge(
        references=_without_lost(graph, view, reader(graph, live)),
        live=live,
        # An ended freeze still has tags, which only its record names.
        active_holds=frozenset(h.hold_id for h in (*view.holds, *freezes(graph.storage))),
        journalled=journalled,
        worked_on=frozenset(v.table_path for h in view.holds if h.kind is HoldKind.PLAN for v in h.versions),
        dropped_manifests=dropped_manifests(graph, live),
        publishes=graph.format.publishes,
    )
    back = tuple(h.label() for h in view.holds if h.created_at < cutoff)
    oldest = min((h.created_at for h in view.holds), default=cutoff)
    return Survey(view=view, judge=judge, cutoff=min(cutoff, oldest), held_back=back)


def _without_lost(graph: Graph, view: GraphView, found: References) -> References:
    """The references with those datasets skipped of which a live branch reads what Lance does not list. Reads."""
    told = {path: lost_reference(graph, view.states, path) for path in found.branches}
    lost = tuple(SkippedDataset(path=path, reason=why) for path, why in told.items() if why is not None)
    left = {path: refs for path, refs in found.branches.items() if told[path] is None}
    return replace(found, branches=left, skipped=(*found.skipped, *lost)) if lost else found


def check_age(graph: Graph, older_than_secs: int) -> None:
    """Refuse an age at which a running write could still be unreferenced, unless somebody says that none runs. Pure.

    A fence is not enough: a write that began before it has files that nothing names yet, and goes on after it.

    Raises:
        ApprovalMissing: less than an hour on a graph that is not exclusive; nothing was deleted.
    """
    if older_than_secs < SHORTEST_AGE_SECONDS and not graph.settings.exclusive:
        raise ApprovalMissing(
            "files younger than an hour may belong to a write in progress; nothing was deleted; use a greater "
            "--older-than, or set OMNIGRAPH_OPS_EXCLUSIVE=true when you know that nobody writes"
        )
