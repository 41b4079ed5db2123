"""The state that optimize promises to leave behind."""

from __future__ import annotations

from omnigraph_ops.graph import Graph
from omnigraph_ops.lance.tables import table_facts
from omnigraph_ops.models.optimize import OptimizeDecision, SkipReason
from omnigraph_ops.stages.optimize.run import plan_optimize
from tests.support.leases import is_free, is_lease
from tests.support.rows import tree_of


def assert_converged(graph: Graph) -> None:
    """Pins are heads, nothing is left to plan, every index is whole, nothing of a run is left behind."""
    assert_pins_are_heads(graph)
    for plan in plan_optimize(graph).tables:
        blobs_stay = plan.skipped is SkipReason.BLOBS and not graph.format.compacts_blobs
        assert plan.decision is OptimizeDecision.NO_OP or blobs_stay, f"{plan.table_key}: {plan.reason}"
        if not blobs_stay:
            _assert_indexes_whole(graph, plan.table_key)
    assert_no_leftovers(graph)


def assert_pins_are_heads(graph: Graph) -> None:
    """Every table's published version is its Lance HEAD."""
    entries = graph.maintained(graph.state())
    assert {e.table_key: e.version for e in entries} == {e.table_key: graph.open_head(e).version for e in entries}


def assert_no_leftovers(graph: Graph) -> None:
    """No sidecar, journal record, held lease, hold or half-written file; what was done is no leftover."""
    files = [name for name, kind in tree_of(graph.uri).items() if kind != "folder"]
    own = [f for f in files if f.startswith(("__recovery/", "__maintenance/"))]
    kept = ("__maintenance/audit/", "__maintenance/ingest/")
    assert [f for f in own if not (f.startswith(kept) or is_lease(f))] == []
    assert is_free(graph.storage)
    assert [f for f in files if f.endswith(".tmp")] == []


def _assert_indexes_whole(graph: Graph, table_key: str) -> None:
    entry = graph.state().get(table_key)
    assert entry is not None
    facts = table_facts(graph.open_pinned(entry), graph.settings.target_rows_per_fragment)
    current = {f.fragment_id for f in facts.fragments}
    for index in facts.indexes:
        assert index.segments == 1, f"{table_key}.{index.name} has {index.segments} segments"
        assert index.covered >= current, f"{table_key}.{index.name} misses {current - index.covered}"
