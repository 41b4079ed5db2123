"""The work of the units F (fold) and R (rewrite), and where it executes.

A unit of work on plain Lance: the lease, the effects, a look at what they left. Nothing is armed. A sidecar would tell
a reader of the graph manifest which commits are ours to publish; here Lance's own commit is atomic and is the publish,
so a kill at any point leaves the last commit and perhaps files that nothing refers to, which the journal of the rewrite
or `orphans` reclaims.

Commit rewrites, with the work on indexes put off where that was asked for. Where row ids are not stable, a rewrite
moves every row, and Lance writes each index anew within the commit. Deferred, it notes in `__lance_frag_reuse` where
rows went and indexes keep their files. That note may never be dropped: every query would come back empty. And Lance 7
fails on vector indexes until they are folded, so that follows at once.

Prepare the index work of a table outside of its lineage: fold and build on a clone, then move the files over. Lance
builds an index and commits it in one call. On a shallow clone of the published version that call commits to the clone;
what it did to the indexes is then one small commit of the table itself. Until that, no reader and no writer of the
table sees anything, however long the work takes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.holds import Hold
from omnigraph_ops.coordination.landing import LandedUnit
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.coordination.pace import Pause
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome, perform
from omnigraph_ops.coordination.state import CLONES_DIR
from omnigraph_ops.errors import CorruptGraph, InvalidInput, OpsError, StalePlan, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import history
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.commits import IndexChange, index_change
from omnigraph_ops.lance.evidence import wrong_content
from omnigraph_ops.lance.gateway import (
    CommitConflict,
    CommitContention,
    Dataset,
    DistanceOverflow,
    IncompatibleCommit,
    LanceFailure,
    LanceGateway,
    lance_errors,
)
from omnigraph_ops.lance.rewrites import RewriteMetrics
from omnigraph_ops.lance.tables import (
    build_index,
    build_text_again,
    commit_results,
    fold_index,
    index_facts,
    index_type_of,
    text_parameters,
)
from omnigraph_ops.lance.text_indexer import COMMAND, begin, home_of, is_installed, process_of
from omnigraph_ops.lance.vector_indexes import retrain
from omnigraph_ops.models.optimize import Executor, IndexBuild, IndexFold, TablePlan, UnitWindow
from omnigraph_ops.progress import Progress
from omnigraph_ops.storage.inventory import below_folder, move_files
from omnigraph_ops.storage.store import Storage

Guard = Callable[[], None]
"""Raises when another run took over: asked right before every commit."""
Effects = Callable[[Dataset, Guard], None]


def run_plain_unit(graph: Graph, entry: TableEntry, *, unit: str, effects: Effects) -> LandedUnit:
    """Run content-preserving `effects` on the version that was planned with. Writes.

    Other writers commit whenever they like. Lance compares our commit with theirs since the version that is
    open, which therefore is the planned one and not a newer HEAD that nobody compared with the results.

    Raises:
        StalePlan: the dataset or the planned version is gone.
        GraphFrozen: somebody froze the dataset; nothing was written.
        LeaseHeld: another maintenance run took over; what was committed before stays.
        CorruptGraph: rows were lost or gained; readers see that version already, the one before can be restored.
        Whatever `effects` raises; what it committed before stays.
    """
    with committer_turn(graph, f"optimize {entry.table_key} ({unit})") as keeper:
        refuse_frozen(graph, entry.table_key)
        dataset = graph.open_head(entry)
        started = time.monotonic()
        # A run that lost the lease, stopped for long perhaps, may find its new files removed by `orphans`.
        effects(dataset, keeper.assert_held)
        window = UnitWindow(unit=unit, seconds=round(time.monotonic() - started, 4))
        committed = int(dataset.version) != entry.version
        if committed:
            _check_content(graph, entry, dataset)
    now = graph.state_of(entry.table_key).get(entry.table_key)
    if now is None:
        raise StalePlan(f"{entry.table_key} was dropped while it was maintained")
    return LandedUnit(entry=now, window=window if committed else None)


def _check_content(graph: Graph, entry: TableEntry, after: Dataset) -> None:
    """Compare with the planned version, where every commit since is known to change no row. Reads."""
    chain = history(graph.storage, entry.path, after=entry.version, upto=int(after.version))
    if not chain.preserves_content:
        return
    problem = wrong_content(graph.open_pinned(entry), after)
    if problem is not None:
        raise CorruptGraph(
            f"{entry.table_key} {problem}; stop its writers, restore version {entry.version} with Lance and report this"
        )


def commit_rewrites(
    dataset: Dataset, results: Sequence[str], *, defer_index_remap: bool, leave: Collection[str] = ()
) -> RewriteMetrics:
    """Commit finished rewrites; deferred, fold every index afterwards. Writes.

    Args:
        leave: indexes that stay unfolded: this pylance would add words to them that their readers do not find.
    """
    metrics = commit_results(dataset, results, defer_index_remap=defer_index_remap)
    for index in index_facts(dataset) if defer_index_remap else ():
        if index.name not in leave:
            fold_index(dataset, index.name, index.segments)
    return metrics


def refuse_deferral(dataset: Dataset, table_key: str) -> None:
    """Refuse to defer where nothing is to be deferred; `InvalidInput` says why. Reads."""
    if dataset.has_stable_row_ids:
        raise InvalidInput(
            f"--defer-index-remap does not apply to {table_key}: its row ids are stable, a rewrite moves no row "
            "of any index; nothing was written; leave the option out"
        )


class TaskExecutor(Protocol):
    """Executes compaction tasks of one dataset version, and index work on a clone of it; makes no version itself."""

    kind: Executor

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        """Yield one outcome per order, in any order. Writes data files and the journal of the rewrite."""

    def index(self, graph: Graph, clone: Dataset, plan: TablePlan, effort: Effort, progress: Progress) -> None:
        """Fold and build the indexes of a plan. Writes index files in the clone, and commits to it."""


class InProcessExecutor:
    """One task after the other; Lance itself uses all cores within a task."""

    kind = Executor.IN_PROCESS

    def __init__(self, storage: Storage | None = None, pause: Pause | None = None) -> None:
        self._storage, self._pause = storage, pause
        """The graph's store as it was opened, None: as this process reaches it; and how its run waits."""

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        for order in orders:
            try:
                yield perform(order, dataset, storage=self._storage, pause=self._pause)
            except OpsError as error:
                # The other groups are none the worse for it, and are committed.
                yield TaskOutcome(index=order.index, attempt=None, error=str(error))

    def index(self, graph: Graph, clone: Dataset, plan: TablePlan, effort: Effort, progress: Progress) -> None:
        fold(IndexWriter.of(graph), clone, plan, lambda: None, effort, progress)


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
        request = {"kind": "fold", "segments": segments}
        self._ask(dataset, release, f"fold index {name} of {dataset.uri}", name, request, progress)

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
        request = {"kind": "build", "column": column, "parameters": dict(parameters)}
        self._ask(dataset, release, f"build index {name} of {dataset.uri}", name, request, progress)

    def _ask(  # noqa: PLR0917 - one request
        self, dataset: Dataset, release: str, action: str, name: str, request: Mapping[str, object], progress: Progress
    ) -> None:
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
            **request,
        }
        process_of(self.home / release).ask(action, whole, progress)
        with lance_errors(f"open {dataset.uri}"):
            dataset.checkout_latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedIndexes:
    """Index work that waits for its commit."""

    change: IndexChange | None
    """None when nothing came of it."""
    error: OpsError | None = None
    """What ended the work early; `change` is what was done before."""


