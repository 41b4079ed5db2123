"""A stage that only this file knows is recorded, added up over attempts and told after a crash, by its own report.

What it needs beside its own code is the line in the registry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from omnigraph_ops.coordination.state import TASKS_DIR
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.cleanup import PlannedFile
from omnigraph_ops.models.history import Answer, RunDecision, RunOutcome, RunRecord, Work
from omnigraph_ops.models.outcomes import Outcome, StageReport, TableOutcome, by_table
from omnigraph_ops.models.runs import TaskAttempt, Unit
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.outcomes.audit_log import AuditEvent, audit_end, wants_audit
from omnigraph_ops.outcomes.history import record_of
from omnigraph_ops.outcomes.results import STAGES, Recorded, RunResults, Snapshot, outcomes_of, with_units
from omnigraph_ops.outcomes.run_journal import moved
from omnigraph_ops.outcomes.runs import RecordedRun, settle
from omnigraph_ops.outcomes.task_journals import close, leave, read_tasks
from tests.conftest import DemoGraph
from tests.support.history import header
from tests.support.leases import bury_runs
from tests.support.shell import Cli

SMALL = {"loads": 2, "rows": 6, "node_types": 1}
PERSON, KNOWS = "node:Person", "edge:Knows"
DIGEST = "sha256:toy"
DECISION = RunDecision(stage="toy", answer=Answer.APPROVED, by="ada@host", digest=DIGEST)
MENDED = TableOutcome(table_key=PERSON, work=Work(bytes_rewritten=5), changed=True)
BROKEN = TableOutcome(table_key=KNOWS, error="too many pieces")
TOY = Outcome(
    stage="toy",
    detail="1 toy mended, 1 broken",
    applied=False,
    changed=True,
    problem="1 toy is broken, the others are as they were; mend it",
    errors=("shelf/b: denied",),
    work=Work(files_removed=2, bytes_reclaimed=20),
    tables=(MENDED, BROKEN),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyReport(StageReport):
    """What became of the toys of each table, and of toys that are in none."""

    stage = "toy"
    tables: tuple[TableOutcome, ...] = ()
    others: Work = Work()  # noqa: RUF009 - it is frozen

    def outcome(self, plan: object = None) -> Outcome:
        mended, broken = ([t for t in self.tables if (t.error is None) is is_whole] for is_whole in (True, False))
        detail = f"{len(mended)} toys mended, {len(broken)} broken, {self.others.files_removed} thrown away"
        return Outcome(
            stage=self.stage,
            detail=detail,
            applied=not broken,
            changed=any(t.changed for t in self.tables) or self.others != Work(),
            work=self.others,
            tables=self.tables,
        )

    def then(self, later: ToyReport) -> ToyReport:
        tables = by_table((*self.tables, *later.tables), TableOutcome.then)
        return ToyReport(tables=tables, others=Work.of((self.others, later.others)))


class Toys(Recorded[ToyReport]):
    """The stage, as far as the history has to know it."""

    name = "toy"
    report_type = ToyReport

    def told(self, graph: Graph, unit: Unit) -> ToyReport:
        """Whether the table is published anew; of the others, which are gone. Reads."""
        if not unit.table_key:
            files, size = moved(graph, unit)
            return ToyReport(others=Work(files_removed=files, bytes_reclaimed=size))
        entry = graph.published(unit.table_key)
        assert entry is not None
        assert unit.version is not None
        return ToyReport(tables=(TableOutcome(table_key=unit.table_key, changed=entry.version > unit.version),))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a line in the registry of stages does."""
    monkeypatch.setitem(STAGES, Toys.name, Toys())


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(**SMALL)


def begun(graph: Graph, task: TaskAttempt | None = None) -> RecordedRun:
    """A run of an approved plan of the stage. Reads."""
    run = RecordedRun(graph, header("cli/host:1/toy", verb="toy"), Snapshot(), task)
    run.decisions = (DECISION,)
    return run


def unit(table_key: str, **fields: Any) -> Unit:
    return replace(Unit(name=f"toy of {table_key}", stage="toy", digest=DIGEST, table_key=table_key), **fields)


def end(graph: Graph, run: RecordedRun) -> RunRecord:
    """What whoever runs a stage does when it is over. Writes."""
    results = replace(with_units(run.results, run.records), decisions=run.decisions)
    event, detail = audit_end(results, error=None, interrupted=False)
    audit_log.append(graph.storage, event, **run.subject(DIGEST), detail=detail)
    history.append(graph, record_of(run.header, results))
    run.settled()
    record = history.read_run(graph, run.header.run_id)
    assert record is not None
    return record


