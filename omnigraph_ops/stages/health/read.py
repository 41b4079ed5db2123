"""Look at every table for its score: metadata and one listing per table, no rows. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.catalog import TableSpec
from omnigraph_ops.graph.entries import select_entries, spec_of
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import any_version_of
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.tables import TableFacts, table_facts
from omnigraph_ops.models import HealthReport, TableHealth
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.health.score import StoredFacts, report_of, score_table
from omnigraph_ops.stages.optimize.ingest import last_run
from omnigraph_ops.stages.optimize.observe import columns_without_values, policy_of
from omnigraph_ops.stages.optimize.plan import OptimizePolicy, missing_indexes, owners_note
from omnigraph_ops.stages.optimize.text_plan import foreign_note
from omnigraph_ops.stages.optimize.text_state import text_state
from omnigraph_ops.storage.inventory import below_folder

_DRIFTED = "drifted, nothing is optimized: omnigraph-ops check says what settles it"


def health(graph: Graph, *, tables: Sequence[str] = ()) -> HealthReport:
    """The score of every maintained table (or of those named), worst first. Reads.

    A table that cannot be looked at carries its error in its row.
    """
    state = graph.state()
    entries = select_entries(graph, state, tables)
    policy = policy_of(graph)

    def one(entry: TableEntry) -> TableHealth:
        try:
            return _look(graph, entry, policy)
        except OpsError as error:
            return TableHealth(table_key=entry.table_key, error=str(error))

    rows = in_parallel(one, entries, workers=graph.settings.concurrency)
    return report_of(graph.uri, graph.stamp, state.manifest_version, rows)


def _look(graph: Graph, entry: TableEntry, policy: OptimizePolicy) -> TableHealth:
    spec = spec_of(graph, entry)
    head = graph.open_head(entry)
    facts = table_facts(head, policy.target_rows, policy.exclude, policy.cut)
    found = score_table(
        spec,
        facts,
        _stored(graph, entry, spec, facts),
        target_rows=policy.target_rows,
        cutoff=policy.thresholds.fragments,
        task_bytes=policy.task_bytes,
        pending=tuple(columns_without_values(head, missing_indexes(spec, facts))),
    )
    run = last_run(graph, entry)
    return replace(
        found,
        maintained_at_us=run.maintained_at_us if run is not None else None,
        note=_note(graph, entry, facts, policy) if head.version == entry.version else _DRIFTED,
    )


def _note(graph: Graph, entry: TableEntry, facts: TableFacts, policy: OptimizePolicy) -> str | None:
    texts = text_state(graph, entry, spec_of(graph, entry), facts)
    return "; ".join(filter(None, (owners_note(facts, policy), foreign_note(facts, texts)))) or None


def _stored(graph: Graph, entry: TableEntry, spec: TableSpec, facts: TableFacts) -> StoredFacts:
    """One listing of the main chain: its versions, and what is stored beyond the newest of them. Reads.

    An upper bound of what a cleanup can free: what branches, tags and holds keep counts as dead, and so do
    orphans. The side files of blobs have no size in a manifest, so there it cannot be told.
    """
    versions, stored = 0, 0
    for file in below_folder(graph.storage, entry.path):
        folder, _, name = file.path.removeprefix(f"{entry.path}/").partition("/")
        if folder == "_versions":
            versions += any_version_of(name) is not None
        elif folder in {"data", "_indices"} and not file.is_folder:
            stored += file.size
    used = sum(f.data_bytes for f in facts.fragments) + sum(i.size_bytes for i in facts.indexes)
    dead = None if spec.blob_columns else max(0, stored - used)
    return StoredFacts(versions=versions, dead_bytes=dead, stored_bytes=stored)
