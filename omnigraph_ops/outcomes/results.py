"""What the stages of one run left, whoever ran them, without the credentials that texts may have."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BeforeValidator

from omnigraph_ops import serde
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.history import Measured, RunDecision, RunRecord
from omnigraph_ops.models.outcomes import Outcome, StagePlan, StageReport
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.storage.store import Storage

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

R = TypeVar("R")

HIDDEN = "***"
_SECRET_NAMES = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|PRIVATE_KEY|ACCESS_KEY_ID|FERNET", re.IGNORECASE)
_SHORTEST = 8
"""Shorter values would blank out ordinary words."""
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_PARAMETER = re.compile(
    r"((?:X-Amz-(?:Signature|Credential|Security-Token)|sig|token|password|secret\w*|access_key\w*)\s*[=:]\s*[\"']?)[^\s&,;'\"]+",
    re.IGNORECASE,
)


def redacted(text: str, secrets: Collection[str] = ()) -> str:
    """The text without user info of URLs, signatures, the given secrets, and those of the environment. Reads."""
    return redactor(secrets)(text)


def redactor(secrets: Collection[str] = ()) -> Callable[[str], str]:
    """Does to texts as `redacted`, with what is secret in the environment now. Reads it."""
    found = {v for name, v in os.environ.items() if _SECRET_NAMES.search(name) and len(v) >= _SHORTEST}
    return partial(_clean, sorted({*found, *secrets}, key=len, reverse=True))


def redactor_of(storage: Storage) -> Callable[[str], str]:
    """Takes out of texts what must never be part of what is kept of a run. Reads the environment."""
    return redactor(storage.access.secrets)


def redacted_record(record: RunRecord, clean: Callable[[str], str]) -> RunRecord:
    """The record with every free text redacted. Pure."""
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


def _clean(hidden: Sequence[str], text: str) -> str:
    """A text without these, longer ones before what is part of them, and what looks like a secret. Pure."""
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


class Recorded(Generic[R]):
    """What the history has to know of a stage beforehand: its types, and how the graph tells of a unit of it."""

    name: ClassVar[str]
    report_type: Any = Outcome
    """Of its reports, which name it as their stage."""
    plan_type: type[Any]

    def told(self, graph: Graph, unit: Unit) -> R | None:
        """What a unit did that was cut off, as far as the graph shows; None: nothing. Reads.

        Raises:
            OpsError: the graph cannot be read.
        """
        raise NotImplementedError(f"{self.name} has no units")


STAGES: dict[str, Recorded[Any]] = {}
"""By the name in units and reports. The registry of stages puts them here, since nothing here may import them."""


def _reports(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Reports by their stage, as a file has them; those of other releases stay as they are. Raises `InvalidInput`."""
    return {name: _typed(STAGES[name].report_type | Outcome, of) if name in STAGES else of for name, of in raw.items()}


def _plans(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Plans by their stage, as a file has them. Raises `InvalidInput`."""
    return {name: _typed(STAGES[name].plan_type, value) for name, value in raw.items() if name in STAGES}


def _typed(cls: Any, value: Any) -> Any:
    return serde.from_json(cls, value) if isinstance(value, dict) else value


def refuse_unknown(stages: Collection[str]) -> None:
    """Raise `InvalidInput` where a stage is of another release. Pure."""
    if unknown := ", ".join(repr(stage) for stage in sorted(stages) if stage not in STAGES):
        raise InvalidInput(f"this release does not know the stage {unknown}")


Reports = Annotated[Mapping[str, Any], BeforeValidator(_reports)]
"""`StageReport`s by their stage."""
Plans = Annotated[Mapping[str, Any], BeforeValidator(_plans)]
"""`StagePlan`s by their stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """One unit in the journal of a run."""

    unit: Unit
    ended: bool = False
    """Whether it came to its end. Journals of 0.2.0 do not say so: the graph tells of their units."""
    reports: Reports = field(default_factory=dict)
    """What it did; none: nothing."""

    @classmethod
    def of(cls, unit: Unit, did: StageReport | None) -> UnitRecord:
        """A unit that ended. Pure."""
        return cls(unit=unit, ended=True, reports={} if did is None else {did.stage: did})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """What the stages of a run planned and did; a stage that did not get to leave anything is not in it."""

    plans: Plans = field(default_factory=dict)
    reports: Reports = field(default_factory=dict)
    decisions: tuple[RunDecision, ...] = ()
    failures: tuple[StageFailure, ...] = ()
    frozen: bool = False
    """Whether a freeze kept a stage from being planned."""
    previewed: bool = False
    """Whether a plan names work that nobody was asked to approve."""
    attention: tuple[str, ...] = ()
    interruption: Interruption | None = None
    before: Snapshot = field(default_factory=Snapshot)
    after: Snapshot = field(default_factory=Snapshot)


def in_turn(stages: Collection[str]) -> tuple[str, ...]:
    """Names of stages in the order in which a night runs them. Pure."""
    return (*(name for name in STAGES if name in stages), *(name for name in stages if name not in STAGES))


def outcomes_of(results: RunResults) -> tuple[Outcome, ...]:
    """What came of every stage of the run, one each. Pure."""
    done = {name: report for name, report in results.reports.items() if not report.is_preview}
    return tuple(done[name].outcome(results.plans.get(name)) for name in in_turn(done))


def with_value(results: RunResults, value: object) -> RunResults:
    """The results with one more plan, report, outcome or failure; what is no part of a record is left out. Pure."""
    match value:
        case StageReport():
            earlier = results.reports.get(value.stage, value)
            if isinstance(value, Outcome) and not isinstance(earlier, Outcome):
                return results  # its report says it
            results = replace(results, reports={**results.reports, value.stage: _onto(value, earlier)})
            if value.left_undone:
                return with_value(results, StageFailure(message=value.left_undone, stage=value.stage))
        case StagePlan():
            return replace(results, plans={**results.plans, value.stage: value})
        case StageFailure():
            return replace(results, failures=(*results.failures, value))
    return results


def with_units(results: RunResults, records: Iterable[UnitRecord]) -> RunResults:
    """The results with what the units did, for every table and stage that did not get to its report. Pure."""
    told = _folded(record.reports for record in records)
    noted = {stage: _onto(report, told.get(stage)) for stage, report in results.reports.items()}
    return replace(results, reports={**told, **noted})


def merged(attempts: Sequence[RunResults]) -> RunResults:
    """The results of all attempts, oldest first: work adds up, and of the rest the last word counts. Pure.

    Failures, decisions and snapshots are those of no attempt.
    """
    plans = {stage: plan for attempt in attempts for stage, plan in attempt.plans.items()}
    return RunResults(plans=plans, reports=_folded(attempt.reports for attempt in attempts))


def _onto(report: StageReport, other: StageReport | None) -> StageReport:
    """A report with what another one in the same words has beyond it. Pure."""
    return report.with_units(other) if isinstance(other, type(report)) else report


def _folded(many: Iterable[Mapping[str, StageReport]]) -> dict[str, StageReport]:
    """One report of each stage. Pure."""
    found: dict[str, StageReport] = {}
    for reports in many:
        for stage, report in reports.items():
            found[stage] = _then(found[stage], report) if stage in found else report
    return found


def _then(first: StageReport, later: StageReport) -> StageReport:
    """Both as one, in the terms of all stages where one of them is in no others. Pure."""
    if type(first) is not type(later) and Outcome in {type(first), type(later)}:
        first, later = first.outcome(), later.outcome()
    both: StageReport = first.then(later)
    return both
