"""Repair: publish existing heads of drifted tables. Rewrites no data.

Only drift made of Rewrite and ReserveFragments is verified maintenance; any other, unknown or
unreadable operation is a person's decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph_ops import serde
from omnigraph_ops.edges.lance_gateway import live_rows
from omnigraph_ops.errors import CorruptGraph, OpsError, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.history import History, history
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lease import committer_lease
from omnigraph_ops.models import Classification, RepairAction, RepairPreview, RepairReport, RepairRow
from omnigraph_ops.optimize.observe import select_entries
from omnigraph_ops.window import refuse_pending

VERIFIED_OPERATIONS = frozenset({"Rewrite", "ReserveFragments"})
REPAIR_ACTOR = "omnigraph:repair"
FORCE_ACTOR = "omnigraph:repair:force"


def preview_repair(graph: Graph, *, tables: Sequence[str] = ()) -> RepairPreview:
    """Every maintained table (or those named) with the classification of its drift. Reads.

    Raises:
        RecoveryPending: something is pending; repair never decides beside a recovery.
    """
    refuse_pending(graph)
    rows = tuple(_isolated(graph, entry) for entry in select_entries(graph, graph.state(), tables))
    drifted = tuple(r for r in rows if r.classification is not Classification.NO_DRIFT)
    return RepairPreview(uri=graph.uri, stamp=graph.stamp, rows=rows, digest=_digest(graph, drifted))


def apply_repair(graph: Graph, preview: RepairPreview, *, force: bool = False) -> RepairReport:
    """Publish what the preview showed: verified tables, and with `force` the others too. Publishes.

    All published tables land in one graph commit. Refused tables do not hold up the others.

    Raises:
        StalePlan: the drift is not what the preview showed; nothing was published.
        RecoveryPending: something is pending; nothing was published.
    """
    with committer_lease(
        graph.storage,
        purpose="repair",
        ttl_seconds=graph.settings.lease_ttl_seconds,
        wait_seconds=graph.settings.lease_wait_seconds,
    ):
        fresh = preview_repair(graph, tables=tuple(r.table_key for r in preview.rows))
        if fresh.digest != preview.digest:
            raise StalePlan(
                f"the drift of {graph.uri} changed since it was previewed; nothing was published; preview again"
            )
        decided = tuple(replace(row, action=decide(row, force=force)) for row in fresh.rows)
        return RepairReport(
            uri=graph.uri,
            confirm=True,
            force=force,
            manifest_version=_publish(graph, decided),
            tables=decided,
        )


def classify(chain: History) -> Classification:
    """The engine's rule over the operations past the pin. Pure."""
    if chain.problem is not None:
        return Classification.UNVERIFIABLE
    if not chain.operations:
        return Classification.NO_DRIFT
    verified = VERIFIED_OPERATIONS.issuperset(chain.operations)
    return Classification.VERIFIED_MAINTENANCE if verified else Classification.SUSPICIOUS


def decide(row: RepairRow, *, force: bool) -> RepairAction:
    """What a confirmed repair does with one previewed table. Pure."""
    if row.classification is Classification.NO_DRIFT:
        return RepairAction.NO_OP
    if row.classification is Classification.VERIFIED_MAINTENANCE:
        return RepairAction.HEALED
    if row.lance_head_version <= row.manifest_version:
        return RepairAction.REFUSED  # there is no newer version to publish, whoever asks
    return RepairAction.FORCED if force else RepairAction.REFUSED


def _isolated(graph: Graph, entry: TableEntry) -> RepairRow:
    """The row of a table; one that cannot be opened is unverifiable and holds up no other. Reads."""
    try:
        return _preview(graph, entry)
    except CorruptGraph:
        raise
    except OpsError as error:
        return RepairRow(
            table_key=entry.table_key,
            manifest_version=entry.version,
            lance_head_version=0,
            classification=Classification.UNVERIFIABLE,
            action=RepairAction.PREVIEW,
            error=str(error),
        )


def _preview(graph: Graph, entry: TableEntry) -> RepairRow:
    head = graph.open_head(entry)
    if head.version < entry.version:
        raise CorruptGraph(
            f"table '{entry.table_key}' Lance HEAD version {head.version} is behind manifest version "
            f"{entry.version}; nothing was published; restore the table from a backup"
        )
    chain = history(graph.storage, entry.path, after=entry.version, upto=head.version)
    classification = classify(chain)
    drifted = classification is not Classification.NO_DRIFT
    return RepairRow(
        table_key=entry.table_key,
        manifest_version=entry.version,
        lance_head_version=head.version,
        classification=classification,
        action=RepairAction.PREVIEW if drifted else RepairAction.NO_OP,
        operations=chain.operations,
        error=chain.problem,
        rows_before=live_rows(graph.open_pinned(entry)) if drifted else None,
        rows_after=live_rows(head) if drifted else None,
    )


def _digest(graph: Graph, drifted: tuple[RepairRow, ...]) -> str:
    return serde.digest(RepairPreview(uri=graph.uri, stamp=graph.stamp, rows=drifted, digest=""))


def _publish(graph: Graph, decided: tuple[RepairRow, ...]) -> int | None:
    chosen = {r.table_key: r for r in decided if r.action in {RepairAction.HEALED, RepairAction.FORCED}}
    if not chosen:
        return None
    updates = []
    for entry in graph.state().entries:
        row = chosen.get(entry.table_key)
        if row is not None:
            # The exact version that was previewed, even if the HEAD has moved on since.
            dataset = graph.lance.open(graph.table_uri(entry), version=row.lance_head_version)
            updates.append(table_update(graph, replace(entry, version=row.manifest_version), dataset))
    forced = any(r.action is RepairAction.FORCED for r in chosen.values())
    actor = FORCE_ACTOR if forced else REPAIR_ACTOR
    return publish(graph, tuple(updates), actor=actor).manifest_version
