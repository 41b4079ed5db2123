"""Rows that row retention deletes: policies, plans, statistics, reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.outcomes import Outcome, TableOutcome, TablesReport, by_table
from omnigraph_ops.quantities import count


class EpochUnit(StrEnum):
    """What an integer column counts since 1970."""

    S = "s"
    MS = "ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPolicy:
    """Rows of one table whose property is older than an age go; a null never does."""

    table_key: str
    property: str
    older_than_secs: int
    unit: EpochUnit | None = None
    """Only for an integer property, and needed there."""


def distinct(policies: Iterable[RowPolicy]) -> tuple[RowPolicy, ...]:
    """The policies by table; `InvalidInput` when there is none, or two for one table. Pure."""
    ordered = tuple(sorted(policies, key=lambda p: p.table_key))
    if not ordered:
        raise InvalidInput(
            "no policy, so nothing was deleted: fill in the field policies (--policies FILE), or in a shell give "
            "--table, --property and --older-than"
        )
    twice = {a.table_key for a, b in pairwise(ordered) if a.table_key == b.table_key}
    if twice:
        raise InvalidInput(f"{min(twice)} has more than one policy; nothing was deleted")
    return ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBounds:
    """How much of one table a run may take."""

    max_share: float = 0.5
    """Of the rows of the table; a table that would lose more is refused."""
    max_rows: int | None = None
    """Rows of one table; None: as many as the plan counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRows:
    """Edges of one table that go, or went, with the nodes at one of their ends."""

    table_key: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRowPlan:
    """What expires in one table, counted at one published version."""

    policy: RowPolicy
    table_key: str
    cut: int
    """In units of the column: a row goes when its value is below. Fixed here, never moved."""
    cut_at_us: int
    """The same moment in microseconds since the epoch."""
    manifest_version: int
    """The version of the table that was counted."""
    lance_branch: str | None = None
    """The Lance branch that has that version, None for the table's main chain."""
    lifetime: str = ""
    """A digest of the table and its properties; another table or property with the same name has another one."""
    rows: int = 0
    expired: int = 0
    max_rows: int = 0
    """More than these are never deleted."""
    oldest_us: int | None = None
    newest_us: int | None = None
    sample: tuple[str, ...] = ()
    """Keys of some expired rows."""
    edges: tuple[EdgeRows, ...] = ()
    refused: str | None = None

    @property
    def share(self) -> float:
        """Of the rows of the table. Pure."""
        return self.expired / self.rows if self.rows else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRetentionPlan:
    """Which rows expire, table by table, bound to a digest."""

    uri: str
    stamp: int
    branch: str | None
    """None for main, and for plain Lance."""
    branch_lifetime: tuple[tuple[int, str], ...] = ()
    """Lance's identifier of the branch; another branch with the same name has another one. Empty for main."""
    planned_at_us: int
    expires_at_us: int
    max_share: float
    tables: tuple[TableRowPlan, ...]
    digest: str

    @property
    def total_rows(self) -> int:
        """Rows that go, without the edges that go with them. Pure."""
        return sum(t.expired for t in self.tables if t.refused is None)

    @property
    def total_edges(self) -> int:
        """Edges that go with nodes. Pure."""
        return sum(e.rows for t in self.tables if t.refused is None for e in t.edges)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRowStats:
    """What an apply did to one table; counts are of what a reader sees, not of what a writer said."""

    table_key: str
    rows_removed: int = 0
    edges: tuple[EdgeRows, ...] = ()
    rows_left: int = 0
    """Rows below the cut now: they came while the run was at work, or the run failed."""
    attempts: int = 0
    manifest_version: int | None = None
    """The published version afterwards."""
    refused: str | None = None
    error: str | None = None

    def outcome(self) -> TableOutcome:
        """In the terms of the history. Pure."""
        return TableOutcome(
            table_key=self.table_key,
            changed=bool(self.rows_removed),
            error=self.error or None,
            reason=self.refused or "",
        )

    def then(self, later: TableRowStats) -> TableRowStats:
        """It and a later one of the table. Pure."""
        return replace(
            later,
            rows_removed=self.rows_removed + later.rows_removed,
            edges=by_table((*self.edges, *later.edges), lambda one, more: replace(more, rows=one.rows + more.rows)),
            attempts=self.attempts + later.attempts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRetentionReport(TablesReport[TableRowStats]):
    """All tables of one apply."""

    stage = "expire-rows"
    uri: str
    branch: str | None
    digest: str
    tables: tuple[TableRowStats, ...]

    @property
    def rows_removed(self) -> int:
        return sum(t.rows_removed for t in self.tables)

    @property
    def edges_removed(self) -> int:
        return sum(e.rows for t in self.tables for e in t.edges)

    def outcome(self, plan: object = None) -> Outcome:
        kept = [t for t in self.tables if t.error is not None or t.refused is not None]
        return Outcome(
            stage=self.stage,
            detail=self._detail(),
            applied=not self.failed,
            changed=bool(self.rows_removed),
            problem=f"expire-rows did not finish {len(kept):,} of {count(len(self.tables), 'table')}, first "
            f"{kept[0].table_key}: {kept[0].error or kept[0].refused}"
            if kept
            else "",
            tables=tuple(table.outcome() for table in self.tables),
        )

    def with_units(self, told: RowRetentionReport) -> RowRetentionReport:
        return self  # it has all of them, in their order

    def _detail(self) -> str:
        tables = ", ".join(f"{t.table_key} {t.rows_removed}" for t in self.tables if t.rows_removed)
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{self.rows_removed} rows and {self.edges_removed} edges deleted ({tables or 'none'}){failed}"
