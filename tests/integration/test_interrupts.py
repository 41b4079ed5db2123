"""Ctrl-C, SIGTERM and SIGHUP: the first stops at the next unit, the second aborts, none ends in a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import lance
import pytest

import omnigraph_ops.stages  # noqa: F401 - of a run that was cut off each unit is told by its own stage
from omnigraph_ops.coordination.lease import committer_turn, read_lease
from omnigraph_ops.coordination.state import RUNS_DIR
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import RECOVERY_DIR
from omnigraph_ops.lance.text_indexer import home_of, process_of
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes import history
from omnigraph_ops.outcomes.results import Snapshot
from omnigraph_ops.outcomes.run_journal import open_journals
from omnigraph_ops.outcomes.runs import RecordedRun, settle
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import Run, Stopped
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.history import header
from tests.support.killed_runs import Ended, Kill, run_command
from tests.support.leases import is_free
from tests.support.shell import Cli
from tests.support.texts import text_release

pytestmark = pytest.mark.slow

SMALL = {"loads": 3, "rows": 12, "node_types": 2}
PERSON = "node:Person"
_SLOW = """
import os, sys, time
from omnigraph_ops.cli import main
from omnigraph_ops.stages.optimize import table_run

real = table_run.tasks_under
def slow(*arguments):
    os.write(1, b"slow\\n")  # at once: two tables may be planned together
    time.sleep(120)
    return real(*arguments)
table_run.tasks_under = slow
sys.argv = ["omnigraph-ops", *sys.argv[1:]]
sys.exit(main())
"""
_SLOW_REMOVAL = """
import os, sys, time
from omnigraph_ops.cli import main
from omnigraph_ops.stages.cleanup import apply

def slow(*_, **_named):
    os.write(1, b"removing\\n")
    time.sleep(120)
apply.remove_versions = slow
sys.argv = ["omnigraph-ops", *sys.argv[1:]]
sys.exit(main())
"""
_WAITING = """
import os, sys
from omnigraph_ops.coordination import lease
from omnigraph_ops.cli import main
from omnigraph_ops.outcomes.runs import RecordedRun

waits, stops = lease._Turns.wait, RecordedRun.stop

def telling(turns, pause):
    if not getattr(lease, "told", False):
        lease.told = True
        os.write(1, b"waits\\n")  # at once: other threads wait, too
    waits(turns, pause)

def stopping(run):
    stops(run)
    os.write(1, b"stops\\n")

lease._Turns.wait, RecordedRun.stop = telling, stopping
sys.argv = ["omnigraph-ops", *sys.argv[1:]]
sys.exit(main())
"""
ONE_BY_ONE = {"OMNIGRAPH_MAINTENANCE_CONCURRENCY": "1"}
_WHILE_IMPORTING = """
import os, signal, sys

module, number = sys.argv.pop(1), signal.Signals[sys.argv.pop(1)]

