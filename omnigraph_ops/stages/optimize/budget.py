"""Budgets: which tables a run takes, in which order, and what waits for the next one.

Tables come by benefit per byte. A table that does not fit is deferred and smaller ones may still fit. Two
rules keep a table from waiting forever: one that was deferred three times in a row comes first, and the first
table of a run is taken whatever its size. A plan is an estimate, so what was written counts while a run goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from omnigraph_ops.coordination.rewrites.journal import table_path_of
from omnigraph_ops.coordination.state import REWRITES_DIR
from omnigraph_ops.durations import parse_duration
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.ids import now_us
from omnigraph_ops.models import PATIENCE, OptimizeDecision, OptimizePlan, SkipReason, TablePlan, TableStats
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.sizes import human_bytes, parse_bytes
from omnigraph_ops.stages.optimize.ingest import last_run, record_deferral
from omnigraph_ops.stages.optimize.units import Room
from omnigraph_ops.storage.inventory import folders_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds of one run; None is no bound."""

    max_bytes: int | None = None
    """Bytes written: data and indexes."""
    max_tables: int | None = None
    deadline_seconds: float | None = None
    """No table starts later than this after the plan; one that runs is finished."""

    def __post_init__(self) -> None:
        if self.max_tables is not None and self.max_tables < 1:
            raise InvalidInput(f"the most tables of a run must be at least 1, not {self.max_tables}")
        if (self.max_bytes or 0) < 0 or (self.deadline_seconds or 0) < 0:
            raise InvalidInput("a budget of bytes and a deadline must not be negative")


def budget_of(max_bytes: str | None, max_tables: int | None, deadline: str | None) -> Budget | None:
    """The budget that a person wrote, as in `20GiB` and `4h`; None without any bound. Pure."""
    budget = Budget(
        max_bytes=None if max_bytes is None else parse_bytes(max_bytes),
        max_tables=max_tables,
        deadline_seconds=None if deadline is None else float(parse_duration(deadline)),
    )
    return None if budget == Budget() else budget


def within(plan: OptimizePlan, budget: Budget) -> OptimizePlan:
    """The plan with what does not fit deferred; nothing else about a table changes. Pure."""
    taken: set[str] = set()
    used = 0
    ordered = plan.in_turn()
    for table in ordered:
        room = budget.max_tables is None or len(taken) < budget.max_tables
        fits = budget.max_bytes is None or used + table.cost_bytes <= budget.max_bytes
        if room and (fits or not taken):
            taken.add(table.table_key)
            used += table.cost_bytes
    deferred = {t.table_key for t in ordered} - taken
    tables = tuple(_deferred(t, budget) if t.table_key in deferred else t for t in plan.tables)
    return replace(plan, tables=tables)


def under_budget(graph: Graph, plan: OptimizePlan, budget: Budget) -> OptimizePlan:
    """`within` with what is recorded about earlier deferrals, and with the deadline. Reads."""
    entries = {e.table_key: e for e in graph.state().entries}

    def waiting(table: TablePlan) -> TablePlan:
        entry = entries.get(table.table_key) if table.decision is OptimizeDecision.OPTIMIZE else None
        run = last_run(graph, entry) if entry is not None else None
        return replace(table, waited=run.deferred) if run is not None else table

    tables = in_parallel(waiting, plan.tables, workers=graph.settings.concurrency)
    deadline = None if budget.deadline_seconds is None else now_us() + int(budget.deadline_seconds * 1_000_000)
    return replace(within(replace(plan, tables=tuple(tables)), budget), not_after_us=deadline)


class Spending:
    """What the tables of a run wrote, and what those at work are expected to write; for the threads of a run."""

    def __init__(self, budget: Budget) -> None:
        self._most = budget.max_bytes
        self._lock = threading.Lock()
        self._written = 0
        self._expected: dict[str, int] = {}

    def begins(self, table: TablePlan) -> bool:
        """Whether a table may start; then it counts as what it is planned to write. The first one always may."""
        with self._lock:
            first = not self._written and not any(self._expected.values())
            fits = first or not table.cost_bytes or self._fits(table.cost_bytes)
            if fits:
                self._expected[table.table_key] = table.cost_bytes
            return fits

    def has_room(self, table: TablePlan, indexes: int) -> bool:
        """Whether a table that wrote its indexes may be rewritten, too; one that wrote none, or waited, always may."""
        with self._lock:
            self._expected[table.table_key] = 0
            fits = not indexes or table.waited >= PATIENCE or self._fits(indexes + table.rewrite_bytes)
            self._expected[table.table_key] = indexes + (table.rewrite_bytes if fits else 0)
            return fits

    def ends(self, table: TablePlan, row: TableStats) -> None:
        """Count what was written; a table that failed may have written all of it."""
        with self._lock:
            expected = self._expected.pop(table.table_key)
            self._written += expected if row.error is not None else row.bytes_rewritten

    def _fits(self, more: int) -> bool:
        return self._most is None or self._written + sum(self._expected.values()) + more <= self._most


