"""From a path and the references to a verdict. The one place that says what may go, for plan and apply. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from omnigraph_ops.coordination.rewrites.journal import table_path_of
from omnigraph_ops.coordination.state import Found, Kept, is_unfinished, place_of
from omnigraph_ops.graph.layout import INTERNAL_DATASETS, RECOVERY_DIR
from omnigraph_ops.graph.paths import LanceFile, Part, chain_folder, dataset_of, is_plain, is_root_file, lance_file
from omnigraph_ops.graph.references import References
from omnigraph_ops.models import OrphanKind

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
    publishes: bool = True
    """Whether a graph manifest says which tables there are; without one nothing is called dropped."""

    def dataset_of(self, path: str) -> str | None:
        """The dataset that a path is below: where an engine puts one, or a plain one that is live. Pure."""
        first = path.partition("/")[0]
        return first if first in self.live else dataset_of(path)

    def may_judge(self, dataset: str) -> bool:
        """Whether a dataset that nothing publishes counts as dropped. Pure."""
        return self.publishes or dataset in self.live

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
        known = self.references.datasets.get(dataset)
        if known is None:
            return _needed("the references of its dataset are not known")
        file = lance_file(path, known.branch_names, dataset)
        if file is None:
            return _UNKNOWN
        if self.references.needs(file):
            return _needed("a version refers to it")
        if path in self.journalled:
            return _needed("a rewrite that goes on made it")
        if file.branch is not None and file.branch not in known.branch_names:
            return self._in_dead_branch(file, path)
        if file.part not in _KINDS:
            return _needed("it belongs to a live chain")
        if dataset in self.worked_on:
            return _needed("an optimize of its table is at work and may have made it")
        return Verdict(standing=Standing.ORPHAN, kind=_KINDS[file.part])

    def _in_dead_branch(self, file: LanceFile, path: str) -> Verdict:
        group = chain_folder(file.dataset, file.branch)
        parents = {b.parent_branch for b in self.references.datasets[file.dataset].branches}
        if file.branch in parents:
            return _needed(f"a live branch forks from {file.branch!r}")
        return Verdict(standing=Standing.ORPHAN, kind=OrphanKind.DEAD_BRANCH, group=group)

    def _in_dropped_dataset(self, path: str, dataset: str) -> Verdict:
        file = lance_file(path, ())
        if file is None:
            return _UNKNOWN
        if self.references.needs(file):
            return _needed("a version of another dataset refers to it", group=dataset)
        return Verdict(standing=Standing.ORPHAN, kind=OrphanKind.DROPPED_TABLE, group=dataset)

    def _outside(self, path: str) -> Verdict:
        if is_root_file(path):
            return _needed("it belongs to the schema of the graph")
        if path.startswith(f"{RECOVERY_DIR}/") and path.endswith(".json"):
            return _needed("it is a recovery sidecar")
        own = place_of(path)
        if own is not None:
            return self._own(own)
        if is_unfinished(path):
            return Verdict(standing=Standing.ORPHAN, kind=OrphanKind.TEMPORARY)
        return _UNKNOWN

    def _own(self, own: Found) -> Verdict:
        """What belongs to a hold stays as long as it counts, and what belongs to a table as long as it is live."""
        match own.place.kept:
            case Kept.ALWAYS:
                return _needed("it is state of this tool")
            case Kept.BY_HOLD if own.name in self.active_holds:
                return _needed("it is state of this tool")
            case Kept.BY_TABLE if table_path_of(own.name) in self.live or not self.publishes:
                return _needed("it is the journal of a rewrite")
        return Verdict(standing=Standing.ORPHAN, kind=OrphanKind.OWN_STATE)


def _needed(reason: str, group: str | None = None) -> Verdict:
    return Verdict(standing=Standing.NEEDED, reason=reason, group=group)
