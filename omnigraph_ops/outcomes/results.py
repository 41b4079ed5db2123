"""What the stages of one run left, whoever ran them, without the credentials that texts may have."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from omnigraph_ops.models.backup import BackupLeft, BackupReport, VerifyReport
from omnigraph_ops.models.cleanup import CleanupPlan, CleanupStats, OrphanedFork, RowRetentionReport
from omnigraph_ops.models.health import RecoverReport
from omnigraph_ops.models.history import Measured, RunDecision, RunRecord
from omnigraph_ops.models.optimize import OptimizePlan, OptimizeReport
from omnigraph_ops.models.orphans import OrphansReport, QuarantineReport
from omnigraph_ops.models.repair import RepairPreview, RepairReport
from omnigraph_ops.models.runs import Outcome, by_stage
from omnigraph_ops.outcomes import of_reports

HIDDEN = "***"
_SECRET_NAMES = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|PRIVATE_KEY|ACCESS_KEY_ID|FERNET", re.IGNORECASE)
_SHORTEST = 8
"""Shorter values would blank out ordinary words."""
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_PARAMETER = re.compile(
    r"((?:X-Amz-(?:Signature|Credential|Security-Token)|sig|token|password|secret\w*|access_key\w*)\s*[=:]\s*)[^\s&,;'\"]+",
    re.IGNORECASE,
)


def redacted(text: str, secrets: Collection[str] = ()) -> str:
    """The text without user info of URLs, signatures, the given secrets, and those of the environment. Reads."""
    return _clean(text, _hidden_now(secrets))


def redacted_record(record: RunRecord, secrets: Collection[str] = ()) -> RunRecord:
    """The record with every free text redacted. Reads the environment."""
    hidden = _hidden_now(secrets)

    def clean(text: str) -> str:
        return _clean(text, hidden)

    return replace(
        record,
        header=replace(record.header, graph=clean(record.header.graph)),
        errors=tuple(map(clean, record.errors)),
        attention=tuple(map(clean, record.attention)),
        notes=tuple(map(clean, record.notes)),
        tables=tuple(
            replace(t, reason=clean(t.reason), error=None if t.error is None else clean(t.error)) for t in record.tables
        ),
    )


def _hidden_now(secrets: Collection[str]) -> tuple[str, ...]:
    """The given secrets and those of the environment, longer ones before what is part of them. Reads."""
    found = {v for name, v in os.environ.items() if _SECRET_NAMES.search(name) and len(v) >= _SHORTEST}
    return tuple(sorted({*found, *secrets}, key=len, reverse=True))


def _clean(text: str, hidden: Sequence[str]) -> str:
    for value in hidden:
        text = text.replace(value, HIDDEN)
    return _PARAMETER.sub(rf"\1{HIDDEN}", _USERINFO.sub(f"{HIDDEN}@", text))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFailure:
    """A sentence about what failed; of which table, if it is about one."""

    message: str
    table_key: str | None = None
    stage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """What ended a run before its end."""

    reason: str
    tables: frozenset[str] = frozenset()
    """The tables that were being worked on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How a graph and its tables stood at one moment."""

    graph: Measured = field(default_factory=Measured)
    tables: tuple[tuple[str, Measured], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """Plans and reports of a run; None where a stage did not get to leave one, or is not part of the run."""

    optimize_plan: OptimizePlan | None = None
    optimize: OptimizeReport | None = None
    preview: RepairPreview | None = None
    repair: RepairReport | None = None
    cleanup_plan: CleanupPlan | None = None
    cleanup: tuple[CleanupStats, ...] = ()
    forks: tuple[OrphanedFork, ...] = ()
    """Orphaned forks that were removed; with an error, that were not."""
    orphans: OrphansReport | None = None
    quarantine: QuarantineReport | None = None
    recovery: RecoverReport | None = None
    row_retention: RowRetentionReport | None = None
    backup: BackupReport | None = None
    verified: VerifyReport | None = None
    """What reading that backup again found."""
    backup_left: BackupLeft | None = None
    """What lies in the place of a backup that did not get to its report."""
    outcomes: tuple[Outcome, ...] = ()
    """Of stages that left no report here, one each; `outcomes_of` has those of all stages."""
    decisions: tuple[RunDecision, ...] = ()
    failures: tuple[StageFailure, ...] = ()
    frozen: bool = False
    """Whether a freeze kept a stage from being planned."""
    attention: tuple[str, ...] = ()
    interruption: Interruption | None = None
    before: Snapshot = field(default_factory=Snapshot)
    after: Snapshot = field(default_factory=Snapshot)


def outcomes_of(results: RunResults) -> tuple[Outcome, ...]:
    """What came of every stage of the run, one each. Pure."""
    return by_stage((*reported(results), *results.outcomes))


def reported(results: RunResults) -> Iterator[Outcome]:
    """The outcomes of the stages that left a report, or rows of one. Pure."""
    if results.recovery is not None:
        yield of_reports.of_recovery(results.recovery)
    if results.optimize is not None:
        yield of_reports.of_optimize(results.optimize)
    if results.repair is not None:
        yield of_reports.of_repair(results.repair)
    if results.cleanup or results.forks:
        plan = results.cleanup_plan
        yield of_reports.of_cleanup(results.cleanup, results.forks, plan.policy if plan else None)
    if results.row_retention is not None:
        yield of_reports.of_rows(results.row_retention)
    if results.orphans is not None:
        yield of_reports.of_orphans(results.orphans)
    if results.quarantine is not None and results.quarantine.action != "preview":
        yield of_reports.of_quarantine(results.quarantine)
    backup = results.backup or results.backup_left
    if backup is not None:
        yield of_reports.of_backup(backup)
