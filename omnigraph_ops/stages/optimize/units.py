"""The work of the units F (fold) and R (rewrite): on a clone of a graph's table, or on plain Lance itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from omnigraph_ops.coordination.plain_unit import Guard
from omnigraph_ops.lance.errors import CommitConflict, CommitContention, IncompatibleCommit, LanceFailure
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.rewrites import RewriteMetrics
from omnigraph_ops.lance.tables import build_index, fold_index, index_facts, index_type_of
from omnigraph_ops.models import IndexBuild, IndexFold, TablePlan
from omnigraph_ops.progress import Progress
from omnigraph_ops.stages.optimize.index_writer import IndexWriter

Room = Callable[[int], bool]
"""Whether the budget of the run has room for a table's rewrite, after its indexes took so many bytes."""


@dataclass(slots=True)
class Effort:
    """What the units of one table did so far; mutable because units report as they go."""

    fragments_removed: int = 0
    fragments_added: int = 0
    bytes_written: int = 0
    folded: list[str] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    rewrite_deferred: bool = False

    def add(self, metrics: RewriteMetrics) -> None:
        self.fragments_removed += metrics.fragments_removed
        self.fragments_added += metrics.fragments_added
        self.bytes_written += metrics.bytes_written

    def add_indexes(self, other: Effort) -> None:
        """Count the indexes of another effort, once it is committed."""
        self.folded += other.folded
        self.built += other.built


def written_indexes(published: Dataset, effort: Effort) -> int:
    """Bytes of the indexes that were folded or built, as they are published. Reads."""
    anew = {*effort.folded, *effort.built}
    return sum(index.size_bytes for index in index_facts(published) if index.name in anew)


def fold(  # noqa: PLR0917 - what a unit of one table works with
    writer: IndexWriter, dataset: Dataset, plan: TablePlan, guard: Guard, effort: Effort, progress: Progress
) -> None:
    """Unit F: one commit of the dataset that is open per index name, then missing indexes. Writes."""
    # Text last: their process is on its way up meanwhile.
    for index in sorted(plan.folds, key=lambda f: f.release is not None):
        progress(f"folding index {index.name}")
        guard()
        _fold_or_rebuild(writer, dataset, index, guard, progress)
        effort.folded.append(index.name)
    for build in plan.builds:
        progress(f"building index {build.name}")
        guard()
        _build(writer, dataset, build, progress)
        effort.built.append(build.name)


def _build(writer: IndexWriter, dataset: Dataset, build: IndexBuild, progress: Progress) -> None:
    if build.release is None:
        build_index(dataset, build.column, build.index_type, build.name)
    else:
        writer.build_text(dataset, build.release, build.name, build.column, progress)


def _fold(writer: IndexWriter, dataset: Dataset, index: IndexFold, progress: Progress) -> None:
    if index.release is None:
        fold_index(dataset, index.name, index.segments)
    elif index.rebuild and writer.lance.may_rebuild_indexes:
        writer.build_text(dataset, index.release, index.name, index.columns[0], progress)
    else:
        writer.fold_text(dataset, index.release, index.name, index.segments, progress)


def _fold_or_rebuild(writer: IndexWriter, dataset: Dataset, index: IndexFold, guard: Guard, progress: Progress) -> None:
    """Fold one index; where folding fails or leaves a fragment out, build the index anew. Writes.

    Lance skips an index whose files are gone without an error, and some of its versions fail on
    full-text indexes with deleted rows: an index is derived data, so building it again is safe.
    """
    # Fragments that another writer adds meanwhile are the next run's: not a reason to build anew.
    fragments = {f.fragment_id for f in dataset.get_fragments()}
    try:
        _fold(writer, dataset, index, progress)
    except (CommitConflict, CommitContention, IncompatibleCommit):
        raise
    except LanceFailure as error:
        progress(f"folding index {index.name} failed, building it anew: {error}")
    found = next((i for i in index_facts(dataset) if i.name == index.name), None)
    if found is not None and found.segments == 1 and fragments <= found.covered:
        return
    kind = index_type_of(found) if found is not None and writer.lance.may_rebuild_indexes else None
    if kind is None or len(index.columns) != 1:
        raise LanceFailure(
            f"index {index.name} of {dataset.uri} could not be folded and is not of a kind this tool builds; "
            "no row was changed; drop the index or build it with the tool that made it"
        )
    progress(f"building index {index.name} anew")
    guard()
    anew = IndexBuild(column=index.columns[0], index_type=kind, name=index.name, release=index.release)
    _build(writer, dataset, anew, progress)
