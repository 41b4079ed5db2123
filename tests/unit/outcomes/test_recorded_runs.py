"""What history and audit log say of runs of every stage: noted, cut off, done in several attempts, decided about.

The answers are in `recorded_runs.json`: a change of them is a change of what people and their scripts read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from omnigraph_ops import serde
from omnigraph_ops.coordination.freezes import frozen_text
from omnigraph_ops.coordination.holds import FreezeTerms, Hold, HoldKind
from omnigraph_ops.coordination.state import TASKS_DIR
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.backup import BackupLeft, BackupReport, Tally, VerifyReport
from omnigraph_ops.models.cleanup import (
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    OrphanedFork,
    PlannedFile,
    RetentionPolicy,
    TableCleanupPlan,
)
from omnigraph_ops.models.health import CheckStatus, RecoverReport, RecoveryOutcome
from omnigraph_ops.models.history import Answer, Measured, RunDecision, RunRecord, UnitWindow, Work
from omnigraph_ops.models.optimize import (
    Executor,
    OptimizeDecision,
    OptimizePlan,
    OptimizeReport,
    SkipReason,
    TablePlan,
    TableStats,
)
from omnigraph_ops.models.orphans import OrphansReport, QuarantineReport, SparedFile
from omnigraph_ops.models.outcomes import Outcome, StageReport, TableOutcome, by_table
from omnigraph_ops.models.repair import Classification, RepairAction, RepairPreview, RepairReport, RepairRow
from omnigraph_ops.models.rows import EdgeRows, RowRetentionReport, TableRowStats
from omnigraph_ops.models.runs import TaskAttempt, Unit
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes.audit_log import audit_end, wants_audit
from omnigraph_ops.outcomes.history import record_of
from omnigraph_ops.outcomes.results import (
    STAGES,
    Interruption,
    Recorded,
    RunResults,
    Snapshot,
    StageFailure,
    with_units,
)
from omnigraph_ops.outcomes.run_journal import moved
from omnigraph_ops.outcomes.runs import RecordedRun, settle
from omnigraph_ops.outcomes.task_journals import close, leave, read_tasks, settle_runs
from omnigraph_ops.stages import registry  # noqa: F401 - the stages tell of their units
from tests.conftest import DemoGraph
from tests.support.history import header, noted
from tests.support.leases import bury_runs

GOLDEN = Path(__file__).with_name("recorded_runs.json")
PERSON, KNOWS, GONE = "node:Person", "edge:Knows", "node:Gone"
DIGEST = "sha256:plan"


def file(path: str, size: int = 7) -> PlannedFile:
    return PlannedFile(path=path, size=size, kind="data")


def row(table_key: str, action: RepairAction, **fields: Any) -> RepairRow:
    kind = Classification.VERIFIED_MAINTENANCE if action is RepairAction.HEALED else Classification.SUSPICIOUS
    return RepairRow(
        table_key=table_key, manifest_version=1, lance_head_version=1, classification=kind, action=action, **fields
    )


FORK = OrphanedFork(table_key=PERSON, table_path="nodes/person", branch="b", files=(file("f1"), file("f2")))
STATS = TableStats(
    table_key=PERSON,
    committed=True,
    fragments_removed=4,
    fragments_added=1,
    executor=Executor.SPARK,
    rows=40,
    bytes_rewritten=100,
    bytes_planned=90,
    index_bytes_rewritten=10,
    bytes_ingested=50,
    write_amplification=2.0,
    indexes_folded=("a",),
    windows=(UnitWindow(unit="fold", seconds=0.25),),
    published_version=7,
    preempted=1,
)
CLEANED = CleanupStats(
    table_key=PERSON, bytes_removed=30, old_versions_removed=3, versions=(1, 2, 3), skipped_since_protected=(9,)
)
REPAIRED = RepairReport(
    uri="/g",
    confirm=True,
    force=True,
    manifest_version=9,
    tables=(row(PERSON, RepairAction.HEALED), row(KNOWS, RepairAction.REFUSED), row(GONE, RepairAction.FORCED)),
    digest=DIGEST,
)
RECOVERED = RecoveryOutcome(operation_id="op", table_key=PERSON, action="rolled_forward", from_version=1, to_version=2)
EXPIRED = TableRowStats(
    table_key=PERSON, rows_removed=4, edges=(EdgeRows(table_key=KNOWS, rows=2),), attempts=1, manifest_version=5
)
LEFT = BackupLeft(backup="/b/01", backup_id="01", finished=False, total=Tally(files=3, bytes=30))
ORPHANS = OrphansReport(
    uri="/g",
    digest=DIGEST,
    quarantine_id=None,
    files_removed=5,
    bytes_removed=50,
    folders_removed=1,
    already_gone=0,
    spared=(SparedFile(path="s", reason="young"),),
    failed=(SparedFile(path="x", reason="denied"),),
)
EMPTY = Tally(files=0, bytes=0)
BACKUP = BackupReport(
    uri="/g",
    backup="/b/02",
    backup_id="02",
    freeze_id="f",
    incremental_from=None,
    resumed=False,
    total=Tally(files=9, bytes=90),
    copied=Tally(files=9, bytes=90),
    linked=EMPTY,
    kept=EMPTY,
    seconds=1.0,
)
VERIFIED = VerifyReport(backup="/b/02", uri="/g", total=EMPTY, without_checksum=0, compared_with_graph=0, problems=())
TOY = Outcome(
    stage="toy", detail="toys mended", changed=True, errors=("shelf: denied",), work=Work(files_removed=2),
    tables=(TableOutcome(table_key=PERSON, changed=True), TableOutcome(table_key=KNOWS, reason="asleep")),
)  # fmt: skip


def quarantine(action: str, **fields: Any) -> QuarantineReport:
    return QuarantineReport(
        **{"uri": "/g", "quarantine_id": "q", "digest": DIGEST, "action": action, "files": 2, "bytes": 20, **fields}
    )


REPORTS: dict[str, tuple[object, ...]] = {
    "optimize": (
        OptimizeReport.of(
            "/g",
            (
                STATS,
                replace(STATS, table_key=KNOWS, skipped=SkipReason.INTERRUPTED, error=None),
                TableStats(table_key=GONE, error="a file is missing"),
                TableStats(table_key="node:Late", skipped=SkipReason.DEFERRED_BUDGET),
                TableStats(table_key="node:Idle"),
            ),
        ),
    ),
    "optimize, frozen": (OptimizeReport.of("/g", (TableStats(table_key=PERSON, skipped=SkipReason.FROZEN),)),),
    "repair": (REPAIRED,),
    "repair, nothing published": (
        replace(REPAIRED, manifest_version=None, tables=(row(KNOWS, RepairAction.REFUSED, readable=False),)),
    ),
    "cleanup": (
        CleanupReport.of(
            "/g",
            RetentionPolicy(keep_versions=2),
            (CLEANED, CleanupStats(table_key=KNOWS, already_gone=2)),
            (FORK, replace(FORK, branch="c", error="busy")),
        ),
    ),
    "cleanup, a table failed": (
        CleanupReport.of("/g", RetentionPolicy(keep_versions=2), (replace(CLEANED, error="denied"),), ()),
    ),
    "recover": (
        RecoverReport(
            uri="/g",
            outcomes=(
                RECOVERED,
                replace(RECOVERED, table_key=KNOWS, action="deferred", detail="too young"),
                replace(RECOVERED, table_key="", action="fence_lifted"),
            ),
            status=CheckStatus.PENDING,
        ),
    ),
    "expire-rows": (
        RowRetentionReport(
            uri="/g",
            branch=None,
            digest=DIGEST,
            tables=(
                EXPIRED,
                TableRowStats(table_key=KNOWS, refused="more than planned"),
                TableRowStats(table_key=GONE, error="no clock"),
            ),
        ),
    ),
    "orphans": (ORPHANS,),
    "orphans, moved": (replace(ORPHANS, quarantine_id="q", failed=()),),
    "quarantine, purged": (quarantine("purged"),),
    "quarantine, restored": (quarantine("restored", failed=ORPHANS.failed),),
    "quarantine, looked at": (quarantine("preview"),),
    "backup": (BACKUP, VERIFIED),
    "toy": (replace(TOY, detail="an earlier word"), TOY),
    "an outcome and its report": (Outcome(stage="repair", detail="said before", changed=True), REPAIRED),
}


def unit_cases(graph: Graph) -> dict[str, tuple[tuple[Unit, object], ...]]:
    """Units of every stage with what came of them. Reads."""
    entries = {entry.table_key: entry for entry in graph.state().entries}
    person, knows = entries[PERSON], entries[KNOWS]
    healed = replace(
        REPAIRED, manifest_version=None, tables=(replace(row(PERSON, RepairAction.HEALED), lance_head_version=1),)
    )
    graph.storage.write("lost/there", b"1234567")

    def of(stage: str, number: int, **fields: Any) -> Unit:
        return Unit(**{"name": f"{stage} {number}", "stage": stage, "digest": DIGEST, **fields})

    def optimize(number: int, entry: Any) -> Unit:
        return of("optimize", number, table_key=entry.table_key, version=entry.version, digest="")

    def orphans(number: int, *files: PlannedFile, quarantine_id: str = "") -> Unit:
        return of("orphans", number, files=files, quarantine_id=quarantine_id)

    def cleanup(number: int, entry: Any, *versions: int) -> Unit:
        where = {"table_key": entry.table_key, "table_path": entry.path, "version": entry.version}
        return of("cleanup", number, versions=versions, files=(file("gone/1"), file("lost/there")), **where)

    fork = {"table_key": PERSON, "table_path": person.path, "branch": "b", "files": FORK.files}
    return {
        "optimize": (
            (optimize(1, person), part(STATS)),
            (optimize(2, knows), None),
            (of("optimize", 3, table_key=GONE, digest=""), part(TableStats(table_key=GONE))),
        ),
        "cleanup": (
            (cleanup(1, person, 900, 901), part(CLEANED)),
            (of("cleanup", 2, name="fork b", **fork), part(replace(FORK, table_path=person.path))),
            (cleanup(3, knows, 900), part(CleanupStats(table_key=KNOWS, error="denied"))),
        ),
        "orphans": (
            (orphans(1, file("gone/1"), file("gone/2", 9)), removed("", 2, 16)),
            (orphans(2, file("gone/3"), file("lost/there")), removed("", 1, 7)),
        ),
        "orphans, moved": ((orphans(1, file("gone/1"), quarantine_id="q"), removed("q", 1, 7)),),
        "quarantine": (
            (
                of("quarantine", 1, name="purged files a and on", files=(file("gone/1"),), quarantine_id="q"),
                quarantine("purged", files=1, bytes=7),
            ),
        ),
        "quarantine, restored": (
            (
                of("quarantine", 1, name="restored files a and on", files=(file("gone/1"),), quarantine_id="q"),
                quarantine("restored", files=1, bytes=7),
            ),
        ),
        "repair": ((of("repair", 1, report=healed), part(replace(healed, manifest_version=12))),),
        "recover": (
            (of("recover", 1, digest="", table_key=PERSON, version=person.version - 1), part(RECOVERED)),
            (
                of("recover", 2, digest="", table_key=KNOWS, version=knows.version, sidecar="no.json"),
                part(replace(RECOVERED, table_key=KNOWS, action="rolled_back")),
            ),
        ),
        "expire-rows": ((of("expire-rows", 1, table_key=GONE), part(EXPIRED)),),
        "backup": ((of("backup", 1, digest="", backup="/nowhere/01ARZ3NDEKTSV4RRFFQ69G5FAV"), part(LEFT)),),
        "toy": (
            (of("toy", 1, table_key=PERSON, version=person.version - 1), toys(TOY.tables[0])),
            (of("toy", 2, files=(file("gone/1"),)), toys(TableOutcome(table_key="", changed=True))),
            (of("toy", 3, table_key=KNOWS, version=9), toys(TableOutcome(table_key=KNOWS, error="bad"))),
        ),
    }


def toys(done: TableOutcome) -> ToysMended:
    return ToysMended(units=(done,))


def part(value: Any) -> StageReport:
    """What a unit ends with. Pure."""
    match value:
        case TableStats():
            return OptimizeReport.of("/g", (value,))
        case CleanupStats():
            return CleanupReport.of("/g", RetentionPolicy(), (value,))
        case OrphanedFork():
            return CleanupReport.of("/g", RetentionPolicy(), forks=(value,))
        case TableRowStats():
            return RowRetentionReport(uri="/g", branch=None, digest=DIGEST, tables=(value,))
        case RecoveryOutcome():
            return RecoverReport.of_unit("/g", value)
    assert isinstance(value, StageReport)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ToysMended(StageReport):
    """The report of a stage that only this test knows: what each unit did."""

    stage = "toy"
    units: tuple[TableOutcome, ...]

    def outcome(self, plan: object = None) -> Outcome:
        changed, failed = sum(unit.changed for unit in self.units), sum(unit.error is not None for unit in self.units)
        return Outcome(
            stage=self.stage,
            detail=f"{changed} of {len(self.units)} units changed something, {failed} failed",
            applied=not failed,
            changed=changed > 0,
            work=Work.of(unit.work for unit in self.units if not unit.table_key),
            tables=by_table((unit for unit in self.units if unit.table_key), TableOutcome.then),
        )

    def then(self, later: ToysMended) -> ToysMended:
        return replace(self, units=(*self.units, *later.units))


class Toys(Recorded[ToysMended]):
    """That stage: a unit changed its table if that is published anew, or the files that are gone."""

    name = "toy"
    report_type = ToysMended

    def told(self, graph: Graph, unit: Unit) -> ToysMended:
        entry, (files, size) = graph.published(unit.table_key), moved(graph, unit)
        is_newer = entry is not None and unit.version is not None and entry.version > unit.version
        work = Work(files_removed=files, bytes_reclaimed=size)
        return ToysMended(units=(TableOutcome(table_key=unit.table_key, work=work, changed=is_newer or files > 0),))


def removed(quarantine_id: str, files: int, size: int) -> OrphansReport:
    where = quarantine_id or None
    return OrphansReport(uri="/g", digest=DIGEST, quarantine_id=where, files_removed=files, bytes_removed=size)


def told(record: RunRecord) -> Any:
    """A record without what is another each time. Pure."""
    said = serde.to_json(replace(record, record_id="", ended_at_us=0, header=header(started_at_us=0)))
    del said["header"]
    return _without(said)


def _without(value: Any) -> Any:
    """Without what says nothing. Pure."""
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items() if one not in (None, 0, "", [], {}, False)}
    return [_without(one) for one in value] if isinstance(value, list) else value


def both(results: RunResults) -> dict[str, Any]:
    """What history and audit log say of results. Pure."""
    return {
        "record": told(record_of(header(), results)),
        "audit": [
            " | ".join(audit_end(results, error=error, interrupted=interrupted))
            for error in (None, "boo")
            for interrupted in (False, True)
        ],
        "wants_audit": wants_audit(results),
    }


def last_entry(graph: Graph) -> str:
    entries = audit_log.log_of(graph.storage, "").entries
    return f"{entries[-1].event}: {entries[-1].detail}" if entries else ""


DECIDED = RunDecision(stage="cleanup", answer=Answer.APPROVED, by="ada", digest=DIGEST)


def cut_off(graph: Graph, units: Sequence[tuple[Unit, object]], ended: int) -> dict[str, Any]:
    """A run of the shell that was killed when so many of its units had ended. Writes."""
    run = RecordedRun(graph, header(f"cli/{units[0][0].name}/{ended}"), Snapshot(graph=Measured(version=3)))
    run.decisions = (replace(DECIDED, stage=units[0][0].stage),)
    for number, (unit, came) in enumerate(units):
        run.begins(unit)
        if number < ended:
            run.ended(unit, came)
    bury_runs(graph.storage)
    (record,) = settle(graph)
    return {"record": told(record), "audit": last_entry(graph)}


def finished(graph: Graph, units: Sequence[tuple[Unit, object]], *values: object) -> dict[str, Any]:
    """A run of the shell that came to its end, with what it noted. Pure."""
    run = RecordedRun(graph, header(), Snapshot())
    run.keeps_journal = False
    for unit, came in units:
        run.begins(replace(unit, digest=""))
        run.ended(run.records[-1].unit, came)
    for value in values:
        run.notes(value)
    return both(with_units(run.results, run.records))


Attempt = tuple[str, Sequence[tuple[Unit, object]], Sequence[object]]


def attempts(graph: Graph, run_id: str, *each: Attempt) -> dict[str, Any]:
    """A DAG run: attempts of its tasks, each with its units and notes; one without notes was killed. Writes."""
    of = header(run_id)
    for number, (task, units, values) in enumerate(each, start=1):
        run = RecordedRun(graph, of, Snapshot(), TaskAttempt(task_id=task, try_number=number))
        run.decisions = (DECIDED,)
        for unit, came in units:
            run.begins(unit)
            if came is not None:
                run.ended(unit, came)
        for value in values:
            run.notes(value)
        if values:
            leave(graph, run)
        else:
            bury_runs(graph.storage, TASKS_DIR)
            close(graph, run_id, is_over=lambda _task: True)
    all_of = both(read_tasks(graph.storage, run_id).results())
    (record,) = settle_runs(graph, is_over=lambda found: found.header.run_id == run_id)
    return {**all_of, "without its report": told(record), "last entry": last_entry(graph)}


def dag_runs(graph: Graph) -> dict[str, Any]:
    of = unit_cases(graph)
    more = replace(STATS, indexes_folded=(), indexes_built=("b",), bytes_ingested=None, write_amplification=None)
    failure = StageFailure(message="no space", table_key=PERSON, stage="optimize_table")
    (first, _), (second, _), _ = of["optimize"]
    gone = TableStats(table_key="node:Idle", skipped=SkipReason.AUTO_OFF)
    cleaned = CleanupReport.of("/g", RetentionPolicy(keep_versions=2), (replace(CLEANED, table_key=GONE),), ())
    again = replace(CLEANED, old_versions_removed=0, versions=(), already_gone=3, error="the lease is held")
    rows = RowRetentionReport(uri="/g", branch=None, digest=DIGEST, tables=(EXPIRED, replace(EXPIRED, table_key=GONE)))
    plan = OptimizePlan(uri="/g", stamp=6, graph_version=4, tables=(table_plan(PERSON, rows=9, fragments=3),))
    return {
        "optimize in three attempts, the last one failed": attempts(
            graph,
            "dag/optimize",
            ("plan_optimize", (), (plan,)),
            ("optimize_table", ((first, part(STATS)),), ()),
            ("optimize_table", ((first, part(more)), (second, None)), ()),
            (
                "optimize_table",
                ((first, part(replace(more, committed=False))), (second, part(more))),
                (part(gone), failure),
            ),
        ),
        "a table of two units in one attempt": attempts(
            graph,
            "dag/twice",
            (
                "optimize_table",
                (
                    (first, part(STATS)),
                    (replace(first, name="again"), part(more)),
                ),
                (failure,),
            ),
        ),
        "cleanup, killed and done again": attempts(
            graph,
            "dag/cleanup",
            ("cleanup_table", of["cleanup"][:2], ()),
            ("cleanup_table", ((of["cleanup"][0][0], part(again)), of["cleanup"][2]), (cleaned,)),
        ),
        "orphans, killed and done again": attempts(
            graph,
            "dag/orphans",
            ("remove_orphans", of["orphans"], ()),
            ("remove_orphans", of["orphans"][:1], (ORPHANS,)),
        ),
        "rows, killed and done again": attempts(
            graph, "dag/rows", ("expire", of["expire-rows"], ()), ("expire", (), (rows,))
        ),
        "repair that a killed attempt had published": attempts(
            graph,
            "dag/repair",
            ("apply_repair", of["repair"], ()),
            ("apply_repair", (), (replace(REPAIRED, manifest_version=None),)),
        ),
        "recovery and backup": attempts(
            graph,
            "dag/backup",
            ("check_recovery", of["recover"], ()),
            ("copy", of["backup"], ()),
            ("copy", of["backup"], (BACKUP,)),
            ("verify", (), (VERIFIED,)),
        ),
        "a backup that was not reached": attempts(graph, "dag/left", ("copy", of["backup"], ())),
        "toy, outcomes alone": attempts(
            graph, "dag/toy", ("toy", of["toy"], ()), ("toy", of["toy"][:1], (TOY, failure)), ("toy", (), (TOY,))
        ),
        "a report and an outcome of one stage": attempts(
            graph,
            "dag/both",
            ("cleanup_table", of["cleanup"][:1], ()),
            ("cleanup_table", (), (Outcome(stage="cleanup", detail="said", changed=True, work=Work(files_removed=1)),)),
        ),
    }


def table_plan(table_key: str, **fields: Any) -> TablePlan:
    return TablePlan(
        **{
            "table_key": table_key,
            "decision": OptimizeDecision.OPTIMIZE,
            "read_version": 4,
            "lance_head_version": 4,
            **fields,
        }
    )


def planned_runs() -> dict[str, Any]:
    """What plans and decisions make of a record. Pure."""
    freeze = Hold(
        hold_id="01",
        kind=HoldKind.FREEZE,
        owner="ann",
        reason="the yearly backup",
        created_at=0.0,
        expires_at=1.0,
        versions=(),
        freeze=FreezeTerms(tables=(PERSON,)),
    )
    tables = (
        table_plan(PERSON, rows=9, fragments=3, data_bytes=99),
        table_plan(KNOWS, decision=OptimizeDecision.SKIPPED, skipped=SkipReason.DRIFT),
        table_plan(GONE, decision=OptimizeDecision.FAILED, error="cannot be looked at"),
    )
    plan = OptimizePlan(uri="/g", stamp=6, graph_version=8, tables=tables)
    preview = RepairPreview(
        uri="/g",
        stamp=6,
        planned_at_us=0,
        expires_at_us=1,
        rows=(
            row(KNOWS, RepairAction.PREVIEW),
            replace(row(PERSON, RepairAction.PREVIEW), classification=Classification.NO_DRIFT),
        ),
        digest="sha256:r",
    )
    removing = TableCleanupPlan(
        table_key=PERSON, table_path="p", pinned_version=5, lance_head_version=5, versions=(1, 2)
    )
    cleanup = CleanupPlan(
        uri="/g",
        stamp=6,
        policy=RetentionPolicy(keep_versions=1, between_pins=True),
        planned_at_us=0,
        expires_at_us=1,
        tables=(
            removing,
            replace(removing, table_key=GONE, versions=(), refused="it is damaged"),
            replace(removing, table_key="node:Idle", versions=()),
        ),
        orphaned_forks=(replace(FORK, table_key="_graph_commits"),),
        digest=DIGEST,
    )
    frozen = replace(cleanup, tables=(replace(removing, versions=(), refused=frozen_text("/g", freeze)),))
    answers = {
        "nobody decided": (),
        "cleanup approved": (DECIDED,),
        "cleanup rejected": (replace(DECIDED, answer=Answer.REJECTED),),
        "nobody answered": (
            RunDecision(stage="repair", answer=Answer.TIMEOUT, by="nobody", digest="sha256:r"),
            replace(DECIDED, answer=Answer.TIMEOUT),
        ),
        "rows approved": (replace(DECIDED, stage="expire-rows"), replace(DECIDED, stage="repair")),
    }
    after = Snapshot(
        graph=Measured(version=12, rows=90, fragments=10),
        tables=((PERSON, Measured(version=7, fragments=2, rows=40)), (KNOWS, Measured(fragments=6))),
    )
    before = Snapshot(graph=Measured(version=3), tables=((PERSON, Measured(version=6)), (KNOWS, Measured(version=2))))
    of = REPORTS
    some = noted(*of["optimize"], *of["cleanup"], *of["repair"], *of["expire-rows"])
    sets: dict[str, Callable[[], RunResults]] = {
        "all plans": lambda: noted(plan, preview, cleanup),
        "preview alone": lambda: noted(preview),
        "cleanup plan alone": lambda: noted(cleanup),
        "a frozen plan": lambda: noted(frozen),
        "all plans, all done": lambda: noted(plan, preview, cleanup, reports=some.reports),
        "all done": lambda: some,
        "all done, known before and after": lambda: replace(some, before=before, after=after),
        "planned, known after": lambda: replace(noted(plan, *of["optimize"]), after=after),
        "interrupted": lambda: replace(
            some, interruption=Interruption(reason="SIGTERM", tables=frozenset({PERSON, "node:Late"})), before=before
        ),
        "failures": lambda: replace(
            noted(plan, StageFailure(message="boo", table_key=PERSON), StageFailure(message="plan_cleanup: failed")),
            attention=("look",),
        ),
        "a freeze kept it from being planned": lambda: noted(frozen=True),
    }
    return {
        f"{name}, {answer}": told(record_of(header(), replace(make(), decisions=decisions)))
        for name, make in sets.items()
        for answer, decisions in answers.items()
        if name == "all plans" or answer == "cleanup rejected"
    }


def everything(graph: Graph) -> dict[str, Any]:
    cases = unit_cases(graph)
    night = [pair for name in ("recover", "optimize", "repair") for pair in cases[name]]
    others = ("expire-rows", "quarantine", "backup", "toy")
    return {
        "noted": {name: both(noted(*values)) for name, values in REPORTS.items()},
        "cut off": {
            f"{name}, {ended} of {len(units)} ended": cut_off(graph, units, ended)
            for name, units in cases.items()
            for ended in range(len(units) + 1)
        },
        "finished": {
            "units of the stages of a night": finished(graph, [*night, *cases["cleanup"]]),
            "units of the other stages": finished(graph, [pair for name in others for pair in cases[name]]),
            **{
                f"{name} with its report": finished(graph, cases[name], *REPORTS.get(name, (BACKUP,)))
                for name in ("optimize", "cleanup", "orphans", "repair", "recover", "expire-rows", "backup", "toy")
            },
        },
        "attempts": dag_runs(graph),
        "planned": planned_runs(),
    }


def text(graph: Graph) -> str:
    with mock.patch.dict(STAGES, toy=Toys()):
        return _text(graph)


def _text(graph: Graph) -> str:
    """All that is said, a line for each run."""
    runs = {f"{kind}: {name}": said for kind, each in everything(graph).items() for name, said in each.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(said, ensure_ascii=False)}" for name, said in runs.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").replace(graph.uri, "GRAPH")


def test_history_and_audit_log_say_of_every_kind_of_run_what_they_always_said(demo_graph: DemoGraph) -> None:
    assert text(demo_graph(loads=2, rows=6, node_types=1)) == GOLDEN.read_text(encoding="utf-8")
