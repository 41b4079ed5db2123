"""What the demo shows of the graph's tables before and after the night."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from omnigraph_ops.models import OptimizeDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """One table, as the optimize plan sees it."""

    rows: int | None
    fragments: int | None
    stale_indexes: int | None
    """Indexes that miss fragments or that are declared and do not exist."""
    pin: int
    head: int
    rewrite_bytes: int
    work_left: bool

    @property
    def drifted(self) -> bool:
        """Whether the newest version is not the published one."""
        return self.pin != self.head


def observe(graph: Path) -> dict[str, PlannedTable]:
    """Facts of every table of the graph, in key order; a drifted one is not looked into. Reads."""
    from omnigraph_ops.graph import open_graph
    from omnigraph_ops.stages.optimize import plan_optimize

    plan = plan_optimize(open_graph(str(graph)))
    return {
        t.table_key: PlannedTable(
            rows=None if t.skipped else t.rows,
            fragments=None if t.skipped else t.fragments,
            stale_indexes=None if t.skipped else len(t.folds) + len(t.builds),
            pin=t.read_version,
            head=t.lance_head_version,
            rewrite_bytes=t.rewrite_bytes,
            work_left=t.decision is OptimizeDecision.OPTIMIZE,
        )
        for t in plan.tables
    }


def spark_threshold(tables: Mapping[str, PlannedTable]) -> int:
    """The threshold that sends exactly the heaviest rewrite to Spark. Pure."""
    return max((facts.rewrite_bytes for facts in tables.values()), default=0)


def comparison(before: Mapping[str, PlannedTable], after: Mapping[str, PlannedTable]) -> str:
    """Before and after per table, as text. Pure."""
    header = ("table", "rows", "fragments", "stale indexes", "published = newest")
    rows = [header] + [_cells(key, before[key], after[key]) for key in before if key in after]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _cells(key: str, old: PlannedTable, new: PlannedTable) -> tuple[str, ...]:
    pins = f"{_pin(old)} -> {_pin(new)}"
    return (
        key,
        _change(old.rows, new.rows),
        _change(old.fragments, new.fragments),
        _change(old.stale_indexes, new.stale_indexes),
        pins,
    )


def _change(old: int | None, new: int | None) -> str:
    before, after = ("?" if count is None else str(count) for count in (old, new))
    return before if before == after else f"{before} -> {after}"


def _pin(facts: PlannedTable) -> str:
    return f"no ({facts.pin} < {facts.head})" if facts.drifted else "yes"


def complaints(before: Mapping[str, PlannedTable], after: Mapping[str, PlannedTable]) -> list[str]:
    """What the night should have done and did not; empty when all is well. Pure.

    A table that was drifted is published this night and optimized the next one.
    """
    found = [f"{key}: still drifted" for key, facts in after.items() if facts.drifted]
    for key, old in before.items():
        new = after.get(key)
        if new is None:
            found.append(f"{key}: gone")
        elif not old.drifted and new.rows != old.rows:
            found.append(f"{key}: {old.rows} rows became {new.rows}")
        elif not old.drifted and new.work_left:
            found.append(f"{key}: still has something to optimize")
    return found
