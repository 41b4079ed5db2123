"""The recovery audit dataset `_graph_commit_recoveries.lance`: one row per sidecar that was finished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import RECOVERIES_DIR
from omnigraph_ops.graph.rows import RECOVERIES_SCHEMA
from omnigraph_ops.graph.sidecars import Sidecar
from omnigraph_ops.lance.errors import DatasetMissing, LanceFailure, lance_errors
from omnigraph_ops.lance.gateway import Dataset

ROLLED_FORWARD = "RolledForward"
ROLLED_BACK = "RolledBack"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOutcome:
    """What happened to one table of a sidecar."""

    table_key: str
    from_version: int
    to_version: int


def append_audit(
    graph: Graph,
    sidecar: Sidecar,
    *,
    commit_id: str,
    kind: str,
    outcomes: tuple[AuditOutcome, ...],
    created_at_us: int,
) -> None:
    """Append the audit row unless this operation already has one of that kind. Writes."""
    dataset = _open_or_create(graph)
    with lance_errors("read the recovery audit"):
        known = dataset.to_table(columns=["operation_id", "recovery_kind"]).to_pylist()
    if any(r["operation_id"] == sidecar.operation_id and r["recovery_kind"] == kind for r in known):
        return
    row = {
        "graph_commit_id": commit_id,
        "recovery_kind": kind,
        "recovery_for_actor": sidecar.actor_id,
        "operation_id": sidecar.operation_id,
        "sidecar_writer_kind": sidecar.writer_kind,
        "per_table_outcomes_json": _outcomes_json(outcomes),
        "created_at": datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(microseconds=created_at_us),
    }
    graph.lance.strip_auto_cleanup(dataset)
    graph.lance.append(dataset, pa.Table.from_pylist([row], schema=RECOVERIES_SCHEMA))


def _outcomes_json(outcomes: tuple[AuditOutcome, ...]) -> str:
    return json.dumps(
        [{"table_key": o.table_key, "from_version": o.from_version, "to_version": o.to_version} for o in outcomes],
        separators=(",", ":"),
        ensure_ascii=False,
    )


def _open_or_create(graph: Graph) -> Dataset:
    uri = graph.context.location.uri(RECOVERIES_DIR)
    try:
        return graph.lance.open(uri)
    except DatasetMissing:
        pass
    try:
        return graph.lance.create(uri, RECOVERIES_SCHEMA.empty_table())
    except LanceFailure:
        # Two recoveries may create it at once; the loser opens what the winner made.
        return graph.lance.open(uri)
