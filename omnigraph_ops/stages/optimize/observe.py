"""Look at tables for planning. Reads only; nothing here decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph_ops.coordination.throttle import ceilings_of
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.entries import spec_of
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.errors import LanceFailure
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.tables import column_bytes, has_values, table_facts
from omnigraph_ops.models import IndexBuild
from omnigraph_ops.stages.optimize.auto import thresholds_of
from omnigraph_ops.stages.optimize.deferred import refuse_deferral
from omnigraph_ops.stages.optimize.plan import OptimizePolicy, TableObservation, missing_indexes
from omnigraph_ops.stages.optimize.text_state import text_state


def policy_of(graph: Graph, spark_threshold_bytes: int | None = None) -> OptimizePolicy:
    """The optimize policy of a graph under its settings. Pure."""
    settings = graph.settings
    threshold = settings.spark_threshold_bytes if spark_threshold_bytes is None else spark_threshold_bytes
    return OptimizePolicy(
        target_rows=settings.target_rows_per_fragment,
        spark_threshold_bytes=threshold,
        compacts_blobs=graph.format.compacts_blobs,
        rewrite=settings.policy,
        fan_in=settings.tier_fan_in,
        unindexed_share=settings.tier_unindexed_share,
        # With --auto what is below the cutoff is not rewritten, so the default becomes a bound, too.
        cutoff=settings.fragment_cutoff if settings.auto else settings.cutoff,
        task_bytes=ceilings_of(settings).task_bytes,
        thresholds=thresholds_of(settings),
        auto=settings.auto,
        owns_config=graph.format.publishes,
    )


def observe_table(graph: Graph, entry: TableEntry, policy: OptimizePolicy) -> TableObservation:
    """Facts about one table at its HEAD; drifted and skipped tables are not looked into. Reads.

    Raises:
        CorruptGraph: the HEAD is behind the pin.
    """
    spec = spec_of(graph, entry)
    head = graph.open_head(entry)
    if head.version < entry.version:
        raise CorruptGraph(
            f"table '{entry.table_key}' Lance HEAD version {head.version} is behind manifest version "
            f"{entry.version}; nothing was written; restore the table from a backup"
        )
    wanted = head.version == entry.version and (policy.compacts_blobs or not spec.blob_columns)
    if not wanted:
        return TableObservation(spec=spec, pinned_version=entry.version, lance_head_version=head.version, facts=None)
    if graph.settings.defer_index_remap:
        refuse_deferral(head, entry.table_key)
    facts = table_facts(head, policy.target_rows, policy.exclude, policy.cut)
    missing = missing_indexes(spec, facts)
    return TableObservation(
        spec=spec,
        pinned_version=entry.version,
        lance_head_version=head.version,
        facts=facts,
        texts=text_state(graph, entry, spec, facts),
        columns_without_values=columns_without_values(head, missing),
        column_bytes=_column_bytes(head, missing),
    )


def _column_bytes(head: Dataset, missing: Sequence[IndexBuild]) -> dict[str, int]:
    """Data bytes of the columns to be indexed; of files that Lance cannot measure none, they only serve an estimate."""
    try:
        return column_bytes(head, {build.column for build in missing}) if missing else {}
    except LanceFailure:
        return {}


def columns_without_values(head: Dataset, missing: Iterable[IndexBuild]) -> frozenset[str]:
    """Vector columns whose declared index is missing and cannot be trained yet. Reads."""
    return frozenset(b.column for b in missing if b.index_type == "IVF_FLAT" and not has_values(head, b.column))