class Sender:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Sender())
from omnigraph_ops.cli import main
sys.exit(main())
"""


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    # A test that runs in the background of a shell ignores interrupts, and so would its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(stream: IO[str] | None) -> str:
    """The next line of a child, and no more: what a buffer takes beyond it, `communicate` would not find. Reads."""
    assert stream is not None
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(stream.fileno(), 1)):
        line += byte
    return line.decode()


def press(process: subprocess.Popen[str]) -> str:
    """Interrupt a run for the first time; what it says until it has heard that, for two at once would count as one."""
    process.send_signal(signal.SIGINT)
    said = line = next_line(process.stderr)
    while line and not line.startswith("Finishing "):
        line = next_line(process.stderr)
        said += line
    return said


def begun(graph: Graph) -> None:
    """Wait until a run has begun a unit. Reads."""
    deadline = time.monotonic() + 120
    while not list(Path(graph.uri, RUNS_DIR).glob("*/000000.json")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stopped_at(graph: Graph, words: tuple[str, ...], scratch: Path, *signals: int, moment: int = 30) -> Ended:
    return run_command(
        (words[0], graph.uri, *words[1:]), Path(graph.uri), scratch, kill=Kill(moment=moment, signals=signals)
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_first_signal_ends_the_run_at_its_next_table_with_a_report(
    demo_graph: DemoGraph, tmp_path: Path, number: int, code: int
) -> None:
    graph = demo_graph(**SMALL)
    before = {e.table_key: e.version for e in graph.state().entries}
    words = ("cleanup", graph.uri, "--keep", "1", "--confirm")
    kill = Kill(moment=14, signals=(number,))
    ended = run_command(words, Path(graph.uri), tmp_path / "run", kill=kill, environment=ONE_BY_ONE)
    assert (ended.code, "Traceback" in ended.err) == (code, False), ended.err
    (said,) = [line for line in ended.err.splitlines() if line.startswith("Finishing cleanup of ")]
    assert "then stopping. Press Ctrl-C again to abort at once" in said
    assert "`omnigraph-ops recover` and the same command finish what that leaves" in said
    assert ended.out.startswith("cleanup "), "the report is printed"
    assert "Interrupted; what was done is recorded; run the same command again for the rest" in ended.err
    (run,) = history.read_runs(graph)
    assert (run.outcome, run.errors) == (RunOutcome.INTERRUPTED, (f"interrupted by {signal.Signals(number).name}",))
    assert 0 < run.counts.succeeded < len(before)
    assert (open_journals(graph.storage), is_free(graph.storage)) == ((), True)


def test_a_terminal_that_hangs_up_twice_does_not_abort_the_run(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    kill = Kill(moment=14, signals=(signal.SIGHUP, signal.SIGHUP))
    words = ("cleanup", graph.uri, "--keep", "1", "--confirm")
    ended = run_command(words, Path(graph.uri), tmp_path / "run", kill=kill, environment=ONE_BY_ONE)
    assert (ended.code, ended.out.startswith("cleanup ")) == (129, True), ended.err
    assert history.read_runs(graph)[0].errors == ("interrupted by SIGHUP",)


def test_an_optimize_that_is_stopped_says_which_tables_it_left(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    kill = Kill(moment=5, signals=(signal.SIGINT,))
    words = ("optimize", graph.uri, "--quiet")
    ended = run_command(words, Path(graph.uri), tmp_path / "run", kill=kill, environment=ONE_BY_ONE)
    assert ended.code == 130, ended.err
    assert "the run was stopped first" in ended.out
    (listed,) = history.read_runs(graph)
    run = history.read_run(graph, listed.run_id)
    assert run is not None
    assert {t.reason for t in run.tables if not t.stages} == {"interrupted"}
    # None, if the first one was waiting for its window.
    assert len([t for t in run.tables if t.stages]) <= 1


def test_work_that_waits_stops_at_once(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    with (
        committer_turn(graph, "somebody else"),
        running("-m", "omnigraph_ops", "optimize", graph.uri, "--quiet") as process,
    ):
        begun(graph)
        time.sleep(1)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        took = time.monotonic() - began
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert took < graph.settings.lease_wait_seconds / 2
    assert "the run was stopped first" in out


def test_a_cleanup_that_is_interrupted_while_it_waits_removes_nothing(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    stored = {e.path: stored_versions(graph.storage, e.path) for e in graph.state().entries}
    with running("-c", _WAITING, "cleanup", graph.uri, "--keep", "1", "--confirm") as process:
        with committer_turn(graph, "somebody else"):
            assert next_line(process.stdout) == "waits\n"
            time.sleep(0.5)  # until the other threads wait, too
            process.send_signal(signal.SIGINT)
            assert next_line(process.stdout) == "stops\n"
            # The main thread ends; the threads that wait could have the lease before the process is gone.
        out, err = process.communicate(timeout=120)
    assert (process.returncode, "removed" in out, "Traceback" in err) == (130, False, False), err
    assert {path: stored_versions(graph.storage, path) for path in stored} == stored


@pytest.mark.parametrize("presses", [2, 3])
def test_more_signals_abort_work_that_nothing_can_stop(demo_graph: DemoGraph, presses: int) -> None:
    graph = demo_graph(**SMALL)
    with running("-c", _SLOW, "optimize", graph.uri) as process:
        assert next_line(process.stdout) == "slow\n"
        said = press(process)
        for _ in range(presses - 1):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        _, err = process.communicate(timeout=60)
    err = said + err
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert err.count("Finishing ") == 1
    (record,) = settle(open_graph(graph.uri))
    assert (record.outcome, record.counts.succeeded) == (RunOutcome.INTERRUPTED, 0)


def test_what_is_still_removing_after_an_abort_keeps_the_lease_to_its_end(demo_graph: DemoGraph, cli: Cli) -> None:
    graph = demo_graph(**SMALL)
    with running("-c", _SLOW_REMOVAL, "cleanup", graph.uri, "--keep", "1", "--confirm") as process:
        assert next_line(process.stdout) == "removing\n"
        said = press(process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=100)
    assert (process.returncode, "Traceback" in said + err) == (130, False), said + err
    left = read_lease(graph.storage)
    assert left is not None and not left.released
    # Its process is gone, so nobody waits for it.
    assert cli("cleanup --keep 1 --confirm", graph.uri).code == 0


@pytest.mark.night("combinations")
@pytest.mark.parametrize("module", ["omnigraph_ops.cli.parsing", "lance", "omnigraph_ops.cli.recording"])
@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_modules_are_imported_is_one_sentence(
    demo_graph: DemoGraph, module: str, number: str, code: int
) -> None:
    graph = demo_graph(**SMALL)
    with running("-c", _WHILE_IMPORTING, module, number, "cleanup", graph.uri, "--keep", "3", "--confirm") as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (code, "", "Interrupted; nothing was done\n")


def test_before_anything_began_a_signal_ends_it_there(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    when_asked(monkeypatch, Storage, "list", raising(KeyboardInterrupt()), about=f"^{RECOVERY_DIR}$")
    ended = cli("cleanup --keep 1 --confirm", graph.uri)
    assert (ended.code, ended.err.splitlines()[-1]) == (130, "Interrupted; the graph was not changed")
    assert history.read_runs(graph)[0].outcome is RunOutcome.INTERRUPTED


def test_an_interrupted_command_about_no_graph_sends_nobody_to_check(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    when_asked(monkeypatch, lance, "write_dataset", raising(KeyboardInterrupt()))
    ended = cli("calibrate", "--job", "copy")
    assert (ended.code, ended.err.splitlines()[-1]) == (130, "Interrupted; no graph that was there before was changed")


@pytest.mark.parametrize("words", ["plan", "check", "cleanup --keep 1", "repair", "orphans", "orphans --quarantined"])
def test_an_interrupted_look_at_a_graph_changed_nothing(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    graph = demo_graph(**SMALL)
    when_asked(monkeypatch, Storage, "exists", raising(KeyboardInterrupt()))
    ended = cli(words, graph.uri)
    assert (ended.code, ended.err.splitlines()[-1]) == (130, "Interrupted; the graph was not changed")


def test_what_waits_for_a_lease_ends_when_the_run_stops(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    run = RecordedRun(graph, header(), Snapshot())
    waiting = open_graph(graph.uri).with_run(run)
    threading.Timer(0.3, run.stop).start()
    with committer_turn(graph, "somebody else"), pytest.raises(Stopped), committer_turn(waiting, "me"):
        pass
    with pytest.raises(Stopped):
        run.begins(Unit(name="1", stage="optimize"))
    assert open_journals(graph.storage) == ()


def test_a_run_that_nobody_watches_never_stops() -> None:
    run = Run()
    run.check()
    run.pause(0.0)
    assert not run.stopping


def test_whoever_aborts_does_not_wait_for_every_thread() -> None:
    free = threading.Event()

    def work(number: int) -> None:
        if number:
            raise KeyboardInterrupt
        free.wait(60)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_parallel(work, (0, 1), workers=2)
    assert time.monotonic() - began < 30
    free.set()


def test_a_signal_that_another_thread_gets_is_heard_while_that_thread_works() -> None:
    heard = threading.Event()

    def work(_: int) -> bool:
        time.sleep(0.5)  # until the main thread waits
        # As the system does now and then: the main thread is not woken by it.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        return heard.wait(20)

    before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())
    try:
        assert in_parallel(work, (0,), workers=1) == [True]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_text_index_that_is_being_written_does_not_hear_the_signals() -> None:
    process = process_of(home_of(None) / text_release(6))
    assert os.getpgid(process._child.pid) != os.getpgid(0)
    process._child.terminate()
    time.sleep(0.5)
    assert process.alive, "SIGTERM to all processes of a service is for the parent, too"
