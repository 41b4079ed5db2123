"""The score of one table from facts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph_ops.graph.catalog import TableSpec
from omnigraph_ops.lance.tables import TableFacts
from omnigraph_ops.models import HealthReport, TableHealth
from omnigraph_ops.stages.optimize.shares import part, parts_of, shares_of

VERSIONS, DEAD_BYTES = 5, 15
"""With the parts that optimize can win back these make 100."""
_MANY_VERSIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """What lies in the store of one table."""

    versions: int
    dead_bytes: int | None
    """None where it cannot be told."""
    stored_bytes: int


def score_table(
    spec: TableSpec,
    facts: TableFacts,
    stored: StoredFacts,
    *,
    target_rows: int,
    cutoff: int,
    task_bytes: int | None = None,
    pending: Sequence[str] = (),
) -> TableHealth:
    """The health of one table; declared indexes on the columns of `pending` cannot be built yet. Pure."""
    shares = shares_of(facts, spec, target_rows, pending, task_bytes)
    dead = (stored.dead_bytes or 0) / stored.stored_bytes if stored.stored_bytes else 0.0
    parts = (
        *parts_of(shares, cutoff),
        part("versions", min(1.0, max(0, stored.versions - 1) / _MANY_VERSIONS), VERSIONS),
        part("dead_bytes", min(1.0, dead), DEAD_BYTES),
    )
    return TableHealth(
        table_key=spec.table_key,
        score=round(100 - sum(p.points for p in parts)),
        parts=parts,
        rows=facts.rows,
        fragments=len(facts.fragments),
        small_fragments=shares.small_fragments,
        cutoff=cutoff,
        data_bytes=sum(f.data_bytes for f in facts.fragments),
        small_share=shares.small_share,
        deleted_share=shares.deleted_share,
        unindexed_share=shares.unindexed_share,
        worst_index=shares.worst_index,
        versions=stored.versions,
        dead_bytes=stored.dead_bytes,
    )


def report_of(uri: str, stamp: int, graph_version: int, tables: Sequence[TableHealth]) -> HealthReport:
    """All tables, worst first, and their mean by bytes. Pure."""
    told = [(t.score, max(t.data_bytes, 1)) for t in tables if t.score is not None]
    weight = sum(size for _, size in told)
    return HealthReport(
        uri=uri,
        stamp=stamp,
        graph_version=graph_version,
        score=round(sum(score * size for score, size in told) / weight) if told else None,
        tables=tuple(sorted(tables, key=_badness)),
    )


def _badness(table: TableHealth) -> tuple[int, str]:
    return (-1 if table.score is None else table.score, table.table_key)