def prepare_indexes(graph: Graph, entry: TableEntry, hold: Hold, work: Callable[[Dataset], None]) -> PreparedIndexes:
    """Run index work of a table on a clone of its published version. Writes index files; makes no version.

    Args:
        hold: keeps that version meanwhile: a cleanup would take the files that the clone reads.
    """
    pinned = graph.open_pinned(entry)
    with _cloned(graph, pinned, clone_path(hold.hold_id)) as clone:
        # A commit to the clone would collect the versions before it, which tell what was built.
        graph.lance.strip_auto_cleanup(clone)
        since, error = int(clone.version), None
        try:
            work(clone)
        except OpsError as failure:
            error = failure
        change = index_change(pinned, clone, since)
        if change is None:
            return PreparedIndexes(change=None, error=error)
        _move_over(graph, clone_path(hold.hold_id), entry.path, change)
        return PreparedIndexes(change=change, error=error)


def clone_path(hold_id: str) -> str:
    """Where the clone of a run is, relative to the graph: named by the hold that tells whether it is in use. Pure."""
    return f"{CLONES_DIR}/{hold_id}.lance"


@contextlib.contextmanager
def _cloned(graph: Graph, pinned: Dataset, path: str) -> Iterator[Dataset]:
    try:
        yield graph.lance.clone(pinned, graph.context.location.uri(path))
    finally:
        graph.storage.delete_tree(path)


