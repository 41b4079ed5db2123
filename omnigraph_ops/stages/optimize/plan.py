"""Decide what optimize does with one table. Pure: facts in, plan out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from omnigraph_ops.graph.schema import TableSpec
from omnigraph_ops.lance.index_entries import DeadEntries, limited_kinds, shown_dead_entries
from omnigraph_ops.lance.tables import Exclude, FragmentFacts, IndexFacts, Split, TableFacts
from omnigraph_ops.lance.vector_indexes import VectorFacts
from omnigraph_ops.models.optimize import (
    SKIP_TEXTS,
    Executor,
    IndexBuild,
    IndexFold,
    OptimizeDecision,
    PendingIndex,
    RewritePolicy,
    SkipReason,
    TablePlan,
)
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.optimize.fragments import (
    RewriteRules,
    Thresholds,
    counted,
    deferred_below,
    excluded,
    is_full,
    missing_indexes,
    parts_of,
    put_right,
    shares_of,
    small_runs,
    split,
    wants_rewrite,
)
from omnigraph_ops.stages.optimize.index_plan import (
    INVERTED,
    IndexWork,
    TextState,
    Waiting,
    foreign_texts,
    index_bytes,
    index_folds,
    unhidden_by,
    waiting_for_rows,
    with_purges,
    with_rebuilds,
    with_retrains,
    with_texts,
)

NO_VECTORS = "column has no non-null vectors to train on yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableObservation:
    """Everything a decision about one table rests on."""

    spec: TableSpec
    pinned_version: int
    lance_head_version: int
    facts: TableFacts | None
    """None when the table is drifted or skipped and was not looked into."""
    inherits_indexes: bool = False
    """Whether a rewrite would lose indexes that are another dataset's."""
    columns_without_values: frozenset[str] = frozenset()
    """Vector columns with a declared, missing index and no non-null value yet."""
    untrained: Mapping[str, PendingIndex] = field(default_factory=dict)
    """Vector indexes that no fold can train yet, by name: as good as not there."""
    column_bytes: Mapping[str, int] = field(default_factory=dict)
    """Data bytes of the columns with a declared, missing index."""
    texts: TextState | None = None
    """None where there is no text index and none is declared."""
    vectors: tuple[VectorFacts, ...] = ()
    """Vector indexes, looked at only where they may be trained anew."""
    stale: frozenset[str] = frozenset()
    """Indexes with wrong entries of updated rows, which no fold puts right."""
    lost: frozenset[str] = frozenset()
    """Indexes that lack files; in `facts` they cover nothing."""
    dead: DeadEntries = field(default_factory=DeadEntries)
    """Indexes with entries of rows that are gone, hidden from queries or not, of the kinds where that matters."""
    blobs_kept_for: str | None = None
    """A branch whose merges compare where the blobs of the table lie."""
    text_bytes: int | None = None
    """The most bytes that readers allow to become one fragment, None where no text is long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizePolicy(RewriteRules):
    """What to want; the same for every table of a run."""

    spark_threshold_bytes: int
    compacts_blobs: bool
    unindexed_share: float = 0.0
    """Tiered: the share of rows that indexes may leave uncovered before they are folded."""
    task_bytes: int | None = None
    """The most that one task reads; None is no bound."""
    text_bytes: int | None = None
    """The most that may become one fragment of the table, by the length of its texts."""
    reads_by_bytes: bool = False
    """Whether the engine asks for batches by their bytes, which may have very many rows."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    auto: bool = False
    """Only tables past a threshold."""
    retrain_vectors: bool = False
    """Whether vector indexes get the number of partitions that their rows want."""
    searches_uncovered: bool = True
    """Whether readers find the same while a text or vector index waits for more rows."""
    owns_config: bool = True
    """Whether auto-cleanup is to be removed from the configuration; a plain dataset's is its owner's."""

    def within(self, text_bytes: int | None) -> OptimizePolicy:
        """The policy for a table whose readers bound the bytes of a task, None where they do not. Pure."""
        most = min(filter(None, (text_bytes, self.task_bytes)), default=None)
        return replace(self, text_bytes=text_bytes, task_bytes=most)

    @property
    def purges(self) -> bool:
        """Whether no fragment may keep deleted rows, and so no index their values. Pure."""
        return self.deleted_share == 0

    @property
    def exclude(self) -> Exclude | None:
        """`left_alone` for the edge; None when nothing ever is, which saves a look at every fragment. Pure."""
        plain = self.policy is RewritePolicy.CONVERGE and self.cutoff is None and self.task_bytes is None
        return None if plain else self.left_alone

    def left_alone(self, fragments: Sequence[FragmentFacts], indexes: Sequence[IndexFacts] = ()) -> frozenset[int]:
        """The fragments that a rewrite does not touch; `indexes` as for `excluded`. Pure."""
        full = frozenset(f.fragment_id for f in fragments if is_full(f, self.task_bytes, self.deleted_share))
        return full | excluded(counted(fragments, self.task_bytes, self.target_rows), self, indexes)

    @property
    def split(self) -> Split | None:
        """How a task is made smaller, None when it never is. Pure."""
        if self.task_bytes is None:
            return None
        return partial(split, most_bytes=self.task_bytes, deleted_share=self.deleted_share)