def run_within(
    graph: Graph, plan: OptimizePlan, one: Callable[[str, Room], TableStats], budget: Budget
) -> tuple[TableStats, ...]:
    """`one` of every table with work until the budget is spent; a row for every table. Effects are those of `one`.

    A table without work that a dead run left a journal of is looked at, too, so that the journal is ended.
    """
    left, spending = _with_journals(graph), Spending(budget)

    def start(table: TablePlan) -> TableStats:
        if graph.run.stopping:
            return replace(untouched(table), skipped=SkipReason.INTERRUPTED)
        if too_late(plan.not_after_us) or not spending.begins(table):
            return late(table)
        row = one(table.table_key, partial(spending.has_room, table))
        spending.ends(table, row)
        return row

    idle = [t for t in plan.tables if t.decision in {OptimizeDecision.NO_OP, OptimizeDecision.SKIPPED}]
    ended = [t for t in idle if t.table_key in left and t.skipped is not SkipReason.FROZEN]
    done = in_parallel(start, (*plan.in_turn(), *ended), workers=graph.settings.concurrency)
    by_key = {row.table_key: row for row in done}
    rows = tuple(by_key.get(t.table_key) or untouched(t) for t in plan.tables)
    note_deferrals(graph, rows)
    return rows


def note_deferrals(graph: Graph, tables: Sequence[TableStats]) -> None:
    """Remember what found no budget, tables and rewrites, so that none waits forever. Writes under `__maintenance/`."""
    deferred = {t.table_key for t in tables if t.skipped is SkipReason.DEFERRED_BUDGET or t.rewrite_deferred}
    if deferred:
        entries = [e for e in graph.state().entries if e.table_key in deferred]
        in_parallel(partial(record_deferral, graph), entries, workers=graph.settings.concurrency)


def too_late(not_after_us: int | None) -> bool:
    """Whether no further table may start. Reads the clock."""
    return not_after_us is not None and now_us() > not_after_us


def untouched(plan: TablePlan) -> TableStats:
    """The row of a table that was left alone, as its plan says why. Pure."""
    drift = plan.skipped is not None and plan.lance_head_version != plan.read_version
    return TableStats(
        table_key=plan.table_key,
        skipped=plan.skipped,
        manifest_version=plan.read_version if drift else None,
        lance_head_version=plan.lance_head_version if drift else None,
        pending_indexes=plan.pending_indexes,
        rows=plan.rows or None,
        error=plan.error,
    )


def late(plan: TablePlan) -> TableStats:
    """The row of a table whose turn came after the deadline, or when the budget was spent. Pure."""
    return replace(untouched(plan), skipped=SkipReason.DEFERRED_BUDGET)


def late_internal(graph: Graph) -> tuple[TableStats, ...]:
    """The rows of the internal tables after the deadline. Pure."""
    keys = graph.format.internal_tables(graph.context)
    return tuple(TableStats(table_key=key, skipped=SkipReason.DEFERRED_BUDGET) for key, _ in keys)


def _with_journals(graph: Graph) -> frozenset[str]:
    """Tables that some rewrite left a folder of. Reads."""
    paths = {table_path_of(folder) for folder in folders_in(graph.storage, REWRITES_DIR)}
    return frozenset(e.table_key for e in graph.state().entries if e.path in paths) if paths else frozenset()


def _deferred(table: TablePlan, budget: Budget) -> TablePlan:
    bounds = []
    if budget.max_bytes is not None:
        bounds.append(human_bytes(budget.max_bytes))
    if budget.max_tables is not None:
        bounds.append(f"{budget.max_tables} tables")
    needed = human_bytes(table.cost_bytes)
    reason = f"no room in the budget of {' and '.join(bounds)} for about {needed}; would {table.reason}"
    return replace(table, decision=OptimizeDecision.DEFERRED, skipped=SkipReason.DEFERRED_BUDGET, reason=reason)
