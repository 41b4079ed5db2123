"""The health of a graph as a view. Pure."""

from __future__ import annotations

from omnigraph_ops.models import HealthReport, TableHealth
from omnigraph_ops.quantities import human_bytes, moment
from omnigraph_ops.views.view import Section, View, filled

_HEADER = (
    *("Table", "Score", "What takes points off", "Small / all fragments", "Deleted", "Unindexed", "Versions"),
    *("Live", "Dead", "Maintained", "Note"),
)


def health_view(report: HealthReport) -> View:
    """One row per table, worst first. Pure."""
    overall = "unknown" if report.score is None else f"{report.score} of 100"
    section = Section(title="Tables", header=_HEADER, rows=tuple(map(_cells, report.tables)))
    return View(
        title=f"health {report.uri} — {len(report.tables)} tables, {overall} by bytes, worst first",
        sections=filled([section]),
    )


def _cells(table: TableHealth) -> tuple[str, ...]:
    if table.score is None:
        return (table.table_key, "?", *[""] * 8, table.error or "")
    index = f" ({table.worst_index})" if table.unindexed_share and table.worst_index else ""
    return (
        table.table_key,
        str(table.score),
        ", ".join(f"{p.name} -{p.points:g} of {p.most}" for p in table.parts if p.points),
        f"{table.small_fragments} / {table.fragments} (cutoff {table.cutoff})",
        f"{table.deleted_share:.0%}",
        f"{table.unindexed_share:.0%}{index}",
        str(table.versions),
        human_bytes(table.data_bytes),
        "unknown" if table.dead_bytes is None else human_bytes(table.dead_bytes),
        "never recorded" if table.maintained_at_us is None else moment(table.maintained_at_us),
        table.note or "",
    )
