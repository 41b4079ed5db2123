"""Look at tables for planning. Reads only; nothing here decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from omnigraph_ops.coordination.pace import ceilings_of
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph, spec_of
from omnigraph_ops.graph.lance_manifest import lost_indexes
from omnigraph_ops.graph.layout import chain_folder
from omnigraph_ops.graph.schema import TableSpec
from omnigraph_ops.graph.stamp import certifying_engine, text_indexes
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import Dataset, LanceFailure, live_rows
from omnigraph_ops.lance.index_entries import KINDS, has_updated_rows, limited_kinds, stale_indexes, with_dead_entries
from omnigraph_ops.lance.reader_limits import most_task_bytes
from omnigraph_ops.lance.tables import (
    DELETED_SHARE,
    Exclude,
    RewriteTask,
    TableFacts,
    column_bytes,
    index_type_of,
    inherited_indexes,
    plan_tasks,
    table_facts,
    values_in,
    vectors_to_train,
)
from omnigraph_ops.lance.text_indexer import RELEASES, home_of, is_installed
from omnigraph_ops.lance.vector_indexes import vector_facts
from omnigraph_ops.models.optimize import BranchTable, IndexBuild, PendingIndex
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.optimize.fragments import Thresholds, missing_indexes
from omnigraph_ops.stages.optimize.index_plan import INVERTED, TextState, foreign_texts, index_folds
from omnigraph_ops.stages.optimize.plan import NO_VECTORS, OptimizePolicy, TableObservation
from omnigraph_ops.stages.optimize.units import refuse_deferral
from omnigraph_ops.storage.inventory import files_below


def text_state(graph: Graph, entry: TableEntry, spec: TableSpec, facts: TableFacts) -> TextState | None:
    """The state of the text indexes of a table at the version of `facts`; None where it has and wants none. Reads.

    Raises:
        CorruptGraph: the manifest of that version cannot be read.
    """
    there = [i for i in facts.indexes if index_type_of(i) == INVERTED]
    missing = any(b.index_type == INVERTED for b in missing_indexes(spec, facts))
    if not there and not missing:
        return None
    home = home_of(graph.settings.text_indexers)
    state = TextState(
        writer=graph.format.text_writer,
        indexes=text_indexes(graph.storage, entry.path, facts.version) if there else {},
        installed=frozenset(release for release in RELEASES if is_installed(home, release)),
    )
    behind = missing or index_folds(there, facts.fragments) or foreign_texts(facts, state)
    # A look at who wrote the graph is needed only where an index would be written.
    if not behind or state.writer is None or not state.writer.certifies:
        return state
    return replace(state, certified_by=certifying_engine(graph.context, entry.path, facts.version))


def _with_updates(state: TextState | None, head: Dataset) -> TextState | None:
    """The state with whether rows were updated and kept their ids, which matters on plain Lance alone. Reads."""
    if state is None or state.writer is not None or not head.has_stable_row_ids:
        return state
    return replace(state, has_updated_rows=has_updated_rows(head))


def policy_of(graph: Graph, spark_threshold_bytes: int | None = None) -> OptimizePolicy:
    """The optimize policy of a graph under its settings. Reads the number of cores."""
    settings = graph.settings
    threshold = settings.spark_threshold_bytes if spark_threshold_bytes is None else spark_threshold_bytes
    return OptimizePolicy(
        target_rows=settings.target_rows_per_fragment,
        spark_threshold_bytes=threshold,
        compacts_blobs=graph.format.compacts_blobs,
        policy=settings.policy,
        fan_in=settings.tier_fan_in,
        unindexed_share=settings.tier_unindexed_share,
        # With --auto what is below the cutoff is not rewritten, so the default becomes a bound, too.
        cutoff=settings.fragment_cutoff if settings.auto else settings.cutoff,
        task_bytes=ceilings_of(settings).task_bytes,
        thresholds=Thresholds(
            fragments=settings.fragment_cutoff,
            unindexed_share=settings.auto_unindexed_share,
            deleted_share=0.0 if settings.purge_deleted else settings.auto_deleted_share,
            off=settings.auto_off,
        ),
        auto=settings.auto,
        retrain_vectors=settings.retrain_vectors,
        deleted_share=0.0 if settings.purge_deleted else DELETED_SHARE,
        searches_uncovered=graph.format.searches_uncovered,
        owns_config=graph.format.publishes,
        reads_by_bytes=graph.format.reads_by_bytes,
    )


def facts_under(head: Dataset, policy: OptimizePolicy) -> TableFacts:
    """What planning under a policy needs of the version that is open. Reads."""
    texts, by_bytes = policy.text_bytes, policy.reads_by_bytes
    rules = policy.target_rows, policy.exclude, policy.split, policy.deleted_share
    return table_facts(head, *rules, text_bytes=texts, by_bytes=by_bytes)


def tasks_under(dataset: Dataset, policy: OptimizePolicy, exclude: Exclude | None) -> tuple[RewriteTask, ...]:
    """What is to be rewritten at the version that is open, less what a run leaves alone besides. Reads."""
    texts, by_bytes = policy.text_bytes, policy.reads_by_bytes
    rules = policy.target_rows, exclude, policy.split, policy.deleted_share
    return plan_tasks(dataset, *rules, text_bytes=texts, by_bytes=by_bytes)


def observe_table(graph: Graph, entry: TableEntry, policy: OptimizePolicy) -> TableObservation:
    """Facts about one table at its HEAD; drifted and skipped tables are not looked into. Reads.

    Raises:
        CorruptGraph: the HEAD is behind the pin.
    """
    spec = spec_of(graph, entry)
    head = graph.open_head_past_pin(entry, "nothing was written")
    # Lance 13 takes an index that it remaps in a shallow clone for the original's, and nobody finds its files.
    inherits = not head.has_stable_row_ids and bool(inherited_indexes(head))
    wanted = head.version == entry.version and (policy.compacts_blobs or not spec.blob_columns) and not inherits
    if not wanted:
        return TableObservation(
            spec=spec,
            pinned_version=entry.version,
            lance_head_version=head.version,
            facts=None,
            inherits_indexes=inherits,
        )
    if graph.settings.defer_index_remap:
        refuse_deferral(head, entry.table_key)
    policy = policy.within(most_task_bytes(head))
    facts = facts_under(head, policy)
    lost = _lost(graph, entry, facts)
    usable = (replace(i, covered=frozenset()) if i.name in lost else i for i in facts.indexes)
    facts = replace(facts, indexes=tuple(usable))
    missing = missing_indexes(spec, facts)
    kinds = KINDS if policy.purges else limited_kinds(texts=graph.format.limits_text_search)
    return TableObservation(
        spec=spec,
        pinned_version=entry.version,
        lance_head_version=head.version,
        facts=facts,
        text_bytes=policy.text_bytes,
        texts=_with_updates(text_state(graph, entry, spec, facts), head),
        columns_without_values=columns_without_values(head, missing),
        untrained=untrained(head, facts),
        column_bytes=_column_bytes(head, missing),
        vectors=vector_facts(head) if policy.retrain_vectors else (),
        dead=with_dead_entries(head, facts, kinds),
        stale=stale_indexes(head, facts) if graph.format.leaves_stale_entries else frozenset(),
        lost=lost,
        blobs_kept_for=graph.blobs_kept_for(entry.table_key),
    )


def _lost(graph: Graph, entry: TableEntry, facts: TableFacts) -> frozenset[str]:
    """The indexes that lack files, where they may be built anew: the manifest and a listing for each. Reads."""
    wanted = facts.rows and facts.indexes and graph.lance.may_rebuild_indexes
    lost = lost_indexes(graph.storage, entry.path, facts.version) if wanted else frozenset[str]()
    # Where the table has moved on, somebody may have replaced the index and collected the files.
    return lost if lost and graph.open_head(entry).version == facts.version else frozenset()


def _column_bytes(head: Dataset, missing: Sequence[IndexBuild]) -> dict[str, int]:
    """Data bytes of the columns to be indexed; of files that Lance cannot measure none, they only serve an estimate."""
    try:
        return column_bytes(head, {build.column for build in missing}) if missing else {}
    except LanceFailure:
        return {}


def columns_without_values(head: Dataset, missing: Iterable[IndexBuild]) -> frozenset[str]:
    """Vector columns whose declared index is missing and cannot be trained yet. Reads."""
    return frozenset(b.column for b in missing if b.index_type == "IVF_FLAT" and not values_in(head, b.column))


def untrained(head: Dataset, facts: TableFacts) -> dict[str, PendingIndex]:
    """Vector indexes that cover nothing and that no fold can train yet, by name, with the reason. Reads."""
    found = dict[str, PendingIndex]()
    for index in facts.indexes if facts.fragments else ():
        wanted = vectors_to_train(index, facts.fragments)
        if not wanted:
            continue
        with contextlib.suppress(LanceFailure):  # of a column that a filter cannot name: then a fold tells
            vectors = values_in(head, index.columns[0])
            if vectors < wanted:
                why = f"{wanted} vectors train it, it has {vectors}" if vectors else NO_VECTORS
                found[index.name] = PendingIndex(column=index.columns[0], reason=why)
    return found


def left_on_branches(graph: Graph) -> tuple[BranchTable, ...]:
    """What named branches keep on Lance branches of their own, by branch and key. Reads.

    Optimize works on main: see ADR 22. A branch that cannot be read has a row with its error.
    """
    names = sorted(graph.branches()) if graph.format.publishes else []
    found = in_parallel(lambda name: _of_branch(graph, name), names, workers=graph.settings.concurrency)
    return tuple(row for rows in found for row in rows)


def _of_branch(graph: Graph, name: str) -> list[BranchTable]:
    try:
        return [_owned(graph, name, entry) for entry in graph.state(name).entries if entry.branch == name]
    except OpsError as error:
        return [BranchTable(branch=name, table_key="", error=str(error))]


def _owned(graph: Graph, name: str, entry: TableEntry) -> BranchTable:
    dataset = graph.open_pinned(entry)
    files = list(files_below(graph.storage, chain_folder(entry.path, entry.branch)))
    return BranchTable(
        branch=name,
        table_key=entry.table_key,
        version=entry.version,
        rows=live_rows(dataset),
        fragments=len(dataset.get_fragments()),
        own_files=len(files),
        own_bytes=sum(file.size for file in files),
    )
