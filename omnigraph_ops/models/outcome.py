"""What came of one stage, in the terms that the history, the audit log and the metrics share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from omnigraph_ops.models.history import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What a stage did to one table."""

    table_key: str
    work: Work = field(default_factory=Work)
    changed: bool = False
    error: str | None = None
    reason: str = ""
    """Why nothing was done to it, as a token or a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a stage did to a graph."""

    stage: str
    detail: str
    """One sentence for the audit log; for the history, too, where no figure of it tells what changed."""
    applied: bool = True
    """Whether the audit log has it as applied; otherwise as failed."""
    changed: bool = False
    """Whether the graph, or what is stored of it, is other than before."""
    problem: str = ""
    """What went wrong, what was not harmed and what to do next; empty: nothing went wrong."""
    errors: tuple[str, ...] = ()
    """What failed and is about no table, a sentence each."""
    work: Work = field(default_factory=Work)
    """What is not in the tables."""
    tables: tuple[TableOutcome, ...] = ()
    """One for each table."""

    @property
    def failures(self) -> tuple[str, ...]:
        """What failed and is about no table; the problem where nothing else tells that it failed. Pure."""
        told = self.errors or self.applied or any(t.error is not None for t in self.tables)
        return self.errors if told or not self.problem else (self.problem,)


def by_stage(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """One outcome of each stage: work adds up, and of the rest the last word counts. Pure."""
    found: dict[str, Outcome] = {}
    for outcome in outcomes:
        known = found.get(outcome.stage)
        found[outcome.stage] = outcome if known is None else _and(known, outcome)
    return tuple(found.values())


def _and(first: Outcome, second: Outcome) -> Outcome:
    tables = {table.table_key: table for table in first.tables}
    for table in second.tables:
        known = tables.get(table.table_key)
        tables[table.table_key] = (
            table
            if known is None
            else replace(table, work=Work.of((known.work, table.work)), changed=known.changed or table.changed)
        )
    return replace(
        second,
        changed=first.changed or second.changed,
        work=Work.of((first.work, second.work)),
        tables=tuple(tables.values()),
    )