def plan_table(seen: TableObservation, policy: OptimizePolicy) -> TablePlan:
    """The plan for one table. Pure."""
    policy = policy.within(seen.text_bytes)
    skipped = _skip_reason(seen, policy)
    if skipped is not None or seen.facts is None:
        return TablePlan(
            table_key=seen.spec.table_key,
            decision=OptimizeDecision.SKIPPED,
            skipped=skipped,
            read_version=seen.pinned_version,
            lance_head_version=seen.lance_head_version,
            reason=_why_skipped(skipped) if skipped is not None else "",
        )
    trained = tuple(i for i in seen.facts.indexes if i.name not in seen.untrained)
    return _plan_facts(seen, replace(seen.facts, indexes=trained), policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableWork:
    """What is written for one table."""

    indexes: IndexWork
    waiting: Waiting | None
    """Rows for which no index is written yet."""
    groups: tuple[tuple[FragmentFacts, ...], ...]
    """Fragments that get rewritten together."""
    left: str | None = None
    """Why no fragment is rewritten, where some would be."""


def _table_work(seen: TableObservation, facts: TableFacts, policy: OptimizePolicy) -> _TableWork:
    work, waiting = _index_work(seen, facts, policy)
    groups = _groups(facts, policy, work)
    left = None
    if seen.blobs_kept_for is not None and (groups or facts.compaction_tasks):
        left = f"no fragment is rewritten, because a merge of branch {seen.blobs_kept_for!r} compares where blobs lie"
    elif seen.dead.possible & unhidden_by(groups, facts.indexes):
        groups = _groups(facts, policy, work, seen.dead.possible)
        unhidden = seen.dead.possible & unhidden_by(groups, facts.indexes)
        work, waiting = _index_work(seen, facts, policy, unhidden)
        kept = sorted(unhidden - {fold.name for fold in work.folds})
        left = f"no fragment is rewritten, because searches by {', '.join(kept)} would lose hits" if kept else None
    return _TableWork(indexes=work, waiting=waiting, groups=() if left else groups, left=left)


def _plan_facts(seen: TableObservation, facts: TableFacts, policy: OptimizePolicy) -> TablePlan:
    work = _table_work(seen, facts, policy)
    groups, left = work.groups, work.left
    folds, builds, pending = work.indexes.folds, work.indexes.builds, work.indexes.pending
    rewritten = [f for group in groups for f in group]
    productive = bool(folds or builds or groups or (facts.compaction_tasks and not left))
    rewrite_bytes = sum(f.data_bytes for f in rewritten)
    spark = bool(rewritten) and rewrite_bytes >= policy.spark_threshold_bytes
    shares = shares_of(facts, seen.spec, policy.target_rows, tuple(p.column for p in pending), policy.task_bytes)
    won_back = parts_of(put_right(shares, folding=bool(folds or builds)), policy.thresholds.fragments)
    parts = [max(f.divided_into for f in group) for group in groups]
    long = sum(part > 0 for part in parts)
    divided = f"divide {count(long, 'fragment')} with more text than readers can read" if long else None
    notes = (divided, work.waiting.sentence(facts.rows) if work.waiting else None, left, owners_note(facts, policy))
    plan = TablePlan(
        table_key=seen.spec.table_key,
        decision=OptimizeDecision.OPTIMIZE if productive else OptimizeDecision.NO_OP,
        read_version=seen.pinned_version,
        lance_head_version=seen.lance_head_version,
        executor=Executor.SPARK if spark else Executor.IN_PROCESS,
        rows=facts.rows,
        fragments=len(facts.fragments),
        fragments_after=len(facts.fragments) - len(rewritten) + sum(max(part, 1) for part in parts),
        data_bytes=sum(f.data_bytes for f in facts.fragments),
        rewrite_bytes=rewrite_bytes,
        index_bytes=index_bytes(facts, folds, builds, seen.column_bytes),
        benefit=round(sum(part.points for part in won_back), 2),
        folds=folds,
        builds=builds,
        pending_indexes=pending,
        compaction_tasks=len(groups),
        leaves_fragments=left is not None,
        strip_auto_cleanup=productive and policy.owns_config and bool(facts.auto_cleanup_keys),
        reason="; ".join(filter(None, (_reason(folds, builds, len(rewritten)), *notes))),
    )
    return deferred_below(plan, shares, policy.thresholds, presses=bool(long)) if policy.auto else plan


def _index_work(
    seen: TableObservation, facts: TableFacts, policy: OptimizePolicy, unhidden: Collection[str] = ()
) -> tuple[IndexWork, Waiting | None]:
    """What is folded and built, and which indexes stay behind for now. Pure."""
    builds, pending = index_builds(seen, facts)
    # An index of another kind goes with the build of one of its name: a text index of an enum, say.
    replaced = {build.name for build in builds if build.index_type != INVERTED}
    facts = replace(facts, indexes=tuple(i for i in facts.indexes if i.name not in replaced))
    foreign = foreign_texts(facts, seen.texts)
    shown = seen.dead.found if policy.purges else shown_dead_entries(facts, seen.dead.found)
    pressing = builds or foreign or seen.stale or seen.lost or shown or unhidden
    # With one fragment of an edge table uncovered the engine plans a traversal of several hops as if there were no
    # index and reads every edge, so there the cost is not in proportion to what waits.
    searched = any(index.details in limited_kinds(texts=True) for index in facts.indexes)
    may_wait = not pressing and not seen.spec.is_edge and (policy.searches_uncovered or not searched)
    waiting = waiting_for_rows(facts, policy, policy.unindexed_share) if may_wait else None
    folds = () if waiting else index_folds(facts.indexes, facts.fragments)
    why = dict.fromkeys(seen.stale, "has wrong entries of updated rows") | dict.fromkeys(seen.lost, "lacks files")
    folds = with_rebuilds(folds, facts.indexes, why)
    folds = with_purges(folds, facts.indexes, shown, unhidden)
    work = IndexWork(folds=with_retrains(folds, seen.vectors), builds=builds, pending=pending)
    return with_texts(work, facts, seen.texts), waiting


def _skip_reason(seen: TableObservation, policy: OptimizePolicy) -> SkipReason | None:
    if seen.spec.blob_columns and not policy.compacts_blobs:
        return SkipReason.BLOBS
    if seen.lance_head_version != seen.pinned_version:
        return SkipReason.DRIFT
    return SkipReason.INHERITED_INDEXES if seen.inherits_indexes else None


def _why_skipped(skipped: SkipReason) -> str:
    return SKIP_TEXTS[skipped] + (" by this engine generation" if skipped is SkipReason.BLOBS else "")


def owners_note(facts: TableFacts, policy: OptimizePolicy) -> str | None:
    """What is configured on a dataset that is not ours to configure, None when there is nothing. Pure."""
    if policy.owns_config or not facts.auto_cleanup_keys:
        return None
    return "its owner has Lance remove old versions (lance.auto_cleanup.*), which stays"


def index_builds(seen: TableObservation, facts: TableFacts) -> tuple[tuple[IndexBuild, ...], tuple[PendingIndex, ...]]:
    """Declared indexes that are missing: those to build, and those that cannot be built yet. Pure."""
    waiting = {column: PendingIndex(column=column, reason=NO_VECTORS) for column in seen.columns_without_values}
    waiting |= {index.column: index for index in seen.untrained.values()}
    builds = tuple(b for b in missing_indexes(seen.spec, facts) if b.column not in waiting)
    return builds, tuple(waiting.values())


def _groups(
    facts: TableFacts, policy: OptimizePolicy, work: IndexWork, also: Collection[str] = ()
) -> tuple[tuple[FragmentFacts, ...], ...]:
    """Fragment runs that get rewritten: Lance's own plan, or what it will be once indexes are written. Pure.

    Args:
        also: indexes that are written besides those of the work.
    """
    written = {fold.name for fold in work.folds} | {build.name for build in work.builds} | {*also}
    if not written:
        by_id = {f.fragment_id: f for f in facts.fragments}
        return tuple(tuple(by_id[i] for i in ids if i in by_id) for ids in facts.compaction_tasks)
    staying = [index for index in facts.indexes if index.name not in written]
    left = policy.left_alone(facts.fragments)
    groups: list[Sequence[FragmentFacts]] = []
    for run in small_runs(facts.fragments, policy, staying, left):
        if policy.split is not None:
            groups += policy.split(run)
        elif len(run) > 1 or wants_rewrite(run[0], policy.deleted_share):
            groups.append(tuple(run))
    return tuple(map(tuple, groups))


def _reason(folds: tuple[IndexFold, ...], builds: tuple[IndexBuild, ...], rewritten: int) -> str:
    parts = []
    if folds:
        parts.append(f"fold {', '.join(f.name for f in folds)}")
        parts += [f"{f.why}, so it is {'built anew' if f.rebuild or f.retrain else 'folded'}" for f in folds if f.why]
    if builds:
        parts.append(f"build {', '.join(b.name for b in builds)}")
    if rewritten:
        parts.append(f"rewrite {count(rewritten, 'fragment')}")
    return "; ".join(parts) or "nothing to do"
