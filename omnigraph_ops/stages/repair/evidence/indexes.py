"""How much of each version the indexes cover. Pure but for the read."""

from __future__ import annotations

from omnigraph_ops.lance.tables import IndexFacts, index_facts
from omnigraph_ops.models import Coverage, IndexEvidence
from omnigraph_ops.stages.repair.evidence.sides import Side, Sides


def index_evidence(sides: Sides) -> tuple[IndexEvidence, ...]:
    """Every index of either side by name. Reads."""
    old = {i.name: i for i in index_facts(sides.before.dataset)}
    new = {i.name: i for i in index_facts(sides.after.dataset)}
    return tuple(
        IndexEvidence(
            name=name,
            columns=(new.get(name) or old[name]).columns,
            before=_coverage(old.get(name), sides.before),
            after=_coverage(new.get(name), sides.after),
        )
        for name in sorted(old.keys() | new.keys())
    )


def _coverage(index: IndexFacts | None, side: Side) -> Coverage | None:
    if index is None:
        return None
    covered = [f for f in side.fragments if f.fragment_id in index.covered]
    return Coverage(
        fragments_covered=len(covered),
        fragments=len(side.fragments),
        rows_covered=sum(f.rows for f in covered),
        rows=side.rows,
    )
