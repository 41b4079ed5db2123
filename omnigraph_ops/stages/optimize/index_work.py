"""The work of the unit F (fold): fold and build the indexes of one table.

On a graph this is done on a shallow clone of the published version, and the files are moved over. Lance builds an index
and commits it in one call; on the clone that commit touches nothing that a reader or writer of the table sees, however
long the work takes. One small commit of the table follows. On plain Lance each index is one commit of the dataset.

Several workers may make an index, each of some fragments; it is joined to one segment (docs/adr/0023).
"""

from __future__ import annotations

import base64
import contextlib
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from omnigraph_ops.coordination.holds import Hold
from omnigraph_ops.coordination.state import CLONES_DIR
from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.commits import IndexChange, index_change
from omnigraph_ops.lance.gateway import (
    LOST_COMMITS,
    Dataset,
    DistanceOverflow,
    LanceFailure,
    LanceGateway,
    lance_errors,
)
from omnigraph_ops.lance.tables import (
    IndexFacts,
    build_index,
    build_text_again,
    fold_index,
    index_facts,
    index_type_of,
    text_parameters,
)
from omnigraph_ops.lance.text_indexer import COMMAND, begin, home_of, is_installed, process_of
from omnigraph_ops.lance.vector_indexes import (
    Vectors,
    centre_of,
    centroids_for,
    facts_of,
    refine,
    retrain,
    with_centroids,
)
from omnigraph_ops.models.optimize import IndexBuild, IndexFold, TablePlan
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.stages.optimize.index_plan import INVERTED
from omnigraph_ops.stages.optimize.units import Effort, Guard, noted
from omnigraph_ops.storage.inventory import files_below, move_files

