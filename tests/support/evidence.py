"""Evidence about one table of a graph, and the damage it has to bear."""

from __future__ import annotations

import lance

from omnigraph_ops.graph import Graph
from omnigraph_ops.models.repair import DriftEvidence, EvidenceTier
from omnigraph_ops.stages.repair.run import preview_repair
from omnigraph_ops.stages.repair.stage import plan_view
from omnigraph_ops.views.view import plain_text
from tests.support.writers import entry_of


def evidence(graph: Graph, key: str = "node:Person", tier: EvidenceTier = EvidenceTier.FULL) -> DriftEvidence:
    found = next(r.evidence for r in preview_repair(graph, tables=(key,), evidence=tier).rows)
    assert found is not None
    return found


def counts(found: DriftEvidence) -> tuple[int | None, int | None, int | None]:
    return (found.rows_added, found.rows_removed, found.rows_changed)


def ids(dataset: lance.LanceDataset, count: int) -> str:
    found = dataset.to_table(columns=["id"], limit=count).column("id").to_pylist()
    return ", ".join(f"'{value}'" for value in found)


def compact(dataset: lance.LanceDataset) -> None:
    dataset.optimize.compact_files()


def remove_data(graph: Graph, key: str) -> None:
    folder = f"{entry_of(graph, key).path}/data"
    for name in graph.storage.list(folder):
        graph.storage.delete(f"{folder}/{name}")


def repair_text_of(graph: Graph) -> str:
    return plain_text(plan_view(preview_repair(graph, evidence=EvidenceTier.FULL)))
