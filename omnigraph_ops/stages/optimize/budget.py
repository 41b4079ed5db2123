"""Which tables a run takes, in which order, and what waits: by its budget and by what others added.

Tables come by benefit per byte. A table that does not fit is deferred and smaller ones may still fit. Two
rules keep a table from waiting forever: one that was deferred three times in a row comes first, and the first
table of a run is taken whatever its size. A plan is an estimate, so what was written counts while a run goes on.

What was left of a table by our last run, so that the next one can tell what others added since. Kept under
`__maintenance/ingest/`. Losing it harms nothing: what was ingested is then unknown for one run, and a table that had to
wait starts waiting anew.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from omnigraph_ops.config.terms import BudgetTerms
from omnigraph_ops.coordination.rewrite_journal import table_path_of
from omnigraph_ops.coordination.slots import in_slots
from omnigraph_ops.coordination.state import INGEST_DIR, REWRITES_DIR, Records
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import UnreadableTransaction, version_record
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import Dataset, LanceFailure
from omnigraph_ops.lance.tables import fragment_facts
from omnigraph_ops.models.history import amplification
from omnigraph_ops.models.optimize import PATIENCE, OptimizeDecision, OptimizePlan, SkipReason, TablePlan, TableStats
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.quantities import count, human_bytes
from omnigraph_ops.stages.optimize.units import Effort, Room, written_indexes
from omnigraph_ops.storage.inventory import folders_in

_MOST_VERSIONS = 2000
"""Beyond so many versions since the last run nobody looks into each of them."""
# After these, and only these, every fragment with a new id is data that somebody added.
_COUNTABLE = frozenset({"Append", "Update", "Delete", "CreateIndex", "UpdateConfig", "ReserveFragments", "Project"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """One table as our last run left it."""

    table_key: str
    path: str
    version: int | None = None
    """The version it published, None when it never did."""
    newest_fragment: int = -1
    """Lance gives every new fragment a higher id."""
    maintained_at_us: int | None = None
    deferred: int = 0
    """How many runs in a row had no budget for it."""


_LAST_RUNS = Records(LastRun)


def last_run(graph: Graph, entry: TableEntry) -> LastRun | None:
    """What is recorded of a table; None when nothing is, or it is damaged or about another dataset. Reads."""
    with contextlib.suppress(StorageError):
        found = _LAST_RUNS.read(graph.storage, _path(entry.table_key))
        if found is not None and (found.table_key, found.path) == (entry.table_key, entry.path):
            return found
    return None


def bytes_since(graph: Graph, entry: TableEntry) -> int | None:
    """Data bytes that others added between our last run and the version of `entry`. Reads.

    None when that cannot be told: no record, or something other than loading and deleting happened since.
    """
    last = last_run(graph, entry)
    if last is None or last.version is None:
        return None
    since = range(last.version + 1, entry.version + 1)
    if last.version > entry.version or len(since) > _MOST_VERSIONS:
        return None
    try:
        operations = {version_record(graph.storage, entry.path, version).operation for version in since}
    except (UnreadableTransaction, StorageError):
        return None
    if operations - _COUNTABLE:
        return None
    return sum(f.data_bytes for f in fragment_facts(graph.open_pinned(entry)) if f.fragment_id > last.newest_fragment)


def record_run(graph: Graph, entry: TableEntry, dataset: Dataset, *, waiting: bool = False) -> None:
    """Note what a run published. Writes under `__maintenance/`; a store that refuses costs only the figure.

    Args:
        waiting: the rewrite found no budget: what it waited for so far still counts.
    """
    before = last_run(graph, entry) if waiting else None
    newest = max((f.fragment_id for f in fragment_facts(dataset)), default=-1)
    _keep(
        graph,
        LastRun(
            table_key=entry.table_key,
            path=entry.path,
            version=dataset.version,
            newest_fragment=newest,
            maintained_at_us=now_us(),
            deferred=before.deferred if before is not None else 0,
        ),
    )


def record_deferral(graph: Graph, entry: TableEntry) -> None:
    """Note that a run had no budget for a table. Writes under `__maintenance/`."""
    found = last_run(graph, entry) or LastRun(table_key=entry.table_key, path=entry.path)
    _keep(graph, replace(found, deferred=found.deferred + 1))


def _keep(graph: Graph, run: LastRun) -> None:
    with contextlib.suppress(StorageError):
        _LAST_RUNS.write(graph.storage, _path(run.table_key), run)


def _path(table_key: str) -> str:
    return f"{INGEST_DIR}/{table_key.replace(':', '.')}.json"


def accounted(
    graph: Graph, before: TableEntry, after: TableEntry | None, effort: Effort, stats: TableStats
) -> TableStats:
    """The outcome of a table with its bytes; notes the run for the next one. Writes under `__maintenance/`.

    Args:
        before: the entry that the run was planned on.
        after: the entry as the run published it, or as it is published now.
    """
    if not stats.committed or after is None:
        return stats
    try:
        published = graph.open_pinned(after)
        index_bytes = written_indexes(published, effort)
        ingested = bytes_since(graph, before)
        record_run(graph, after, published, waiting=effort.rewrite_deferred)
    except LanceFailure:
        # The table is done and published; only its figures are lost.
        return replace(stats, bytes_rewritten=effort.bytes_written)
    rewritten = effort.bytes_written + index_bytes
    return replace(
        stats,
        bytes_rewritten=rewritten,
        index_bytes_rewritten=index_bytes,
        bytes_ingested=ingested,
        write_amplification=amplification(rewritten, ingested),
    )


def within(plan: OptimizePlan, budget: BudgetTerms) -> OptimizePlan:
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


def under_budget(graph: Graph, plan: OptimizePlan, budget: BudgetTerms) -> OptimizePlan:
    """`within` with what is recorded about earlier deferrals, and with the deadline. Reads."""
    if (budget.max_bytes, budget.max_tables, budget.deadline) == (None, None, None):
        return plan
    entries = {e.table_key: e for e in graph.state().entries}

    def waiting(table: TablePlan) -> TablePlan:
        entry = entries.get(table.table_key) if table.decision is OptimizeDecision.OPTIMIZE else None
        run = last_run(graph, entry) if entry is not None else None
        return replace(table, waited=run.deferred) if run is not None else table

    tables = in_parallel(waiting, plan.tables, workers=graph.settings.concurrency)
    deadline = None if budget.deadline is None else now_us() + int(budget.deadline * 1_000_000)
    return replace(within(replace(plan, tables=tuple(tables)), budget), not_after_us=deadline)


class Spending:
    """What the tables of a run wrote, and what those at work are expected to write; for the threads of a run."""

    def __init__(self, budget: BudgetTerms) -> None:
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
    graph: Graph, plan: OptimizePlan, one: Callable[[str, Room], TableStats], budget: BudgetTerms
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
    done = in_slots(graph, start, (*plan.in_turn(), *ended))
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


def _with_journals(graph: Graph) -> frozenset[str]:
    """Tables that some rewrite left a folder of. Reads."""
    paths = {table_path_of(folder) for folder in folders_in(graph.storage, REWRITES_DIR)}
    return frozenset(e.table_key for e in graph.state().entries if e.path in paths) if paths else frozenset()


def _deferred(table: TablePlan, budget: BudgetTerms) -> TablePlan:
    bounds = []
    if budget.max_bytes is not None:
        bounds.append(human_bytes(budget.max_bytes))
    if budget.max_tables is not None:
        bounds.append(count(budget.max_tables, "table"))
    needed = human_bytes(table.cost_bytes)
    reason = f"no room in the budget of {' and '.join(bounds)} for about {needed}; would {table.reason}"
    return replace(table, decision=OptimizeDecision.DEFERRED, skipped=SkipReason.DEFERRED_BUDGET, reason=reason)
