"""What came of one stage, in the terms that the history, the audit log and the metrics share."""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph_ops.models.history import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What a stage did to one table."""

    table_key: str
    work: Work = field(default_factory=Work)
    changed: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a stage did to a graph."""

    stage: str
    detail: str
    """One sentence for the audit log."""
    applied: bool = True
    """Whether the audit log has it as applied; otherwise as failed."""
    changed: bool = False
    """Whether the graph, or what is stored of it, is other than before."""
    problem: str = ""
    """What went wrong, what was not harmed and what to do next; empty: nothing went wrong."""
    work: Work = field(default_factory=Work)
    """What is not in the tables."""
    tables: tuple[TableOutcome, ...] = ()
