"""The health of a graph as text for a terminal. Pure."""

from __future__ import annotations

from omnigraph_ops.durations import moment
from omnigraph_ops.models import HealthReport, TableHealth
from omnigraph_ops.sizes import human_bytes


def health_text(report: HealthReport) -> str:
    """One line per table, worst first, and below it what takes points off. Pure."""
    overall = "unknown" if report.score is None else f"{report.score} of 100"
    lines = [f"health {report.uri} — {len(report.tables)} tables, {overall} by bytes, worst first"]
    for table in report.tables:
        lines.append(f"  {table.table_key:<40} {_line(table)}")
        reasons = ", ".join(f"{p.name} -{p.points:g} of {p.most}" for p in table.parts if p.points)
        lines += [f"    ↳ {reasons}"] if reasons else []
        lines += [f"    ↳ {table.note}"] if table.note else []
    return "\n".join(lines)


def _line(table: TableHealth) -> str:
    if table.score is None:
        return f"  ?  {table.error}"
    dead = "unknown" if table.dead_bytes is None else human_bytes(table.dead_bytes)
    last = "never recorded" if table.maintained_at_us is None else moment(table.maintained_at_us)
    index = f" ({table.worst_index})" if table.unindexed_share and table.worst_index else ""
    return (
        f"{table.score:>3}  {table.small_fragments} small of {table.fragments} fragments (cutoff {table.cutoff}), "
        f"{table.deleted_share:.0%} deleted, {table.unindexed_share:.0%} unindexed{index}, {table.versions} versions, "
        f"{human_bytes(table.data_bytes)} live, {dead} dead, maintained {last}"
    )
