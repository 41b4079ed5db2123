"""One fresh look at a graph for orphans, and the sorting of what is stored by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph_ops.coordination.frozen import refuse_any_freeze
from omnigraph_ops.coordination.graph_view import GraphView, look
from omnigraph_ops.coordination.guards import refuse_pending
from omnigraph_ops.coordination.holds import HoldKind, freezes
from omnigraph_ops.coordination.rewrites.journal import named_files
from omnigraph_ops.errors import ApprovalMissing, CorruptGraph
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.references import read_references
from omnigraph_ops.models import OrphanFile, OrphanKind, UnknownFile
from omnigraph_ops.stages.orphans.classify import Judge, Standing
from omnigraph_ops.stages.orphans.retained import live_tables
from omnigraph_ops.storage.inventory import Stored

SHORTEST_AGE_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What protects files right now."""

    view: GraphView
    judge: Judge
    cutoff: float
    held_back: tuple[str, ...]


def survey(graph: Graph, *, cutoff: float) -> Survey:
    """Read everything that can protect a file. Reads.

    Raises:
        RecoveryPending: something is pending; nothing may be judged beside a recovery.
        GraphFrozen: something is frozen; files that only the frozen versions need are judged afterwards.
        CorruptGraph: a live branch or a hold cannot be read, so what it refers to is unknown.
    """
    refuse_pending(graph)
    refuse_any_freeze(graph)
    view = look(graph)
    if view.unreadable:
        name, problem = view.unreadable[0]
        raise CorruptGraph(
            f"branch {name!r} cannot be read, so what it refers to is unknown: {problem}; nothing was deleted"
        )
    live = live_tables(view)
    # Before the references: a result that is committed in between is then known to them.
    journalled = named_files(graph.storage, live)
    judge = Judge(
        references=read_references(graph, live),
        live=live,
        # An ended freeze still has tags, which only its record names.
        active_holds=frozenset(h.hold_id for h in (*view.holds, *freezes(graph.storage))),
        journalled=journalled,
        worked_on=frozenset(v.table_path for h in view.holds if h.kind is HoldKind.PLAN for v in h.versions),
        publishes=graph.format.publishes,
    )
    back = tuple(h.label() for h in view.holds if h.created_at < cutoff)
    oldest = min((h.created_at for h in view.holds), default=cutoff)
    return Survey(view=view, judge=judge, cutoff=min(cutoff, oldest), held_back=back)


def check_age(graph: Graph, older_than_secs: int) -> None:
    """Refuse an age at which a running write could still be unreferenced, unless writers are kept away. Pure.

    Raises:
        ApprovalMissing: less than an hour without the fence; nothing was deleted.
    """
    if older_than_secs < SHORTEST_AGE_SECONDS and not graph.run_context.is_fenced:
        raise ApprovalMissing(
            "files younger than an hour may belong to a write in progress; nothing was deleted; "
            "use a greater --older-than, or keep writers away with --fence"
        )


@dataclass(slots=True, kw_only=True)
class Group:
    """A dropped dataset or dead branch while it is collected."""

    kind: OrphanKind
    files: list[OrphanFile] = field(default_factory=list)
    kept: str | None = None


@dataclass(slots=True, kw_only=True)
class Sorted:
    """What is stored, sorted by verdict and age."""

    survey: Survey
    single: list[OrphanFile] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    unknown: list[UnknownFile] = field(default_factory=list)
    empty: dict[str, float] = field(default_factory=dict)
    """Folders of datasets with nothing in them so far, with their time."""
    seen_references: int = 0
    files: int = 0
    bytes: int = 0
    young_files: int = 0
    young_bytes: int = 0

    def add(self, item: Stored) -> None:
        """Judge one stored thing."""
        if item.is_folder:
            if self.survey.judge.dataset_of(item.path) is not None:
                self.empty[item.path] = item.modified_at
            return
        self.files, self.bytes = self.files + 1, self.bytes + item.size
        self._fill(item.path)
        if item.is_special:
            self.unknown.append(UnknownFile(path=item.path, size=item.size))
            return
        judge = self.survey.judge
        verdict = judge.verdict(item.path)
        if item.path in judge.references.exact:
            self.seen_references += 1
        if verdict.standing is Standing.UNKNOWN:
            self.unknown.append(UnknownFile(path=item.path, size=item.size))
        elif verdict.standing is Standing.NEEDED:
            if verdict.group is not None:
                self._group(verdict.group, OrphanKind.DROPPED_TABLE).kept = f"{item.path}: {verdict.reason}"
        elif verdict.kind is not None:
            self._orphan(item, verdict.kind, verdict.group)

    def _orphan(self, item: Stored, kind: OrphanKind, group: str | None) -> None:
        old = item.modified_at < self.survey.cutoff
        if not old:
            self.young_files, self.young_bytes = self.young_files + 1, self.young_bytes + item.size
        file = OrphanFile(path=item.path, size=item.size, modified_at=item.modified_at, kind=kind)
        if group is not None:
            collected = self._group(group, kind)
            collected.files.append(file)
            if not old:
                collected.kept = collected.kept or f"{item.path} is not old enough"
        elif old:
            self.single.append(file)

    def _group(self, path: str, kind: OrphanKind) -> Group:
        return self.groups.setdefault(path, Group(kind=kind))

    def _fill(self, path: str) -> None:
        """Note that the folders above a file are not empty."""
        folder = path.rpartition("/")[0]
        while folder:
            self.empty.pop(folder, None)
            folder = folder.rpartition("/")[0]

    def empty_folders(self) -> tuple[str, ...]:
        """Old folders without a file at any depth, children first."""
        young = {f for f, modified in self.empty.items() if modified >= self.survey.cutoff}
        above = {parent for f in young for parent in _parents(f)}
        kept = young | above
        good = [f for f in self.empty if f not in kept and self._may_remove(f)]
        return tuple(sorted(good, key=lambda f: (-f.count("/"), f)))

    def _may_remove(self, folder: str) -> bool:
        judge = self.survey.judge
        dataset = judge.dataset_of(folder)
        if dataset is None or judge.references.is_skipped(dataset) or not judge.may_judge(dataset):
            return False
        if folder == dataset:
            return dataset not in judge.live and "/" in dataset
        return True


def _parents(folder: str) -> list[str]:
    found = []
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        found.append(folder)
    return found
