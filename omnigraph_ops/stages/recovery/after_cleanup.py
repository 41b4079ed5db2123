"""Whether a published version is without a write that was rolled back, where its transactions are gone. Reads only.

The transactions of a chain tell what its versions were made of, and a cleanup removes them. Two records outlast it:

- The audit of a rollback says from which version the engine restored each table. That was the newest one before the
  restore, and the restore was published with the rollback. Where the write committed nothing after that version, and
  nobody published a version between the two, nothing of the write is published.
- A cleanup frees the numbers of versions. A writer that was stopped may commit under such a number, below newer
  versions, which are not made from its commit. The graph manifest then has another file for that number than the
  sidecar.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from omnigraph_ops import serde
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.sidecars import AuditOutcome, ConfirmedVersion, ExactWrite, Sidecar, SidecarPin, rollbacks
from omnigraph_ops.stages.recovery.unpublished import Overlaid

_Published = Mapping[int, tuple[str | None, str]]
"""Lance branch and metadata of every version of a table that was ever published."""


def is_without(graph: Graph, sidecar: Sidecar, write: ExactWrite, pin: SidecarPin, table: Overlaid) -> bool:
    """Whether the published version of a table has nothing of a write whose rollback is published. Reads.

    False where these records do not tell: the transactions may.
    """
    slots = write.intended_delta.table_updates
    made = next((slot.confirmed for slot in slots if slot.identity == pin.identity), None)
    if write.is_unconfirmed or made is None or pin.identity is None:
        return False
    if {made.table_branch, pin.table_branch} != {table.entry.branch}:
        return False
    if not pin.expected_version < made.table_version < table.entry.version:
        return False
    rows = graph.context.manifest_rows.of(graph.manifest(sidecar.branch), sidecar.branch)
    published = graph.format.published_versions(rows, pin.identity)
    commits_once = sum(len(effect.transactions) for effect in write.effects if effect.identity == pin.identity) == 1
    return (commits_once and _is_in_a_gap(table, made, published)) or any(
        _is_restored(table, made, published, outcome)
        for outcome in _audited(graph, sidecar.operation_id, write.rollback_graph_commit_id)
        if outcome.table_key == pin.table_key
    )


def _audited(graph: Graph, operation_id: str, commit_id: str) -> tuple[AuditOutcome, ...]:
    """What the audit says of the rollback that a graph commit published. Reads."""
    rows = rollbacks(graph, "operation_id", "graph_commit_id", "per_table_outcomes_json")
    wanted = (operation_id, commit_id)
    texts = (r["per_table_outcomes_json"] for r in rows if (r["operation_id"], r["graph_commit_id"]) == wanted)
    return tuple(outcome for text in texts for outcome in serde.from_json(tuple[AuditOutcome, ...], text))


def _is_restored(table: Overlaid, made: ConfirmedVersion, published: _Published, outcome: AuditOutcome) -> bool:
    """Whether a rollback restored a table after the last commit of the write, none of which was published. Pure."""
    if not made.table_version <= outcome.from_version < table.entry.version:
        return False
    return not any(outcome.to_version < version <= outcome.from_version for version in published)


def _is_in_a_gap(table: Overlaid, made: ConfirmedVersion, published: _Published) -> bool:
    """Whether another file was published with the number of the write's commit. Pure."""
    branch, metadata = published.get(made.table_version, (None, "{}"))
    tags = (json.loads(metadata).get("e_tag"), made.version_metadata.e_tag)
    return branch == table.entry.branch and None not in tags and tags[0] != tags[1]
