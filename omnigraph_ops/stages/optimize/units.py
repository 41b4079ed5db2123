"""Units of work that arm nothing, on plain Lance and on internal tables, and the count of what units of any table did.

A unit on plain Lance: the lease, the effects, a look at what they left. A sidecar would tell a reader of the
graph manifest which commits are ours to publish; here Lance's own commit is atomic and is the publish, so a kill at any
point leaves the last commit and perhaps files that nothing refers to, which the journal of the rewrite or `orphans`
reclaims.

A rewrite may put off the work on indexes. Where row ids are not stable, it moves every row, and Lance writes each index
anew within the commit. Deferred, it notes in `__lance_frag_reuse` where rows went and indexes keep their files. That
note may never be dropped: every query would come back empty. And Lance 7 fails on vector indexes until they are folded,
so that follows at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from omnigraph_ops.coordination.fence import INTERNAL_COMPACTION
from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.guards import begin_held, refuse_pending
from omnigraph_ops.coordination.landing import LandedUnit
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.coordination.window import discard
from omnigraph_ops.errors import CorruptGraph, GraphFrozen, InvalidInput, OpsError, PublishConflict, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import CONTENT_PRESERVING, VersionRecord, history
from omnigraph_ops.graph.stamp import older_texts
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.commits import RewriteChange
from omnigraph_ops.lance.evidence import wrong_content
from omnigraph_ops.lance.gateway import (
    LOST_COMMITS,
    CommitConflict,
    CommitContention,
    Dataset,
    DatasetMissing,
    DistanceOverflow,
    LanceFailure,
)
from omnigraph_ops.lance.reader_limits import refuse_swollen, swollen
from omnigraph_ops.lance.rewrites import RewriteMetrics
from omnigraph_ops.lance.tables import (
    IndexFacts,
    commit_results,
    defers_index_remap,
    execute_task,
    fold_index,
    fragment_facts,
    index_facts,
    plan_tasks,
)
from omnigraph_ops.models.history import UnitWindow
from omnigraph_ops.models.optimize import OptimizeReport, SkipReason, TableStats
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import count

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


@contextlib.contextmanager
def noted(failures: list[OpsError]) -> Iterator[None]:
    """Note a failure: the other indexes are none the worse for it. What another writer causes is raised."""
    try:
        yield
    except LOST_COMMITS:
        raise
    except DistanceOverflow as error:
        failures.append(
            LanceFailure(
                "some vectors are so large that their distances overflow, and this release of Lance puts them into no "
                "partition; no row was changed, and queries find what they did; correct these vectors; the engine's "
                f"own optimize may never end on them ({error})"
            )
        )
    except LanceFailure as error:
        failures.append(error)


def commit_rewrites(
    graph: Graph,
    entry: TableEntry,
    dataset: Dataset,
    results: Sequence[str],
    *,
    guard: Guard,
    failures: list[OpsError],
) -> RewriteMetrics:
    """Commit finished rewrites; deferred, fold every index afterwards. Writes.

    Args:
        failures: what kept an index from being folded is added to these.
    """
    refuse_swollen(dataset, entry.table_key, results)
    # After a rewrite that was deferred Lance would move the entries of indexes twice, and leave these empty.
    deferred = graph.settings.defer_index_remap or defers_index_remap(dataset)
    # This pylance would add words to them that their readers do not find.
    leave = older_texts(graph.storage, entry.path, entry.version) if deferred else ()
    guard()
    metrics = commit_results(dataset, results, defer_index_remap=deferred)
    for index in index_facts(dataset) if deferred else ():
        if index.name not in leave:
            with noted(failures):
                fold_index(dataset, index.name, index.segments)
    return metrics


def emptied(dataset: Dataset) -> tuple[IndexFacts, ...]:
    """The indexes that a rewrite left without its fragments. Reads."""
    fragments = {f.fragment_id for f in fragment_facts(dataset)}
    return tuple(i for i in index_facts(dataset) if i.is_of_fragments and not fragments <= i.covered)


def fold_emptied(dataset: Dataset, guard: Guard, failures: list[OpsError]) -> None:
    """Fold these, a commit each; what keeps one from it is added to `failures`. Writes."""
    for index in emptied(dataset):
        guard()
        with noted(failures):
            fold_index(dataset, index.name, index.segments)


def refuse_deferral(dataset: Dataset, table_key: str) -> None:
    """Refuse to defer where nothing is to be deferred; `InvalidInput` says why. Reads."""
    if dataset.has_stable_row_ids:
        raise InvalidInput(
            f"--defer-index-remap does not apply to {table_key}: its row ids are stable, a rewrite moves no row "
            "of any index; nothing was written; leave the option out"
        )


def readable(
    graph: Graph, entry: TableEntry, dataset: Dataset, results: Sequence[str], *, effort: Effort, progress: Progress
) -> tuple[str, ...]:
    """The results that readers can read once they are committed; of the others the files are removed. Destroys."""
    lost = swollen(dataset, results)
    effort.leave(tuple(lost.values()), progress)
    discard(graph, entry, [RewriteChange(results=tuple(results[number] for number in lost))])
    return tuple(result for number, result in enumerate(results) if number not in lost)


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
    swollen: bool = False
    """Whether fragments are left because readers could not read what they would become."""
    windows: list[UnitWindow] = field(default_factory=list)
    """Of the units that committed."""
    published: TableEntry | None = None
    """The table as the last of them published it."""
    marks: list[str] = field(default_factory=list)
    """Of the commits that were drafted, whether or not they landed."""

    def add(self, metrics: RewriteMetrics) -> None:
        self.fragments_removed += metrics.fragments_removed
        self.fragments_added += metrics.fragments_added
        self.bytes_written += metrics.bytes_written

    def leave(self, reasons: Sequence[str], progress: Progress) -> int:
        """Note that results are left, each for a reason; how many."""
        if reasons:
            self.swollen = True
            progress(f"left {count(len(reasons), 'fragment group')}: merged, {reasons[0]}, and readers would fail")
        return len(reasons)

    def landed(self, unit: LandedUnit) -> TableEntry:
        """Note the window of a unit, if it committed; the table as published afterwards."""
        if unit.window is not None:
            self.windows.append(unit.window)
            self.published = unit.entry
        return unit.entry

    def add_indexes(self, other: Effort) -> None:
        """Count the indexes of another effort, once it is committed."""
        self.folded += other.folded
        self.built += other.built


def written_indexes(published: Dataset, effort: Effort) -> int:
    """Bytes of the indexes that were folded or built, as they are published. Reads."""
    anew = {*effort.folded, *effort.built}
    return sum(index.size_bytes for index in index_facts(published) if index.name in anew)


_COMPACTIONS = 5


def optimize_internal(graph: Graph) -> tuple[TableStats, ...]:
    """Compact the graph manifest and its companions, or skip them with a token. Writes.

    A foreign commit between a publisher's scan and its merge makes it record a graph version that is
    too low, and nothing repairs that: so this runs only when the settings say that nobody else
    publishes. No index, no sidecar, no lineage, as in the engine.

    Raises:
        PublishConflict: somebody else did publish, again and again.
    """
    if not graph.is_alone():
        return skipped_internal(graph, SkipReason.NOT_EXCLUSIVE)
    with committer_turn(graph, INTERNAL_COMPACTION) as keeper:
        try:
            refuse_pending(graph)
        except GraphFrozen:
            return skipped_internal(graph, SkipReason.FROZEN)
        if not graph.is_alone():  # a fence was lifted meanwhile
            return skipped_internal(graph, SkipReason.NOT_EXCLUSIVE)
        return tuple(_compact(graph, key, path, keeper) for key, path in graph.format.internal_tables(graph.context))


def skipped_internal(graph: Graph, reason: SkipReason) -> tuple[TableStats, ...]:
    keys = graph.format.internal_tables(graph.context)
    return tuple(TableStats(table_key=key, skipped=reason) for key, _ in keys)


def _compact(graph: Graph, key: str, path: str, keeper: LeaseKeeper) -> TableStats:
    for _ in range(_COMPACTIONS):
        dataset = graph.open_at(path)
        graph.lance.strip_auto_cleanup(dataset)
        tasks = plan_tasks(dataset, graph.settings.target_rows_per_fragment)
        if not tasks:
            return TableStats(table_key=key)
        results = [execute_task(dataset, task.payload) for task in tasks]
        refuse_swollen(dataset, key, results)
        # Also behind a fence whose time is over: it is not lifted in the middle of this.
        if not graph.settings.exclusive and not graph.has_fence():
            return TableStats(table_key=key, skipped=SkipReason.NOT_EXCLUSIVE)
        unit = Unit(name=key, stage="optimize", table_key=key, table_path=path, version=int(dataset.version))
        begin_held(graph, unit, keeper)
        try:
            metrics = commit_results(dataset, results)
        except (CommitConflict, CommitContention):
            graph.run.ended(unit, None)
            continue
        stats = TableStats(
            table_key=key,
            fragments_removed=metrics.fragments_removed,
            fragments_added=metrics.fragments_added,
            committed=True,
        )
        graph.run.ended(unit, OptimizeReport.of(graph.uri, (stats,)))
        return stats
    raise PublishConflict(
        f"internal-table compaction of {key} exhausted {_COMPACTIONS} retries against concurrent writers; "
        "nothing is lost; run again when nobody else publishes"
    )


def optimized(graph: Graph, unit: Unit, marks: Collection[str] | None = None) -> TableStats:
    """Whether a commit of ours moved the table, and what it replaced. Reads.

    Args:
        marks: only commits with one of these count, those of this run; None: every commit of this tool counts.
    """
    stats = TableStats(table_key=unit.table_key)
    path, newest = _newest(graph, unit)
    if path is None or newest is None or unit.version is None or int(newest.version) <= unit.version:
        return stats
    commits = history(graph.storage, path, after=unit.version, upto=int(newest.version)).records
    mine = [_is_ours(graph, unit, commit, marks) for commit in commits]
    if not any(mine):
        return stats
    return replace(
        _difference(graph, path, unit.version, newest, stats) if all(mine) else stats,
        committed=True,
        published_version=int(newest.version),
    )


def _newest(graph: Graph, unit: Unit) -> tuple[str | None, Dataset | None]:
    """The path of the table of a unit and its HEAD: `recover` publishes what we committed to it. Reads."""
    if unit.table_path:
        return unit.table_path, graph.open_at(unit.table_path)
    entry = graph.published(unit.table_key)
    return (None, None) if entry is None else (entry.path, graph.open_head(entry))


def _is_ours(graph: Graph, unit: Unit, commit: VersionRecord, marks: Collection[str] | None) -> bool:
    """Whether this tool made a commit: by its mark where it leaves one, else by its kind. Pure."""
    if unit.table_path or not graph.format.publishes:
        return commit.operation in CONTENT_PRESERVING
    return commit.mark is not None if marks is None else commit.mark in marks


def _difference(graph: Graph, path: str, before: int, newest: Dataset, stats: TableStats) -> TableStats:
    """The figures of what was replaced, while the version before is still there. Reads."""
    try:
        old = graph.open_at(path, version=before)
    except DatasetMissing:
        return stats
    had, has = ({f.fragment_id: f for f in fragment_facts(d)} for d in (old, newest))
    known = set(index_facts(old))
    indexes = [i for i in index_facts(newest) if i not in known]
    index_bytes = sum(i.size_bytes for i in indexes)
    return replace(
        stats,
        fragments_removed=len(had.keys() - has.keys()),
        fragments_added=len(has.keys() - had.keys()),
        bytes_rewritten=index_bytes + sum(has[n].data_bytes for n in has.keys() - had.keys()),
        index_bytes_rewritten=index_bytes,
        indexes_folded=tuple(i.name for i in indexes if any(i.name == k.name for k in known)),
        indexes_built=tuple(i.name for i in indexes if all(i.name != k.name for k in known)),
    )