_LOG = logging.getLogger(__name__)
Fragments = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIndex:
    """An index to make anew, of whose fragments each worker may take some."""

    name: str
    column: str
    index_type: str
    """`BTREE`, `INVERTED` or `IVF_FLAT`."""
    release: str | None = None
    """The release of pylance that writes a text index."""
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Of a text index; empty for those of the engine."""
    metric: str = "L2"
    centroids: Vectors | None = None
    """Of a vector index, in rows: parts with centroids of their own do not join."""


def groups_of(dataset: Dataset, *, most: int) -> tuple[Fragments, ...]:
    """All fragments in groups of about as many rows, at most so many. Pure."""
    fragments = sorted(dataset.get_fragments(), key=lambda f: (-int(f.metadata.physical_rows), int(f.fragment_id)))
    ids, number = [int(f.fragment_id) for f in fragments], max(1, min(most, len(fragments)))
    return tuple(tuple(sorted(ids[start::number])) for start in range(number))


_ACTIONS = {
    "fold": "fold index",
    "build": "build index",
    "part": "build a part of index",
    "join": "join the parts of index",
}
"""What an older pylance is asked for, by the kind of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexWriter:
    """Text indexes in a process of an older pylance; only there does a word become the term that readers look up."""

    lance: LanceGateway
    home: Path

    @classmethod
    def of(cls, graph: Graph) -> IndexWriter:
        """The writer for a graph under its settings. Pure."""
        return cls(lance=graph.lance, home=home_of(graph.settings.text_indexers))

    def begin(self, plans: Iterable[TablePlan]) -> None:
        """Start the releases that these plans need, without waiting for them. Starts processes."""
        wanted = {fold.release for plan in plans for fold in plan.folds}
        wanted |= {build.release for plan in plans for build in plan.builds}
        for release in filter(None, wanted):
            if is_installed(self.home, release):
                begin(self.home / release)

    def fold_text(self, dataset: Dataset, release: str, name: str, segments: int, progress: Progress) -> None:
        """Fold a text index; at most one commit of the dataset, whose handle then is at its newest version. Writes.

        Raises:
            LanceFailure, CommitConflict: as when the dataset were folded in this process.
        """
        self._ask(dataset, release, "fold", name, progress, segments=segments)

    def build_text(  # noqa: PLR0917 - one request
        self,
        dataset: Dataset,
        release: str,
        name: str,
        column: str,
        progress: Progress,
        parameters: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Build a text index anew, without `parameters` with those of the engine; as `fold_text`. Writes."""
        self._ask(dataset, release, "build", name, progress, column=column, parameters=dict(parameters))

    def part(self, dataset: Dataset, index: NewIndex, fragments: Fragments) -> str:
        """The description of a part of an index, which nothing refers to; raises as `fold_text`. Writes files."""
        if index.release is None:
            return write_part(dataset, index, fragments)
        what = {"column": index.column, "parameters": dict(index.parameters), "fragments": fragments}
        return str(self._ask(dataset, index.release, "part", index.name, SILENT, **what)["part"])

    def join(self, dataset: Dataset, index: NewIndex, parts: Sequence[str]) -> None:
        """Join the parts of an index to one segment, in its place; raises as `fold_text`. Writes."""
        if index.release is None:
            join_parts(dataset, index, parts)
        else:
            self._ask(dataset, index.release, "join", index.name, SILENT, column=index.column, parts=list(parts))

    def _ask(
        self, dataset: Dataset, release: str, kind: str, name: str, progress: Progress, **what: object
    ) -> Mapping[str, Any]:
        action = f"{_ACTIONS[kind]} {name} of {dataset.uri}"
        if not is_installed(self.home, release):
            raise LanceFailure(
                f"cannot {action}: pylance {release} is not installed in {self.home}; no row was changed; "
                f"install it with `{COMMAND}`"
            )
        whole = {
            "uri": str(dataset.uri),
            "version": int(dataset.version),
            "storage_options": self.lance.storage_options,
            "name": name,
            "kind": kind,
            **what,
        }
        answer = process_of(self.home / release).ask(action, whole, progress)
        with lance_errors(f"open {dataset.uri}"):
            dataset.checkout_latest()  # type: ignore[no-untyped-call]
        return answer


def prepare_indexes(
    graph: Graph, entry: TableEntry, pinned: Dataset, hold: Hold, work: Callable[[Dataset], None]
) -> tuple[IndexChange | None, OpsError | None]:
    """Run index work of a table on a clone of its published version. Writes index files; makes no version.

    Args:
        pinned: the table at that version.
        hold: keeps that version meanwhile: a cleanup would take the files that the clone reads.

    Returns:
        What waits for its commit, None when nothing came of the work; and what ended the work early, after that.
    """
    with _cloned(graph, pinned, clone_path(hold.hold_id)) as clone:
        # A commit to the clone would collect the versions before it, which tell what was built.
        graph.lance.strip_auto_cleanup(clone)
        since, error = int(clone.version), None
        try:
            work(clone)
        except OpsError as failure:
            error = failure
        change = index_change(pinned, clone, since)
        if change is not None:
            _move_over(graph, clone_path(hold.hold_id), entry.path, change)
        return change, error


def clone_path(hold_id: str) -> str:
    """Where the clone of a run is, relative to the graph: named by the hold that tells whether it is in use. Pure."""
    return f"{CLONES_DIR}/{hold_id}.lance"


@contextlib.contextmanager
def _cloned(graph: Graph, pinned: Dataset, path: str) -> Iterator[Dataset]:
    try:
        yield graph.lance.clone(pinned, graph.storage.uri(path))
    finally:
        try:
            graph.storage.delete_tree(path)
        except StorageError as error:
            # What was built on it is in the table by now, and may have taken hours.
            _LOG.warning("the clone %s stays until another run sweeps it: %s", path, error)


def _move_over(graph: Graph, clone: str, table: str, change: IndexChange) -> None:
    """Move the files of the new segments into the table. Writes."""
    paths = [
        path
        for segment in change.added
        for path in sorted(f.path for f in files_below(graph.storage, f"{clone}/_indices/{segment.uuid}"))
    ]
    moves = [(path, f"{table}/{path.removeprefix(f'{clone}/')}") for path in paths]
    faults = move_files(graph.storage, moves)
    if faults:
        raise StorageError(
            f"index files of {table} could not be put in place: {faults[0].path}: {faults[0].reason}; "
            "nothing was committed"
        )


def fold(  # noqa: PLR0917 - what a unit of one table works with
    writer: IndexWriter, dataset: Dataset, plan: TablePlan, guard: Guard, effort: Effort, progress: Progress
) -> None:
    """Unit F: one commit of the dataset that is open per index name, then missing indexes. Writes."""
    # Text last: their process is on its way up meanwhile.
    failures: list[OpsError] = []
    for index in sorted(plan.folds, key=lambda f: f.release is not None):
        progress(f"folding index {index.name}")
        guard()
        with noted(failures):
            before = int(dataset.version)
            _fold_or_rebuild(writer, dataset, index, guard, progress)
            # An index may keep what it has, and then nothing was written.
            effort.folded += [index.name] if int(dataset.version) > before else []
    for build in plan.builds:
        progress(f"building index {build.name}")
        guard()
        with noted(failures):
            _build(writer, dataset, build, progress)
            effort.built.append(build.name)
    if failures:
        raise failures[0]


def _build(writer: IndexWriter, dataset: Dataset, build: IndexBuild, progress: Progress) -> None:
    if build.release is None:
        build_index(dataset, build.column, build.index_type, build.name)
    else:
        writer.build_text(dataset, build.release, build.name, build.column, progress)


def _facts_of(dataset: Dataset, name: str) -> IndexFacts | None:
    """The index of that name at the open version; None where somebody dropped it. Reads."""
    return next((index for index in index_facts(dataset) if index.name == name), None)


def _build_again(writer: IndexWriter, dataset: Dataset, index: IndexFold, progress: Progress) -> None:
    """Build an index anew with what it was built with, which of a BTREE is nothing. Writes."""
    found = _facts_of(dataset, index.name)
    if found is not None and index_type_of(found) == "BTREE":
        build_index(dataset, index.columns[0], "BTREE", index.name)
        return
    column, parameters = text_parameters(dataset, index.name)
    if index.release is None:
        build_text_again(dataset, index.name, column, parameters)
    else:
        writer.build_text(dataset, index.release, index.name, column, progress, parameters)


def _fold(writer: IndexWriter, dataset: Dataset, index: IndexFold, progress: Progress) -> None:
    if index.retrain:
        progress(f"training index {index.name} anew: {index.why}")
        if retrain(dataset, index.name):
            return
        progress(f"index {index.name} keeps its partitions: its vectors allow none that answer as well")
        if index.segments == 1 and not index.uncovered_fragments and not index.purge:
            return
    if index.rebuild and (index.purge or not writer.lance.may_rebuild_indexes):
        _build_again(writer, dataset, index, progress)
    elif index.release is None:
        fold_index(dataset, index.name, index.segments)
    elif index.rebuild:
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
    folds, reason = not index.rebuild or index.purge or index.release is not None, "it stays behind"
    try:
        if folds:
            _fold(writer, dataset, index, progress)
    except (*LOST_COMMITS, DistanceOverflow):
        raise
    except LanceFailure as error:
        progress(f"folding index {index.name} failed: {error}")
        folds, reason = folds and not index.purge, str(error)  # where it covers every row it has to be written, too
    found = _facts_of(dataset, index.name)
    if folds and found is not None and found.segments == 1 and fragments <= found.covered:
        return
    kind = index_type_of(found) if found is not None and writer.lance.may_rebuild_indexes else None
    if kind is None or len(index.columns) != 1:
        raise LanceFailure(
            f"index {index.name} of {dataset.uri} could not be folded ({reason}), and this tool does not build "
            "it anew; no row was changed; drop the index or build it with the tool that made it"
        )
    progress(f"building index {index.name} anew")
    guard()
    anew = IndexBuild(column=index.columns[0], index_type=kind, name=index.name, release=index.release)
    _build(writer, dataset, anew, progress)


def made_anew(writer: IndexWriter, dataset: Dataset, index: IndexFold | IndexBuild) -> NewIndex | None:
    """What `fold` makes anew from all rows, so that it can be made in parts; None for what it folds. Reads.

    Samples the vectors of a vector index: all parts need the same centroids.
    """
    if isinstance(index, IndexBuild):
        return _new(dataset, index.name, index.column, index.index_type, index.release)
    if index.retrain:
        facts = facts_of(dataset, index.name)
        centroids = centroids_for(dataset, facts)
        if centroids is None:
            return None
        return NewIndex(
            name=index.name, column=facts.column, index_type="IVF_FLAT", metric=facts.metric, centroids=centroids
        )
    if not index.rebuild or len(index.columns) != 1 or not writer.lance.may_rebuild_indexes:
        return None
    if index.purge and index.release is not None:
        column, parameters = text_parameters(dataset, index.name)
        return NewIndex(
            name=index.name, column=column, index_type=INVERTED, release=index.release, parameters=parameters
        )
    found = _facts_of(dataset, index.name)
    kind = index_type_of(found) if found is not None else None
    return None if kind is None else _new(dataset, index.name, index.columns[0], kind, index.release)


def _new(dataset: Dataset, name: str, column: str, kind: str, release: str | None) -> NewIndex | None:
    if kind == INVERTED and release is None:
        return None
    centroids = centre_of(dataset, column) if kind == "IVF_FLAT" else None
    if kind == "IVF_FLAT" and centroids is None:
        return None
    return NewIndex(name=name, column=column, index_type=kind, release=release, centroids=centroids)


def write_part(dataset: Any, index: NewIndex, fragments: Fragments) -> str:
    """Make a scalar or vector index of these fragments, which nothing refers to; its description. Writes files."""
    trained = with_centroids(index.metric, index.centroids) if index.centroids is not None else {}
    with lance_errors(f"build a part of index {index.name} of {dataset.uri}"):
        part = dataset.create_index_uncommitted(
            index.column, index.index_type, name=index.name, replace=True, fragment_ids=list(fragments), **trained
        )
    return base64.b64encode(pickle.dumps(part)).decode()


def join_parts(dataset: Any, index: NewIndex, parts: Sequence[str]) -> None:
    """Join the parts, of all fragments together, to one segment in place of the index; a few commits at most. Writes.

    Raises:
        LanceFailure: they do not join, or somebody else committed.
    """
    found = [pickle.loads(base64.b64decode(part)) for part in parts]
    with lance_errors(f"join the parts of index {index.name} of {dataset.uri}"):
        joined = dataset.merge_existing_index_segments(found)
        dataset.commit_existing_index_segments(index.name, index.column, [joined])
        dataset.checkout_latest()
    if index.centroids is not None:
        refine(dataset, index.name, index.centroids)
