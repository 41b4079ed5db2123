"""A stage that no module of the history, the audit log and the run journal names is recorded by its outcome alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from omnigraph_ops.coordination.state import TASKS_DIR
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.cleanup import PlannedFile
from omnigraph_ops.models.history import Answer, RunDecision, RunOutcome, RunRecord, Work
from omnigraph_ops.models.runs import Outcome, TableOutcome, TaskAttempt, Unit
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.outcomes.record import record_of
from omnigraph_ops.outcomes.results import Snapshot
from omnigraph_ops.outcomes.run_results import audit_end, wants_audit, with_units
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


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(**SMALL)


def begun(graph: Graph, task: TaskAttempt | None = None) -> RecordedRun:
    """A run of an approved plan of the stage. Reads."""
    run = RecordedRun(graph, header("cli/host:1/toy", verb="toy"), Snapshot(), task)
    run.decisions = (DECISION,)
    return run


def unit(table_key: str, **fields: Any) -> Unit:
    return replace(
        Unit(name=f"toy of {table_key}", stage="toy", told_by="version", digest=DIGEST, table_key=table_key), **fields
    )


def end(graph: Graph, run: RecordedRun) -> RunRecord:
    """What whoever runs a stage does when it is over. Writes."""
    results = replace(with_units(run.results, graph.uri, run.records), decisions=run.decisions)
    event, detail = audit_end(results, error=None, interrupted=False)
    audit_log.append(graph.storage, event, **run.subject(DIGEST), detail=detail)
    history.append(graph, record_of(run.header, results), days=400)
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
    run.ended(first, MENDED)
    run.begins(unit("", told_by="files", files=(PlannedFile(path="toys/gone", size=7, kind="toy"),)))
    run.begins(unit(KNOWS, version=entry.version - 1))
    bury_runs(graph.storage)
    (record,) = settle(graph)
    assert (record.outcome, settle(graph)) == (RunOutcome.INTERRUPTED, ())
    assert {table.table_key: table.stages for table in record.tables} == {PERSON: ("toy",), KNOWS: ("toy",)}
    assert record.work == Work(bytes_rewritten=5, files_removed=1, bytes_reclaimed=7)
    ended = audit_log.log_of(graph.storage, "").entries[-1]
    assert ended.event is AuditEvent.INTERRUPTED
    assert ended.detail.endswith("; 3 of 3 units changed something, 0 failed")


def test_the_attempts_of_its_task_add_up(graph: Graph) -> None:
    killed = begun(graph, TaskAttempt(task_id="apply_toy"))
    killed.begins(first := unit(PERSON))
    killed.ended(first, MENDED)
    bury_runs(graph.storage, TASKS_DIR)
    close(graph, killed.header.run_id, is_over=lambda _task: True)
    again = begun(graph, TaskAttempt(task_id="apply_toy", try_number=2))
    again.begins(second := unit(KNOWS))
    again.ended(second, BROKEN)
    again.notes(TOY)
    leave(graph, again)
    left = read_tasks(graph.storage, again.header.run_id)
    (toy,) = left.results(graph.uri).outcomes
    assert (toy.detail, toy.errors, toy.work) == (TOY.detail, TOY.errors, TOY.work)
    assert {table.table_key: (table.work.bytes_rewritten, table.error) for table in toy.tables} == {
        PERSON: (10, None),
        KNOWS: (0, "too many pieces"),
    }
    assert (len(left.left), left.open) == (2, ())
