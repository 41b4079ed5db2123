"""The journal of a run, and the record that is made of a run that was cut off."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest
from lance import LanceDataset

from omnigraph_ops.cli.recording import Recorder
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.state import AUDIT_DIR, HISTORY_PATH, REWRITES_DIR, RUNS_DIR
from omnigraph_ops.errors import InvalidInput, StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.lance.gateway import LanceFailure
from omnigraph_ops.lance.versions import existing_versions
from omnigraph_ops.models.history import RunOutcome, RunRecord
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes import audit_log, history, run_journal
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.outcomes.results import Snapshot, UnitRecord
from omnigraph_ops.outcomes.runs import RecordedRun, settle, unsettled
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked, when_published
from tests.support.events import ITEMS, ids, items
from tests.support.history import header
from tests.support.leases import bury_runs, left_held
from tests.support.orphans import age, plant
from tests.support.plain import opened
from tests.support.rows import tree_of
from tests.support.shell import Cli
from tests.support.sidecars import arm, move
from tests.support.stopped import LeavesPauses
from tests.support.writers import entry_of

DAY = 86_400
SMALL = {"loads": 3, "rows": 12, "node_types": 1}
PERSON = "node:Person"
STARTED, INTERRUPTED = AuditEvent.STARTED, AuditEvent.INTERRUPTED


def audit(graph: Graph) -> list[AuditEvent]:
    return [entry.event for entry in audit_log.log_of(graph.storage, "").entries]


def the_run(graph: Graph) -> RunRecord:
    """The one run of the history, with its tables. Reads."""
    (listed,) = history.read_runs(graph)
    run = history.read_run(graph, listed.run_id)
    assert run is not None
    return run


def versions(graph: Graph) -> int:
    heads = [graph.open_head(e) for e in graph.maintained(graph.state())]
    return sum(len(existing_versions(head)) for head in heads)


def stored(graph: Graph) -> int:
    """Bytes of the graph, without the state of this tool and the names of branches. Reads."""
    files = [p for p in Path(graph.uri).rglob("*") if p.is_file() and not {"__maintenance", "_refs"} & {*p.parts}]
    return sum(p.stat().st_size for p in files)


@pytest.fixture
def unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs leave their effects, their intents, and nothing of what came of them: as if killed right after each."""
    monkeypatch.setattr(RecordedRun, "ended", lambda *_: None)
    monkeypatch.setattr(Recorder, "finish", lambda *_: True)


def settled(graph: Graph) -> RunRecord:
    bury_runs(graph.storage)
    (record,) = settle(graph)
    assert (record.outcome, run_journal.open_journals(graph.storage), settle(graph)) == (RunOutcome.INTERRUPTED, (), ())
    assert the_run(graph).work == record.work
    return record


