"""The terms in which history, audit log and metrics know every stage: what it planned, what it did, unit by unit.

A report and a plan of a stage say themselves, in these terms, what they are about; nobody else knows their fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from omnigraph_ops.models.history import Measured, UnitWindow, Work


class TableRow(Protocol):
    """A row of a plan or a report about one table."""

    @property
    def table_key(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRewrite:
    """How a table was rewritten."""

    executor: str | None
    """None: it was left as it was."""
    windows: tuple[UnitWindow, ...]
    published_version: int | None
    rows: int | None
    """None: nobody counted. A rewrite changes no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What a stage did to one table."""

    table_key: str
    work: Work = field(default_factory=Work)
    changed: bool = False
    error: str | None = None
    reason: str = ""
    """Why nothing was done to it, as a token or a sentence."""
    interrupted: bool = False
    """Whether the stage was ended with a part of the table done."""
    rewrite: TableRewrite | None = None
    """None: the stage rewrites nothing."""

    def then(self, later: TableOutcome) -> TableOutcome:
        """It and a later one of the table. Pure."""
        return replace(later, work=Work.of((self.work, later.work)), changed=self.changed or later.changed)


class StageReport(ABC):
    """What a stage did, in its own words: all of it, or what one unit of it did."""

    __slots__ = ()
    stage: ClassVar[str]
    """Under which name history and audit log have it."""

    @abstractmethod
    def outcome(self, plan: Any = None) -> Outcome:
        """What history, audit log and metrics record of it. Pure.

        Args:
            plan: what it carried out, where that is known.
        """

    def then(self, later: Any) -> Any:
        """It and a later one, of another unit or attempt: work adds up, of the rest the last word counts. Pure."""
        return later

    def with_units(self, told: Any) -> Self:
        """What was reported, with what is only known of its units. Pure."""
        return self

    def with_failures(self, failed: Mapping[str | None, str]) -> Self:
        """With why its tables failed in the middle of their work, by key. Pure."""
        return self

    def without_failures(self) -> Self:
        """What it did, without what failed: a later plan has judged that again. Pure."""
        return self

    @property
    def left_undone(self) -> str:
        """What makes the run fail although nothing failed; empty: nothing. Pure."""
        return ""

    @property
    def is_preview(self) -> bool:
        """Whether it only says what would be done. Pure."""
        return False

    @property
    def audited_as(self) -> str:
        """The digest under which the audit log has it although nobody was asked; empty: it has it not. Pure."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(StageReport):
    """What a stage did to a graph, in the terms of all stages: the report of one that needs no other."""

    stage: str  # type: ignore[misc]
    detail: str
    """One sentence for the audit log; for the history, too, where no figure of it tells what changed."""
    applied: bool = True
    """Whether the audit log has it as applied; otherwise as failed, or as unapproved."""
    changed: bool = False
    """Whether the graph, or what is stored of it, is other than before."""
    problem: str = ""
    """What went wrong, what was not harmed and what to do next; empty: nothing went wrong."""
    unapproved: str = ""
    """What was left because its approval lacked the switch of the stage, a sentence; empty: nothing."""
    errors: tuple[str, ...] = ()
    """What failed and is about no table, a sentence each."""
    work: Work = field(default_factory=Work)
    """What is not in the tables."""
    tables: tuple[TableOutcome, ...] = ()
    """One for each table."""
    asks_by_plan: bool = False
    """Whether only its plan tells which tables a decision is about, not what was done."""

    @property
    def failures(self) -> tuple[str, ...]:
        """What failed and is about no table; the problem where nothing else tells that it failed. Pure."""
        told = self.errors or self.applied or self.unapproved or any(t.error is not None for t in self.tables)
        return self.errors if told or not self.problem else (self.problem,)

    @property
    def only_unapproved(self) -> bool:
        """Whether something was left for want of a switch, and nothing failed. Pure."""
        return bool(self.unapproved) and not self.failures and all(t.error is None for t in self.tables)

    def outcome(self, plan: object = None) -> Outcome:
        return self

    def then(self, later: Outcome) -> Outcome:
        return replace(
            later,
            changed=self.changed or later.changed,
            work=Work.of((self.work, later.work)),
            tables=by_table((*self.tables, *later.tables), TableOutcome.then),
            asks_by_plan=self.asks_by_plan or later.asks_by_plan,
        )


class ReportRow(TableRow, Protocol):
    """A row of a report about what was done to one table."""

    @property
    def error(self) -> str | None: ...
    def outcome(self) -> TableOutcome:
        """In the terms of all stages. Pure."""

    def then(self, later: Any) -> Any:
        """It and a later one of the table. Pure."""


W = TypeVar("W", bound=ReportRow)


class TablesReport(StageReport, Generic[W]):
    """A report that has a row for each table."""

    __slots__ = ()
    tables: tuple[W, ...]

    def with_tables(self, tables: Iterable[W]) -> Self:
        """The report of other tables. Pure."""
        return replace(self, tables=tuple(tables))  # type: ignore[type-var]

    def then(self, later: Self) -> Self:
        return later.with_tables(by_table((*self.tables, *later.tables), lambda one, other: one.then(other)))

    def with_units(self, told: Self) -> Self:
        """The rows that units tell, each as it was reported where it was, then the others of the report. Pure."""
        return self.with_tables(by_table((*told.tables, *self.tables), lambda _, row: row))

    def without_failures(self) -> Self:
        kept = (row for row in self.tables if row.error is None or row.outcome().changed)
        return self.with_tables(replace(row, error=None) for row in kept)  # type: ignore[type-var]

    @property
    def failed(self) -> tuple[W, ...]:
        return tuple(table for table in self.tables if table.error is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlanned:
    """What a plan knows of one table."""

    table_key: str
    before: Measured = field(default_factory=Measured)
    """How it stood."""
    reason: str = ""
    """Why nothing is to be done to it, as a token or a sentence."""
    error: str | None = None
    """Why nobody can tell what there is to do."""
    asked: str = ""
    """What somebody is asked about, in a phrase; empty: nothing."""
    due: bool = False
    """Whether the run does something to it, without asking anybody."""


class Sealable(Protocol):
    """What the plans of all stages have that a person may approve: frozen dataclasses, each of one graph."""

    @property
    def uri(self) -> str: ...
    @property
    def planned_at_us(self) -> int: ...
    @property
    def expires_at_us(self) -> int: ...
    @property
    def digest(self) -> str: ...


class StagePlan(ABC):
    """What a stage is about to do, of a stage that looks at every table."""

    __slots__ = ()
    stage: ClassVar[str]

    @abstractmethod
    def by_table(self) -> Iterable[TablePlanned]:
        """What it knows of the tables; of one there may be several rows. Pure."""

    def graph_before(self) -> Measured | None:
        """How the graph stood; None: it does not say. Pure."""
        return None


T = TypeVar("T")
R = TypeVar("R", bound=TableRow)


def merged_by(rows: Iterable[T], key: Callable[[T], Hashable], add: Callable[[T, T], T]) -> tuple[T, ...]:
    """One row for each key, in the order of the first ones; `add` makes one of two. Pure."""
    found: dict[Hashable, T] = {}
    for row in rows:
        name = key(row)
        found[name] = add(found[name], row) if name in found else row
    return tuple(found.values())


def by_table(rows: Iterable[R], add: Callable[[R, R], R]) -> tuple[R, ...]:
    """One row for each table. Pure."""
    return merged_by(rows, lambda row: row.table_key, add)
