"""Values of row retention: policies per table, the sealed plan, and what an apply left."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRetentionReport:
    """All tables of one apply."""

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

    @property
    def failed(self) -> tuple[TableRowStats, ...]:
        """Tables with an error; a refused one was left alone on purpose. Pure."""
        return tuple(t for t in self.tables if t.error is not None)
