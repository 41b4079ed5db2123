"""The history table: every writing verb leaves one record, previews leave none, and nobody is disturbed by it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.cli.call import Call, Parsed
from omnigraph_ops.cli.parsing import parse
from omnigraph_ops.cli.process import Signals
from omnigraph_ops.cli.recording import Recorder
from omnigraph_ops.coordination.state import HISTORY_PATH
from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import RECOVERY_DIR, now_us
from omnigraph_ops.lance.gateway import LanceFailure
from omnigraph_ops.lance.history_table import MAINTAINED_EVERY, rows_of
from omnigraph_ops.models.history import RunOutcome, RunRecord
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.outcomes import history
from omnigraph_ops.quantities import human_bytes
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support import plain
from tests.support.edges import raising, when_asked, when_copied
from tests.support.history import DAY_US, record
from tests.support.orphans import age
from tests.support.rows import rows_everywhere
from tests.support.shell import Cli, assert_refused

pytestmark = pytest.mark.slow

SMALL = {"loads": 3, "rows": 12, "node_types": 1}
DRIFTED = "node:Person"
DONE, FAILED, NOTHING = RunOutcome.SUCCEEDED, RunOutcome.FAILED, RunOutcome.NOTHING_TO_DO


def bare(root: str | Path, days: int = 400) -> Graph:
    """Of a graph what its history needs."""
    found = SimpleNamespace(
        storage=Storage(str(root)),
        lance=SimpleNamespace(storage_options=None),
        settings=SimpleNamespace(history_days=days),
    )
    return cast("Graph", found)


@pytest.fixture
def place(tmp_path: Path) -> Graph:
    """A place with nothing in it."""
    return bare(tmp_path)


def dataset(root: str | Path) -> Any:
    return lance.dataset(f"{root}/{HISTORY_PATH}")


def named_in(plan: OrphansPlan) -> list[str]:
    """Every file that a plan names, to be removed or not."""
    return [*(f.path for f in plan.files), *(f.path for f in plan.unknown)]


def seen(graph: Graph) -> list[tuple[str, RunOutcome]]:
    """Verb and outcome of every run, oldest first."""
    return [(run.header.verb, run.outcome) for run in reversed(history.read_runs(graph))]


def test_every_verb_that_writes_leaves_one_record_and_the_others_none(
    cli: Cli, demo_graph: DemoGraph, stamp: int
) -> None:
    graph = demo_graph(stamp=stamp, drift_tables=(DRIFTED,), **SMALL)
    previews = ("check", "health", "plan", "audit", "history", "repair", "cleanup --keep 1", "orphans", "unlock")
    for verb in previews:
        assert cli(verb, graph.uri).code == (4 if verb == "check" else 0), "a table has drifted"
    assert not Path(graph.uri, HISTORY_PATH).exists()
    for verb in ("recover", "optimize", "repair --confirm", "optimize", "cleanup --keep 1 --confirm"):
        assert cli(verb, graph.uri).code == 0
    assert cli("orphans --older-than 7d --confirm", graph.uri).code == 0
    for verb in previews:
        assert cli(verb, graph.uri).code == 0
    assert seen(graph) == [
        ("recover", NOTHING),
        ("optimize", DONE),
        ("repair", DONE),
        ("optimize", DONE),
        ("cleanup", DONE),
        ("orphans", NOTHING),
    ]
    assert dataset(graph.uri).count_rows(filter="table_key IS NULL") == 6


def test_a_record_says_what_was_done_to_each_table(cli: Cli, demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, drift_tables=(DRIFTED,), **SMALL)
    before = graph.state()
    assert cli("optimize --quiet", graph.uri).code == 0
    run = history.read_run(graph, history.read_runs(graph)[0].run_id)
    assert run is not None
    tables = {t.table_key: t for t in run.tables}
    edge = tables["edge:Knows"]
    published = before.get("edge:Knows")
    assert published is not None
    assert (tables[DRIFTED].outcome, tables[DRIFTED].reason) == (NOTHING, "drift_needs_repair")
    assert (edge.outcome, edge.before.fragments, edge.after.fragments) == (DONE, 3, 1)
    assert (edge.before.version, edge.after.version) == (published.version, graph.state().get("edge:Knows").version)
    assert edge.work.bytes_rewritten > 0
    assert edge.windows
    assert (run.before.version, run.after.version) == (before.manifest_version, graph.state().manifest_version)
    assert run.after.rows == sum(e.row_count or 0 for e in graph.state().entries)
    assert run.header.triggered_by.endswith(f"@{os.uname().nodename}")


def test_the_decision_and_its_digest_are_part_of_the_record(cli: Cli, demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    plan = tmp_path / "plan.json"
    shown = cli("cleanup --keep 1 --json", graph.uri)
    plan.write_text(shown.out)
    assert cli("cleanup --confirm --plan", graph.uri, str(plan)).code == 0
    (run,) = history.read_runs(graph)
    (decision,) = run.decisions
    assert (decision.stage, str(decision.answer), decision.digest) == ("cleanup", "approved", shown.json["digest"])
    (point,) = history.table_trend(graph, DRIFTED)
    assert (point.table.decisions, point.table.work.versions_removed > 0) == ((decision,), True)
    assert run.work.bytes_reclaimed > 0


def test_a_run_that_something_stopped_has_failed(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    graph.storage.write("_schema.pg.staging", b"node X {}")
    assert cli("optimize", graph.uri).code == 1
    (run,) = history.read_runs(graph)
    assert (run.outcome, len(run.errors), "staging" in run.errors[0]) == (FAILED, 1, True)
    assert_refused(cli("optimize --table node:Nobody", graph.uri), "staging")
    assert len(history.read_runs(graph)) == 2


def test_a_recover_that_leaves_something_has_failed(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    graph.storage.write("_schema.pg.staging", b"node X {}")
    assert cli("recover", graph.uri).code == 4
    (run,) = history.read_runs(graph)
    assert (run.outcome, run.errors) == (FAILED, ("recover left the graph needs_person",))


def test_a_history_that_cannot_be_written_is_said_and_changes_nothing(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    Path(graph.uri, HISTORY_PATH).parent.mkdir()
    Path(graph.uri, HISTORY_PATH).write_text("a file where a folder belongs")
    rows = rows_everywhere(graph)
    done = cli("optimize --quiet --json", graph.uri)
    assert (done.code, done.json["tables"][0]["committed"]) == (0, True)
    assert done.err.startswith("warning: the history could not be written, which changes nothing about the run: ")
    assert len(done.err.splitlines()) == 1
    assert rows_everywhere(graph) == rows


def test_a_damaged_history_says_that_nothing_else_is_in_it(cli: Cli, demo_graph: DemoGraph) -> None:
    root = demo_graph(**SMALL).uri
    assert cli("optimize --quiet", root).code == 0
    for file in Path(root, HISTORY_PATH, "data").iterdir():
        file.write_bytes(b"")
    assert_refused(cli("history", root), "it holds only the history of runs: if it is damaged, remove it")


def test_a_record_is_returned_wherever_it_could_be_made(place: Graph) -> None:
    said, night = list[str](), record("night")
    Path(place.storage.root, HISTORY_PATH).parent.mkdir()
    Path(place.storage.root, HISTORY_PATH).write_text("a file where a folder belongs")
    assert history.keep(place, lambda: night, warn=said.append) == (night, False)

    def unmade() -> RunRecord:
        raise ValueError("no such number\nin the report")

    assert history.keep(place, unmade, warn=said.append) == (None, False)
    sentence = "the history could not be written, which changes nothing about the run"
    assert (len(said), said[0].startswith(f"{sentence}: "), said[1]) == (2, True, f"{sentence}: no such number")


@pytest.mark.parametrize("step", ["count_rows", "get_fragments"])
def test_what_fails_after_a_record_is_written_is_said_as_that(
    place: Graph, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """While records of an earlier attempt are dropped, or when it is looked whether there are many."""
    said, night = list[str](), record("night")
    when_asked(monkeypatch, lance.LanceDataset, step, raising(LanceFailure("denied")))
    assert history.keep(place, lambda: night, warn=said.append) == (night, True)
    assert said == ["the run is in the history, which could not be kept small: denied"]
    assert history.read_run(place, "night") == night


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [(SystemExit(128 + signal.SIGTERM), "ended by SIGTERM"), (KeyboardInterrupt(), "interrupted")],
)
def test_a_run_that_somebody_ended_says_how(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, ended: BaseException, sentence: str
) -> None:
    graph = demo_graph(**SMALL)
    when_asked(monkeypatch, Storage, "list", raising(ended), about=f"^{RECOVERY_DIR}$")
    assert cli("recover", graph.uri).code > 128
    (run,) = history.read_runs(graph)
    assert (run.outcome, run.errors) == (RunOutcome.INTERRUPTED, (sentence,))


def test_a_backup_is_a_run_that_says_what_it_copied(cli: Cli, demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    made = cli("backup", graph.uri, str(tmp_path / "backups"), "--json").json
    (run,) = history.read_runs(graph)
    assert (run.header.verb, run.outcome, run.attention, run.decisions) == ("backup", DONE, (), ())
    copied = human_bytes(made["copied"]["bytes"])
    note = f"backup {made['backup_id']}: {made['total']['files']:,} files, {copied} copied, at {made['backup']}"
    assert run.notes == (note,)
    for form in ("table", "json", "markdown", "html", "csv"):
        assert made["backup_id"] in cli(f"history --format {form} --run", graph.uri, run.run_id).out
    assert cli("verify", made["backup"], "--graph", graph.uri).code == 0
    assert seen(graph) == [("backup", DONE)]


def test_a_backup_that_failed_has_failed(
    cli: Cli, demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, target = demo_graph(**SMALL), str(tmp_path / "backups")
    when_copied(monkeypatch, raising(StorageError("disk full")), times=None)
    assert_refused(cli("backup", graph.uri, target, "--quiet"), "disk full")
    (run,) = history.read_runs(graph)
    assert (run.header.verb, run.outcome, run.errors) == ("backup", FAILED, ("disk full",))
    assert ["unfinished, the next backup to that place goes on with it" in note for note in run.notes] == [True]
    assert_refused(cli("backup", graph.uri, f"{graph.uri}/backups"), "is inside the graph")
    assert len(history.read_runs(graph)) == 1, "a call that was wrong is no run"


def test_nobody_else_sees_the_history(cli: Cli, demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    keys = {t.table_key for t in health(graph).tables}
    assert cli("optimize", graph.uri).code == 0
    age(Path(graph.uri, HISTORY_PATH))
    plan = plan_orphans(graph, older_than_seconds=86_400)
    ours = [path for path in named_in(plan) if path.startswith("__maintenance")]
    assert (ours, [p for p in plan.folders if p.startswith(HISTORY_PATH)]) == ([], [])
    apply_orphans(graph, plan)
    assert cli("cleanup --keep 1 --confirm", graph.uri).code == 0
    assert {t.table_key for t in health(graph).tables} == keys
    assert check(graph).status.exit_code == 0
    assert len(history.read_runs(graph)) == 2


@pytest.mark.parametrize("one", [False, True], ids=["folder", "dataset"])
def test_plain_lance_has_its_history_beside_the_datasets(cli: Cli, tmp_path: Path, *, one: bool) -> None:
    root = plain.database(tmp_path / "db")
    target = root / "stable.lance" if one else root
    keys = {t.table_key for t in health(plain.opened(target)).tables}
    for verb in ("optimize", "cleanup --keep 1 --confirm", "optimize"):
        assert cli(verb, str(target)).code == 0
    graph = plain.opened(target)
    assert seen(graph) == [("optimize", DONE), ("cleanup", DONE), ("optimize", NOTHING)]
    assert dataset(root).count_rows() > 3
    assert {t.table_key for t in health(graph).tables} == keys
    age(Path(graph.uri, HISTORY_PATH))
    plan = plan_orphans(graph, older_than_seconds=86_400)
    assert [path for path in named_in(plan) if HISTORY_PATH in path] == []
    assert history.read_runs(graph)[0].after.version is None


def _append_many(root: str, name: str, count: int) -> None:
    place = bare(root)
    for number in range(count):
        history.append(place, record(f"{name}/{number}"))


def test_two_processes_append_at_once_and_nothing_is_lost(place: Graph) -> None:
    each = MAINTAINED_EVERY // 2 + 4
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_append_many, args=(place.storage.root, name, each)) for name in "ab"]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    found = {run.run_id for run in history.read_runs(place)}
    assert found == {f"{name}/{number}" for name in "ab" for number in range(each)}
    # Beside another writer every compaction may lose its race; the next append that has none makes up for it.
    _append_many(place.storage.root, "c", 1)
    assert len(dataset(place.storage.root).get_fragments()) < MAINTAINED_EVERY


def test_the_first_records_of_two_runs_are_both_kept(place: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    write = lance.fragment.write_fragments
    others = [record("b/0")]

    def overtaken(*arguments: Any, **named: Any) -> Any:
        written = write(*arguments, **named)
        if others:
            history.append(place, others.pop())
        return written

    monkeypatch.setattr("lance.fragment.write_fragments", overtaken)
    history.append(place, record("a/0"))
    assert {run.run_id for run in history.read_runs(place)} == {"a/0", "b/0"}


def test_a_record_whose_commit_had_no_reply_names_each_table_once(
    place: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, replies = lance.LanceDataset.commit, [False, True]

    def unanswered(*arguments: Any, **named: Any) -> Any:
        made = commit(*arguments, **named)
        if not replies.pop(0):
            raise OSError("Generic S3 error: connection closed before message completed")
        return made

    monkeypatch.setattr(lance.LanceDataset, "commit", unanswered)
    written = record("a/0")
    history.append(place, written)
    assert dataset(place.storage.root).count_rows() == 2 * (1 + len(written.tables)), "it was written twice"
    assert history.read_run(place, "a/0") == written


def test_records_past_their_time_go_and_the_table_stays_small(place: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    import omnigraph_ops.lance.history_table as edge

    monkeypatch.setattr(edge, "MAINTAINED_EVERY", 6)
    monkeypatch.setattr(edge, "_READERS_HAVE", edge.timedelta(0))
    now = now_us()
    for day in (50, 41, 39, 3, 2, 1):
        history.append(bare(place.storage.root, 40), record(f"day {day}", started_at_us=now - day * DAY_US))
    assert [run.run_id for run in history.read_runs(place)] == ["day 1", "day 2", "day 3", "day 39"]
    kept = dataset(place.storage.root)
    assert (len(kept.get_fragments()), len(kept.versions())) == (1, 1)
    assert history.table_trend(place, "node:A")[-1].run_id == "day 39"


def test_a_retention_of_thousands_of_years_keeps_everything(place: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph_ops.lance.history_table.MAINTAINED_EVERY", 1)
    history.append(bare(place.storage.root, 10**6), record("old", started_at_us=DAY_US))
    assert [run.run_id for run in history.read_runs(place)] == ["old"]


def test_a_run_that_is_reported_again_has_one_record(place: Graph) -> None:
    for outcome in (FAILED, DONE):
        history.append(place, record("night", outcome=outcome))
        history.append(place, record("other"))
        time.sleep(0.002)
    assert [run.outcome for run in history.read_runs(place) if run.run_id == "night"] == [DONE]
    assert dataset(place.storage.root).count_rows() == 4


def test_the_newest_so_many_or_since_a_moment(place: Graph) -> None:
    now = now_us()
    for day in (5, 3, 4, 1):
        history.append(place, record(f"it's {day}", started_at_us=now - day * DAY_US))
    assert [r.run_id for r in history.read_runs(place, last=2)] == ["it's 1", "it's 3"]
    assert [r.run_id for r in history.read_runs(place, since_us=now - 4 * DAY_US)] == ["it's 1", "it's 3", "it's 4"]
    assert [p.run_id for p in history.table_trend(place, "node:A", last=1)] == ["it's 1"]
    run = history.read_run(place, "it's 4")
    assert run is not None
    assert len(run.tables) == 1
    assert history.read_runs(place, last=1)[0].tables == ()
    assert history.read_run(place, "' OR '1'='1") is None
    assert history.read_runs(bare(f"{place.storage.root}/elsewhere")) == ()


def test_columns_of_an_older_release_are_added(place: Graph) -> None:
    old = rows_of(record("old", notes=("a",))).drop_columns(["preempted", "notes"])
    lance.write_dataset(old, f"{place.storage.root}/{HISTORY_PATH}")
    assert [(r.work.preempted, r.notes) for r in history.read_runs(place)] == [(None, ())]
    history.append(place, record("new", notes=("b",)))
    runs = sorted(history.read_runs(place), key=lambda r: r.run_id)
    assert [(r.work.preempted, r.notes) for r in runs] == [(1, ("b",)), (None, ())]


def test_columns_of_a_later_release_do_not_stop_this_one(place: Graph) -> None:
    history.append(place, record("old"))
    dataset(place.storage.root).add_columns(pa.field("later", pa.string()))
    history.append(place, record("new"))
    assert len(history.read_runs(place)) == 2


def test_words_of_a_later_release_hide_no_record(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    history.append(graph, record("old"))
    history.append(graph, record("new"))
    dataset(graph.uri).update({"outcome": "'postponed'", "origin": "'robot'"}, where="run_id = 'new'")
    runs = {run.run_id: run for run in history.read_runs(graph)}
    assert (runs["new"].outcome, runs["new"].header.origin, len(runs)) == ("postponed", "robot", 2)
    for form in ("table", "json", "markdown", "html", "csv"):
        assert "postponed" in cli(f"history --format {form}", graph.uri).out


def test_the_verb_shows_runs_one_run_and_a_table(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    assert cli("history", graph.uri).out.splitlines()[1].split() == ["Runs", "0"]
    cli("optimize", graph.uri)
    cli("cleanup --keep 1 --confirm", graph.uri)
    listed = cli("history --json", graph.uri).json["runs"]
    assert [run["header"]["verb"] for run in listed] == ["cleanup", "optimize"]
    run_id = listed[1]["header"]["run_id"]
    whole = cli("history --format json --run", graph.uri, run_id)
    assert [t["table_key"] for t in whole.json["tables"]][1:] == ["edge:Knows", "node:Person"]
    assert "drift" not in cli("history --run", graph.uri, run_id).out
    trend = cli(f"history --table {DRIFTED} --last 1 --format csv", graph.uri).out.splitlines()
    assert (len(trend), ",cleanup,node:Person,succeeded," in trend[1]) == (2, True)
    assert len(cli("history --since 1d --format markdown", graph.uri).out.splitlines()) == 10
    assert cli("history --format html", graph.uri).out.startswith("<!doctype html>")
    assert_refused(cli("history --run nothing", graph.uri), "has no run 'nothing'")
    assert_refused(cli("history --last 0", graph.uri), "--last: '0' is not a whole number of at least 1", code=2)
    assert_refused(cli("history --last 1 --run x", graph.uri), "leave --table, --last and --since out", code=2)
    assert_refused(cli("history --since banana", graph.uri), "unknown duration unit", code=2)


def test_which_calls_write(monkeypatch: pytest.MonkeyPatch) -> None:
    class Opened(Exception):
        pass

    def open_(call: Call, *_: object) -> None:
        raise Opened(call.writes)

    monkeypatch.setattr(Call, "open", open_)
    monkeypatch.setattr("omnigraph_ops.graph.opening.open_graph", lambda *_: None)

    def call(text: str) -> bool:
        parsed = parse(text.split())
        assert isinstance(parsed, Parsed)
        recorder = Recorder(parsed.verb, Signals(own_process=False))
        call = Call(verb=parsed.verb, options=parsed.options, recorder=recorder)
        with contextlib.suppress(OpsError, Opened):
            parsed.run(call)
        return call.writes

    writing = (
        "optimize g",
        "recover g",
        "repair g --confirm",
        "cleanup g --keep 1 --confirm",
        "orphans g --older-than 7d --confirm",
    )
    assert call("backup g somewhere")
    assert all(call(text) for text in (*writing, "orphans g --restore q", "orphans g --purge q --confirm"))
    reading = ("optimize g --queue", "repair g", "cleanup g --keep 1", "orphans g", "orphans g --purge q", "history g")
    assert not any(call(text) for text in ("verify b --graph g", "restore b g", "backups somewhere"))
    assert not any(call(text) for text in reading)