def test_its_outcome_is_in_the_record_and_in_the_audit_log(graph: Graph, cli: Cli) -> None:
    run = begun(graph)
    run.begins(unit(PERSON))
    run.notes(replace(TOY, detail="an earlier word"))
    run.notes(TOY)
    record = end(graph, run)
    assert (record.header.verb, record.outcome) == ("toy", RunOutcome.FAILED)
    assert record.errors == ("edge:Knows: too many pieces", "shelf/b: denied")
    assert record.work == Work(files_removed=2, bytes_reclaimed=20, bytes_rewritten=5)
    knows, person = record.tables
    assert (person.outcome, person.stages, person.work.bytes_rewritten) == (RunOutcome.SUCCEEDED, ("toy",), 5)
    assert (knows.outcome, knows.error, person.decisions) == (RunOutcome.FAILED, "too many pieces", (DECISION,))
    started, ended = audit_log.log_of(graph.storage, "").entries
    assert (started.verb, started.event) == ("toy", AuditEvent.STARTED)
    assert (ended.verb, ended.event, ended.detail) == ("toy", AuditEvent.FAILED, "1 toy mended, 1 broken")
    (listed,) = json.loads(cli("history --json", graph.uri).out)["runs"]
    assert (listed["header"]["verb"], listed["errors"]) == ("toy", list(record.errors))
    shown = json.loads(cli(f"history --run {record.run_id} --json", graph.uri).out)
    assert [table["stages"] for table in shown["tables"]] == [[], ["toy"]]


def test_what_no_figure_tells_is_a_note(graph: Graph) -> None:
    run = begun(graph)
    run.notes(Outcome(stage="toy", detail="3 toys painted", changed=True))
    record = end(graph, run)
    assert (record.outcome, record.notes) == (RunOutcome.SUCCEEDED, ("3 toys painted",))


def test_a_table_that_it_left_alone_has_its_reason(graph: Graph) -> None:
    run = begun(graph)
    run.notes(Outcome(stage="toy", detail="", tables=(TableOutcome(table_key=PERSON, reason="asleep"),)))
    record = end(graph, run)
    assert (record.outcome, record.tables[0].reason) == (RunOutcome.NOTHING_TO_DO, "asleep")


def test_a_failure_that_only_its_problem_tells_is_an_error_and_wants_an_entry(graph: Graph) -> None:
    run = begun(graph)
    run.notes(Outcome(stage="toy", detail="nothing mended", applied=False, problem="no glue; buy some"))
    assert wants_audit(run.results)
    assert (end(graph, run).errors, audit_log.log_of(graph.storage, "").entries[-1].event) == (
        ("no glue; buy some",),
        AuditEvent.FAILED,
    )


def test_a_run_that_was_cut_off_is_told_by_its_units(graph: Graph) -> None:
    graph.storage.write("toys/a", b"12345")
    entry = graph.published(KNOWS)
    assert entry is not None
    run = begun(graph)
    run.begins(first := unit(PERSON))
    run.ended(first, ToyReport(tables=(MENDED,)))
    run.begins(unit("", files=(PlannedFile(path="toys/gone", size=7, kind="toy"),)))
    run.begins(unit(KNOWS, version=entry.version - 1))
    bury_runs(graph.storage)
    (record,) = settle(graph)
    assert (record.outcome, settle(graph)) == (RunOutcome.INTERRUPTED, ())
    assert {table.table_key: table.stages for table in record.tables} == {PERSON: ("toy",), KNOWS: ("toy",)}
    assert record.work == Work(bytes_rewritten=5, files_removed=1, bytes_reclaimed=7)
    ended = audit_log.log_of(graph.storage, "").entries[-1]
    assert ended.event is AuditEvent.INTERRUPTED
    assert ended.detail.endswith("; 2 toys mended, 0 broken, 1 thrown away")


def attempts(graph: Graph, noted: StageReport) -> RunResults:
    """What two attempts of a task left: one that was killed after a unit, and one that came to its end. Writes."""
    killed = begun(graph, TaskAttempt(task_id="apply_toy"))
    killed.begins(first := unit(PERSON))
    killed.ended(first, ToyReport(tables=(MENDED,)))
    bury_runs(graph.storage, TASKS_DIR)
    close(graph, killed.header.run_id, is_over=lambda _task: True)
    again = begun(graph, TaskAttempt(task_id="apply_toy", try_number=2))
    again.begins(second := unit(KNOWS))
    again.ended(second, ToyReport(tables=(BROKEN,)))
    again.notes(noted)
    leave(graph, again)
    left = read_tasks(graph.storage, again.header.run_id)
    assert (len(left.left), left.open) == (2, ())
    return left.results()


def test_the_attempts_of_its_task_add_up(graph: Graph) -> None:
    (toy,) = outcomes_of(attempts(graph, TOY))
    assert (toy.detail, toy.errors, toy.work) == (TOY.detail, TOY.errors, TOY.work)
    assert {table.table_key: (table.work.bytes_rewritten, table.error) for table in toy.tables} == {
        PERSON: (10, None),
        KNOWS: (0, "too many pieces"),
    }


def test_its_own_reports_add_up_and_are_read_again_as_what_they_are(graph: Graph) -> None:
    whole = ToyReport(tables=(MENDED, BROKEN), others=Work(files_removed=1))
    found = attempts(graph, whole).reports["toy"]
    assert found == ToyReport(tables=(replace(MENDED, work=Work(bytes_rewritten=10)), BROKEN), others=whole.others)
    assert found.outcome().detail == "1 toys mended, 1 broken, 1 thrown away"


def test_a_report_of_a_stage_that_this_release_lacks_is_refused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts(graph, ToyReport(tables=(MENDED, BROKEN)))
    monkeypatch.delitem(STAGES, Toys.name)
    said: list[str] = []
    assert read_tasks(graph.storage, "cli/host:1/toy", warn=said.append).left == ()
    assert len(said) == 2