def test_a_run_leaves_no_journal_and_its_audit_has_a_start_and_an_end(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    assert cli("cleanup --keep 1 --confirm", graph.uri).code == 0
    assert not list(Path(graph.uri, RUNS_DIR).glob("*/*"))
    started, applied = audit_log.log_of(graph.storage, "").entries
    assert (started.event, applied.event, started.digest) == (STARTED, AuditEvent.APPLIED, applied.digest)
    assert started.run == applied.run == history.read_runs(graph)[0].run_id


@pytest.mark.slow
@pytest.mark.usefixtures("unrecorded")
def test_an_optimize_that_was_cut_off_is_told_by_the_graph(cli: Cli, demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    before = {e.table_key: e.version for e in graph.state().entries}
    assert cli("optimize --quiet", graph.uri).code == 0
    record = settled(graph)
    after = {e.table_key: e.version for e in graph.state().entries}
    tables = {t.table_key: t for t in record.tables}
    assert {key for key, table in tables.items() if table.stages} == {k for k in after if after[k] != before[k]}
    knows = tables["edge:Knows"]
    assert (knows.outcome, knows.before.version, knows.after.version) == (
        RunOutcome.INTERRUPTED,
        before["edge:Knows"],
        after["edge:Knows"],
    )
    assert (knows.work.fragments_removed, knows.work.fragments_added, knows.work.bytes_rewritten > 0) == (3, 1, True)


@pytest.mark.slow
@pytest.mark.usefixtures("unrecorded")
def test_a_cleanup_that_was_cut_off_is_told_by_the_graph(cli: Cli, demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, written_branches=1, **SMALL)
    graph.manifest().branches.delete(graph.branches()[0])
    had, size = versions(graph), stored(graph)
    done = cli("cleanup --keep 1 --confirm --json", graph.uri).json
    record = settled(graph)
    assert record.work.versions_removed == had - versions(graph) == done["versions_removed"] > 0
    assert record.work.bytes_reclaimed == size - stored(graph)
    assert done["orphaned_forks_removed"]
    assert audit(graph) == [STARTED, INTERRUPTED]
    assert f"{had - versions(graph)} versions and " in audit_log.log_of(graph.storage, "").entries[-1].detail


@pytest.mark.slow
@pytest.mark.usefixtures("unrecorded")
def test_files_that_were_removed_moved_or_purged_are_told_by_the_graph(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    size = sum(Path(graph.uri, path).stat().st_size for path in plant(graph))
    moved = cli("orphans --older-than 7d --confirm --quarantine --json", graph.uri).json
    record = settled(graph)
    assert (record.work.files_removed, record.work.bytes_reclaimed) == (8, 0), "what is only moved is not reclaimed"
    assert audit(graph) == [STARTED, INTERRUPTED]
    assert cli(f"orphans --purge {moved['quarantine_id']} --confirm", graph.uri).code == 0
    bury_runs(graph.storage)
    (purged,) = settle(graph)
    assert (purged.work.files_removed, purged.work.bytes_reclaimed) == (8, size)
    assert audit(graph) == [STARTED, INTERRUPTED, STARTED, INTERRUPTED]
    assert "purged: 8 files" in audit_log.log_of(graph.storage, "").entries[-1].detail


@pytest.mark.usefixtures("unrecorded")
def test_rows_that_expired_are_counted_in_what_is_left(cli: Cli, tmp_path: Path) -> None:
    root = items(tmp_path, [1, 2, 60, 61])
    words = "expire-rows --table table:items --property at --older-than 30d --max-share 1 --confirm"
    assert cli(words, str(root)).code == 0
    record = settled(opened(root))
    assert ids(root) == [0, 1]
    assert [(t.table_key, t.stages) for t in record.tables] == [(ITEMS, ("expire-rows",))]
    assert "2 rows and 0 edges deleted" in audit_log.log_of(opened(root).storage, "").entries[-1].detail


def test_a_run_that_never_got_to_its_effect_did_nothing(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    run = RecordedRun(graph, header(), Snapshot())
    entry = entry_of(graph, PERSON)
    table = {"table_key": PERSON, "version": entry.version}
    run.begins(Unit(name="1", stage="optimize", **table))
    run.begins(Unit(name="2", stage="cleanup", table_path=entry.path, versions=(1,), digest="sha256:1", **table))
    run.begins(Unit(name="3", stage="recover", **table))
    record = settled(graph)
    (only,) = record.tables
    assert (only.outcome, only.stages, only.reason) == (RunOutcome.INTERRUPTED, (), "interrupted")
    assert (record.work.versions_removed, record.work.bytes_reclaimed) == (0, 0)


def test_what_cannot_be_told_is_said_and_holds_up_nothing(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    run = RecordedRun(graph, header(), Snapshot())
    run.begins(Unit(name="cleanup of node:Gone", stage="cleanup", table_key="node:Gone", table_path="nodes/gone"))
    record = settled(graph)
    assert "what cleanup of node:Gone had done before it was interrupted could not be told" in record.errors[1]


@pytest.mark.slow
def test_a_run_at_work_is_left_alone_and_shown(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    run = RecordedRun(graph, header(verb="cleanup"), Snapshot())
    run.begins(Unit(name="1", stage="optimize", table_key=PERSON, version=1))
    assert settle(graph) == ()
    assert [(u.header.verb, u.at_work, u.units) for u in unsettled(graph)] == [("cleanup", True, 1)]
    assert "cleanup of ada@host since" in cli("history", graph.uri).out
    assert cli("history --json", graph.uri).json["unsettled"][0]["at_work"] is True
    assert cli("optimize", graph.uri).code == 0
    assert [r.header.verb for r in history.read_runs(graph)] == ["optimize"]


def test_a_later_process_of_the_same_number_is_another_one(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    run = RecordedRun(graph, header(), Snapshot())
    run.begins(Unit(name="1", stage="optimize", table_key=PERSON, version=1))
    (open_,) = run_journal.open_journals(graph.storage)
    assert open_.may_be_alive
    assert not replace(open_, intent=replace(open_.intent, process_started="1")).may_be_alive
    elsewhere = replace(open_, intent=replace(open_.intent, machine="elsewhere"))
    assert elsewhere.may_be_alive
    assert not replace(elsewhere, changed_at=1.0).may_be_alive


def test_who_was_killed_on_another_machine_while_recording_keeps_nobody_from_it(demo_graph: DemoGraph) -> None:
    graph = demo_graph(settings=Settings(lease_ttl_seconds=0.3), **SMALL)
    RecordedRun(graph, header(), Snapshot()).begins(Unit(name="1", stage="optimize", table_key=PERSON, version=1))
    bury_runs(graph.storage)
    lease = Path(graph.uri, left_held(graph.storage, f"{RUNS_DIR}/lease"))
    assert settle(graph.with_run(LeavesPauses())) == (), "one that seems to be at work is not waited for"
    os.utime(lease, (time.time() - DAY, time.time() - DAY))
    (record,) = settle(graph)
    assert record.outcome is RunOutcome.INTERRUPTED


def test_whoever_may_not_write_sees_what_is_not_recorded(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, denied = demo_graph(**SMALL), raising(StorageError("permission denied"))
    RecordedRun(graph, header(), Snapshot()).begins(Unit(name="1", stage="optimize", table_key=PERSON, version=1))
    bury_runs(graph.storage)
    when_asked(monkeypatch, Storage, "create", denied, about=f"^{RUNS_DIR}/lease-")
    shown = cli("history", graph.uri)
    assert (shown.code, "interrupted; the next command that writes to the graph records it" in shown.out) == (0, True)
    assert "warning: a run that was interrupted could not be recorded: permission denied" in shown.err


@pytest.mark.slow
@pytest.mark.parametrize("command", ["history", "audit", "recover", "optimize --quiet"])
def test_the_next_command_records_what_was_cut_off(cli: Cli, demo_graph: DemoGraph, command: str) -> None:
    graph = demo_graph(**SMALL)
    run = RecordedRun(graph, header("cli/cut/off"), Snapshot())
    run.begins(Unit(name="1", stage="optimize", table_key=PERSON, version=1))
    bury_runs(graph.storage)
    assert cli(command, graph.uri).code == 0
    assert history.read_run(graph, "cli/cut/off") is not None
    assert run_journal.open_journals(graph.storage) == ()


def test_recover_of_the_library_records_what_was_cut_off(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    RecordedRun(graph, header(), Snapshot()).begins(Unit(name="1", stage="optimize", table_key=PERSON, version=1))
    bury_runs(graph.storage)
    recover(graph)
    assert the_run(graph).outcome is RunOutcome.INTERRUPTED


@pytest.mark.parametrize(
    "verb", ["cleanup --keep 1 --confirm", "orphans --older-than 7d --confirm", "repair --confirm"]
)
def test_without_the_first_entry_of_the_audit_log_nothing_is_removed(
    cli: Cli, demo_graph: DemoGraph, verb: str
) -> None:
    graph = demo_graph(drift_tables=("edge:Knows",) if verb.startswith("repair") else (), **SMALL)
    plant(graph)
    age(graph.uri)
    Path(graph.uri, AUDIT_DIR).parent.mkdir(exist_ok=True)
    Path(graph.uri, AUDIT_DIR).write_text("a file where a folder belongs")
    before = {path for path in tree_of(graph.uri) if "__maintenance" not in path}
    pins = graph.state().entries
    done = cli(verb, graph.uri)
    assert done.code == 1
    assert "the audit log could not be written, so nothing was removed or published" in done.out + done.err
    assert {path for path in tree_of(graph.uri) if "__maintenance" not in path} == before
    assert graph.state().entries == pins


def test_without_the_last_entry_the_report_is_printed_and_the_next_command_adds_it(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, full = demo_graph(**SMALL), raising(StorageError("no space left"))
    with monkeypatch.context() as patch:
        entries = when_asked(patch, Storage, "write", full, about=f"^{AUDIT_DIR}/", skip=1)
        done = cli("cleanup --keep 1 --confirm --json", graph.uri)
    assert (done.code, done.json["versions_removed"] > 0, len(entries)) == (1, True, 2)
    assert "Error: the last entry of the audit log could not be written: no space left" in done.err
    assert the_run(graph).outcome is RunOutcome.SUCCEEDED
    bury_runs(graph.storage)
    assert cli("recover", graph.uri).code == 0
    assert audit(graph) == [STARTED, AuditEvent.APPLIED]
    assert [r.outcome for r in history.read_runs(graph)][1:] == [RunOutcome.SUCCEEDED], "its record is as it was"


def test_a_run_that_failed_does_not_say_that_it_reported(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials that expire in the middle: no report is printed, and the log cannot be written either."""
    graph, real = demo_graph(**SMALL), audit_log.append

    def expired(storage: Any, event: AuditEvent, **fields: Any) -> Any:
        if event is not STARTED:
            raise StorageError("ExpiredToken")
        return real(storage, event, **fields)

    def half_done(*plan: Any, **more: Any) -> None:
        cleanup_all(*plan, **more)
        raise StorageError("cannot list the graph: ExpiredToken")

    with monkeypatch.context() as patch:
        patch.setattr(audit_log, "append", expired)
        patch.setattr("omnigraph_ops.stages.cleanup.apply.cleanup_all", half_done)
        done = cli("cleanup --keep 1 --confirm --json", graph.uri)
    assert (done.code, done.out) == (1, "")
    assert "could not be written: ExpiredToken; what was done is in the journal of the run, and the next" in done.err


def test_a_journal_that_cannot_be_removed_makes_no_failed_run(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, denied = demo_graph(**SMALL), raising(StorageError("permission denied"))
    with monkeypatch.context() as patch:
        when_asked(patch, Storage, "delete_tree", denied, about=f"^{RUNS_DIR}/")
        done = cli("cleanup --keep 3 --confirm", graph.uri)
    assert (done.code, "Error" in done.err) == (0, False)
    assert "warning: the run is recorded, but its journal could not be removed: permission denied" in done.err
    bury_runs(graph.storage)
    assert cli("history", graph.uri).code == 0
    assert run_journal.open_journals(graph.storage) == ()
    assert (the_run(graph).outcome, audit(graph)) == (RunOutcome.SUCCEEDED, [STARTED, AuditEvent.APPLIED])


@pytest.mark.slow
def test_a_record_that_the_history_did_not_take_is_added_later_as_it_was(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)

    full = raising(OSError("no space left"))
    with monkeypatch.context() as patch:
        when_asked(patch, lance.fragment, "write_fragments", full, about=HISTORY_PATH, times=None)
        assert cli("optimize --quiet", graph.uri).code == 0
    assert history.read_runs(graph) == ()
    bury_runs(graph.storage)
    (record,) = settle(graph)
    assert (record.outcome, the_run(graph).outcome) == (RunOutcome.SUCCEEDED, RunOutcome.SUCCEEDED)
    assert the_run(graph).after.score is not None


@pytest.mark.slow
def test_a_surprise_in_one_table_keeps_the_results_of_the_others(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(loads=3, rows=12, node_types=2)
    person = f"^{entry_of(graph, PERSON).path}/_transactions/"
    when_asked(monkeypatch, Storage, "write", raising(ZeroDivisionError("a bug")), about=person)
    before = {e.table_key: e.version for e in graph.state().entries}
    assert "unexpected ZeroDivisionError: a bug" in cli("optimize --quiet", graph.uri).err
    moved = {e.table_key for e in graph.state().entries if e.version != before[e.table_key]}
    run = the_run(graph)
    assert (run.outcome, {t.table_key for t in run.tables if t.stages}) == (RunOutcome.FAILED, moved)
    assert run.errors == ("a bug",)


def test_an_error_of_the_input_after_the_first_unit_is_part_of_the_record(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    arm(graph)
    move(graph)
    when_published(monkeypatch, raising(InvalidInput("a setting is wrong")))
    assert cli("recover --grace 0s", graph.uri).code == 1
    assert (the_run(graph).outcome, the_run(graph).errors) == (RunOutcome.FAILED, ("a setting is wrong",))
    assert run_journal.open_journals(graph.storage) == ()


def test_a_table_that_fails_after_its_first_unit_keeps_what_was_published(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    monkeypatch.setenv("OMNIGRAPH_OPS_SMALL_TABLE_BYTES", "0")
    before = entry_of(graph, PERSON).version
    full = raising(StorageError("the disk is full"))
    when_asked(monkeypatch, Storage, "write", full, about=f"^{REWRITES_DIR}/.*/plan.json$")
    done = cli(f"optimize --quiet --json --table {PERSON}", graph.uri)
    (stats,) = done.json["tables"]
    assert (stats["error"], stats["committed"], done.code) == ("the disk is full", True, 1)
    assert stats["published_version"] == entry_of(graph, PERSON).version > before
    (only,) = the_run(graph).tables
    assert (only.outcome, only.stages) == (RunOutcome.FAILED, ("optimize",))


def test_a_cleanup_that_fails_half_way_says_what_is_gone(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, real = demo_graph(**SMALL), LanceDataset.cleanup_old_versions

    def half(dataset: LanceDataset, *, versions: list[int], **options: Any) -> Any:
        real(dataset, versions=versions[:2], **options)
        raise LanceFailure("the store is away")

    monkeypatch.setattr(LanceDataset, "cleanup_old_versions", half)
    had = versions(graph)
    done = cli("cleanup --keep 1 --confirm --json", graph.uri)
    assert done.code == 1
    rows = [t for t in done.json["tables"] if t["error"]]
    assert {t["error"] for t in rows} == {"the store is away"}
    assert sum(t["old_versions_removed"] for t in rows) == had - versions(graph) == 2 * len(rows) > 0
    assert the_run(graph).work.versions_removed == had - versions(graph)


def test_no_secret_gets_into_a_journal(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "correct-horse")
    graph = demo_graph(**SMALL)
    RecordedRun(graph, header(), Snapshot()).begins(Unit(name="correct-horse", stage="optimize"))
    (file,) = Path(graph.uri, RUNS_DIR).glob("*/000000.json")
    assert "correct-horse" not in file.read_text()
    assert json.loads(file.read_text())["unit"]["name"] == "***"


def test_the_empty_folder_of_a_journal_goes_and_a_new_one_stays(demo_graph: DemoGraph) -> None:
    """As a kill leaves it between the last file of a journal and its folder."""
    graph = demo_graph(**SMALL)
    runs = Path(graph.uri, RUNS_DIR)
    empty, new, other, full = (runs / name for name in (new_ulid(), new_ulid(), "notes", new_ulid()))
    for folder in (empty, new, other, full):
        folder.mkdir(parents=True)
    (full / "000000.json").write_text("{")
    for folder in (empty, other, full):
        os.utime(folder, (time.time() - 120,) * 2)
    assert settle(graph) == ()
    assert {*runs.iterdir()} == {new, other, full}


def test_a_damaged_file_of_a_journal_is_left_out(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    run = RecordedRun(graph, header(), Snapshot())
    unit = Unit(name="1", stage="optimize", table_key=PERSON)
    run.begins(unit)
    folder = next(Path(graph.uri, RUNS_DIR).iterdir())
    (folder / "000001.json").write_text("{")
    (open_,) = run_journal.open_journals(open_graph(graph.uri).storage)
    assert open_.units == (UnitRecord(unit=unit),)
    (folder / "intent.json").write_text("{")
    assert run_journal.open_journals(graph.storage) == ()
