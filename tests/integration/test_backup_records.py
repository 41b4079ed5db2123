"""Whatever ends a backup: the history says so, and what lies in its place."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.backup import BackupState
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.outcomes import history
from omnigraph_ops.outcomes.backups import list_backups
from omnigraph_ops.outcomes.run_journal import open_journals
from omnigraph_ops.outcomes.runs import settle
from omnigraph_ops.stages.backup.take import backup_graph
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_copied
from tests.support.killed_runs import KINDS, Ended, Kill, run_command
from tests.support.shell import Cli

SMALL = {"loads": 2, "rows": 12, "node_types": 1}
KILLS = int(os.environ.get("OMNIGRAPH_RECORD_KILLS", "12"))


def backed_up(graph: Graph, destination: Path, kill: Kill | None = None) -> Ended:
    """Run `backup` to its end, whatever ends it. Starts a process."""
    words = ("backup", graph.uri, str(destination), "--quiet")
    return run_command(words, Path(graph.uri), destination.parent / "run", kill=kill)


def judged(graph: Graph, destination: Path, ended: Ended) -> list[str]:
    """Settle, and compare the record with what lies below the destination; what disagrees, in words. Writes."""
    settle(graph)
    # One that does not say of which graph it is has nothing but its lease.
    found = [backup for backup in list_backups(str(destination)).backups if backup.uri]
    runs = history.read_runs(graph)
    if not found:
        return ["a record of no backup"] if any(run.notes for run in runs) else []
    if len(runs) != 1:
        return [f"{len(runs)} records of {found[0].state}"]
    (run,), (backup,) = runs, found
    problems = ["a journal is left"] if open_journals(graph.storage) else []
    problems += [f"exit code {ended.code}"] if ended.code not in {0, 130, 143, -9} else []
    problems += [f"{ended.err}"] if "the graph was not changed" in ended.err or "Traceback" in ended.err else []
    if ended.code == 0 and (run.outcome, backup.state) != (RunOutcome.SUCCEEDED, BackupState.FINISHED):
        problems.append(f"exit code 0 of a run that {run.outcome} and a backup that is {backup.state}")
    if ended.code > 0 and run.outcome is not RunOutcome.INTERRUPTED:
        problems.append(f"exit code {ended.code} of a run that {run.outcome}")
    told = "".join(run.notes)
    if not told.startswith(f"backup {backup.backup_id}: "):
        problems.append(f"the record says {told!r} of {backup}")
    if ("unfinished" in told) is not (backup.state is BackupState.UNFINISHED):
        problems.append(f"the record says {told!r} of a backup that is {backup.state}")
    return problems


@pytest.mark.crash
def test_the_record_of_a_backup_that_was_ended_agrees_with_what_is_there(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, destination = demo_graph(**SMALL), tmp_path / "backups"
    pristine = tmp_path / "pristine"
    shutil.copytree(graph.uri, pristine)
    whole = backed_up(graph, destination)
    assert (whole.code, judged(graph, destination, whole)) == (0, []), whole.err
    chance, problems, last = random.Random(KILLS), list[str](), whole.moments - 1
    # The first, some, and those at its end: while it is being recorded.
    moments = [0, *(chance.randrange(last) for _ in range(KILLS)), last - 4, last - 2, last]
    for moment in moments:
        for folder in (graph.uri, destination):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(pristine, graph.uri)
        kill = Kill(moment=moment, signals=chance.choice(KINDS) if moment < last - 4 else (signal.SIGINT,))
        ended = backed_up(graph, destination, kill)
        problems += [f"{kill}: {problem}" for problem in judged(open_graph(graph.uri), destination, ended)]
    assert not problems, "\n".join(problems)


@pytest.mark.slow
def test_a_backup_that_waits_for_its_pace_stops_at_once_and_is_gone_on_with(
    cli: Cli, demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph, destination = demo_graph(**SMALL), tmp_path / "backups"
    command = [sys.executable, "-m", "omnigraph_ops", "backup", graph.uri, str(destination)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [*command, "--max-bytes-per-second", "1"], stderr=subprocess.PIPE, text=True, env=environment
    )
    signal.signal(signal.SIGINT, before)
    try:
        deadline = time.monotonic() + 60
        while not list(destination.glob("*/files")) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)  # at that pace the files take hours
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert err.splitlines()[-1].startswith("Interrupted; what was done is recorded; run the same command again")
    (run,) = history.read_runs(graph)
    assert (run.outcome, run.errors) == (RunOutcome.INTERRUPTED, ("interrupted by SIGINT",))
    assert "unfinished, the next backup to that place goes on with it" in run.notes[0]
    assert graph.storage.list("__maintenance/holds") == (), "nothing stays frozen"
    again = cli("backup", graph.uri, str(destination), "--json")
    assert again.code == 0, again.err
    assert again.json["resumed"]


def test_a_backup_that_fails_says_what_it_left(
    cli: Cli, demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    when_copied(monkeypatch, raising(CorruptGraph("a file went")), skip=3, times=None)
    assert cli("backup", graph.uri, str(tmp_path / "backups")).code == 1
    (run,) = history.read_runs(graph)
    assert (run.outcome, run.errors) == (RunOutcome.FAILED, ("a file went",))
    assert "unfinished, the next backup" in run.notes[0]


def test_a_backup_without_a_recorder_is_as_before(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    backup_graph(graph, str(tmp_path / "backups"))
    assert (open_journals(graph.storage), history.read_runs(graph)) == ((), ())