def _move_over(graph: Graph, clone: str, table: str, change: IndexChange) -> None:
    """Move the files of the new segments into the table. Writes."""
    paths = [
        path
        for segment in change.added
        for path in sorted(
            f.path for f in below_folder(graph.storage, f"{clone}/_indices/{segment.uuid}") if not f.is_folder
        )
    ]
    moves = [(path, f"{table}/{path.removeprefix(f'{clone}/')}") for path in paths]
    faults = move_files(graph.storage, moves)
    if faults:
        raise StorageError(
            f"index files of {table} could not be put in place: {faults[0].path}: {faults[0].reason}; "
            "nothing was committed"
        )


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
    failures: list[LanceFailure] = []
    for index in sorted(plan.folds, key=lambda f: f.release is not None):
        progress(f"folding index {index.name}")
        guard()
        with _noted(failures):
            before = int(dataset.version)
            _fold_or_rebuild(writer, dataset, index, guard, progress)
            # An index may keep what it has, and then nothing was written.
            effort.folded += [index.name] if int(dataset.version) > before else []
    for build in plan.builds:
        progress(f"building index {build.name}")
        guard()
        with _noted(failures):
            _build(writer, dataset, build, progress)
            effort.built.append(build.name)
    if failures:
        raise failures[0]


@contextlib.contextmanager
def _noted(failures: list[LanceFailure]) -> Iterator[None]:
    """Note a failure: the other indexes are none the worse for it. What another writer causes is raised."""
    try:
        yield
    except (CommitConflict, CommitContention, IncompatibleCommit):
        raise
    except DistanceOverflow as error:
        failures.append(
            LanceFailure(
                "some vectors are so large that their distances overflow, and this release of Lance puts them into no "
                "partition; no row was changed, and queries find what they did; correct these vectors, or let the "
                f"engine's own optimize write the index ({error})"
            )
        )
    except LanceFailure as error:
        failures.append(error)


def _build(writer: IndexWriter, dataset: Dataset, build: IndexBuild, progress: Progress) -> None:
    if build.release is None:
        build_index(dataset, build.column, build.index_type, build.name)
    else:
        writer.build_text(dataset, build.release, build.name, build.column, progress)


def _build_text_again(writer: IndexWriter, dataset: Dataset, index: IndexFold, progress: Progress) -> None:
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
    if index.rebuild and index.purge:
        _build_text_again(writer, dataset, index, progress)
    elif index.release is None:
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
    folds, reason = not index.rebuild or index.purge or index.release is not None, "it stays behind"
    try:
        if folds:
            _fold(writer, dataset, index, progress)
    except (CommitConflict, CommitContention, IncompatibleCommit, DistanceOverflow):
        raise
    except LanceFailure as error:
        progress(f"folding index {index.name} failed, building it anew: {error}")
        folds, reason = folds and not index.purge, str(error)  # where it covers every row it has to be written, too
    found = next((i for i in index_facts(dataset) if i.name == index.name), None)
    if folds and found is not None and found.segments == 1 and fragments <= found.covered:
        return
    kind = index_type_of(found) if found is not None and writer.lance.may_rebuild_indexes else None
    if kind is None or len(index.columns) != 1:
        raise LanceFailure(
            f"index {index.name} of {dataset.uri} could not be folded ({reason}) and is not of a kind this tool "
            "builds; no row was changed; drop the index or build it with the tool that made it"
        )
    progress(f"building index {index.name} anew")
    guard()
    anew = IndexBuild(column=index.columns[0], index_type=kind, name=index.name, release=index.release)
    _build(writer, dataset, anew, progress)
