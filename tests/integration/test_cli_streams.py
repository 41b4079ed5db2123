"""What stdout or stderr does not take changes nothing of what was done; only stdout changes the exit code."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from omnigraph_ops.cli.call import require_consent
from omnigraph_ops.cli.process import lossy_stderr
from omnigraph_ops.coordination.holds import freezes
from omnigraph_ops.errors import ApprovalMissing
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.outcomes.run_journal import open_journals
from tests.conftest import DemoGraph

pytestmark = pytest.mark.slow

SMALL = {"loads": 3, "rows": 12, "node_types": 1}


@contextmanager
def _full() -> Iterator[int]:
    stream = os.open("/dev/full", os.O_WRONLY)
    yield stream
    os.close(stream)


@contextmanager
def _broken_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


STREAMS = {"full": (_full, "No space left on device"), "broken pipe": (_broken_pipe, "Broken pipe")}


def run(graph: Graph, stdout: int, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "omnigraph_ops", words[0], graph.uri, *words[1:], "--quiet"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | variables
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment, check=False)


@pytest.mark.parametrize(("stream", "why"), STREAMS.values(), ids=STREAMS)
def test_a_report_that_cannot_be_printed_makes_no_failed_run(
    demo_graph: DemoGraph, stream: Callable[[], AbstractContextManager[int]], why: str
) -> None:
    graph = demo_graph(**SMALL)
    with stream() as stdout:
        done = run(graph, stdout, "cleanup", "--keep", "3", "--confirm")
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"Error: the report could not be printed: {why}; what was done stands")
    (record,) = history.read_runs(graph)
    assert (record.outcome, record.work.versions_removed > 0) == (RunOutcome.SUCCEEDED, True)
    assert [entry.event for entry in audit_log.log_of(graph.storage, "").entries] == [
        AuditEvent.STARTED,
        AuditEvent.APPLIED,
    ]
    assert open_journals(graph.storage) == ()


@pytest.mark.parametrize(("stream", "why"), STREAMS.values(), ids=STREAMS)
def test_a_freeze_that_cannot_be_printed_is_no_change_that_was_not_made(
    demo_graph: DemoGraph, stream: Callable[[], AbstractContextManager[int]], why: str
) -> None:
    graph = demo_graph(**SMALL)
    with stream() as stdout:
        done = run(graph, stdout, "freeze")
    assert f"could not be printed: {why}; what was done stands; `omnigraph-ops holds`" in done.stderr
    assert len(freezes(graph.storage)) == 1


def test_a_stdout_whose_encoding_lacks_a_character_shows_it_escaped(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    moved = shutil.move(graph.uri, str(tmp_path / "größe"))
    done = run(open_graph(moved), subprocess.PIPE, "cleanup", "--keep", "3", "--confirm", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\u00f6\\u00dfe (keep 3 versions) \\u2014 removed" in done.stdout
    assert history.read_runs(open_graph(moved))[0].outcome is RunOutcome.SUCCEEDED
    listed = run(open_graph(moved), subprocess.PIPE, "check", "--json", PYTHONIOENCODING="ascii")
    assert json.loads(listed.stdout)["uri"] == moved


def test_a_report_in_the_locale_c_is_not_lost(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run(graph, subprocess.PIPE, "cleanup", "--keep", "3", "--confirm", **locale)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{graph.uri} (keep 3 versions) \\u2014 removed" in done.stdout
    assert history.read_runs(graph)[0].outcome is RunOutcome.SUCCEEDED


@pytest.mark.night("all but one")
@pytest.mark.parametrize("words", [("check",), ("history",), ("history", "--format", "json")])
def test_a_command_that_reads_ends_without_a_word_for_a_closed_pipe(
    demo_graph: DemoGraph, words: tuple[str, ...]
) -> None:
    with _broken_pipe() as stdout:
        done = run(demo_graph(**SMALL), stdout, *words)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.night("all but one")
@pytest.mark.parametrize("how", [*STREAMS, "closed"])
def test_a_stderr_that_takes_nothing_changes_no_exit_code(demo_graph: DemoGraph, how: str) -> None:
    graph = demo_graph(**SMALL)

    def run_without(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "omnigraph_ops", *words]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        if how == "closed":
            command, stream = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command], nullcontext(subprocess.DEVNULL)
        else:
            stream = STREAMS[how][0]()
        with stream as stderr:
            return subprocess.run(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment, check=False
            )

    done = run_without("cleanup", graph.uri, "--keep", "1", "--confirm", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["tables"], "nothing else is on stdout"
    assert history.read_runs(graph)[0].outcome is RunOutcome.SUCCEEDED
    for words, code in ((("check", "/nowhere/at/all"), 1), (("cleanup", graph.uri, "--keep", "many"), 2)):
        failed = run_without(*words)
        assert (failed.returncode, failed.stdout) == (code, "")


def test_a_question_that_nobody_can_see_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdin", Keyboard("yes\n"))
    monkeypatch.setattr(sys, "stderr", Full())
    asked = argparse.Namespace(verb="cleanup", options={}, json=False)
    with lossy_stderr(own_process=False), pytest.raises(ApprovalMissing, match="cannot be shown on stderr"):
        require_consent(asked, "s3://bucket/kb")


@pytest.mark.night("combinations")
@pytest.mark.parametrize("words", [("settings",), ("settings", "--json"), ("--help",), ("--version",)], ids=" ".join)
@pytest.mark.parametrize(("stream", "why"), [(">&-", "stdout is closed"), (">/dev/full", "No space left on device")])
def test_what_nobody_can_read_is_no_success(words: tuple[str, ...], stream: str, why: str) -> None:
    command = f'"{sys.executable}" -m omnigraph_ops {" ".join(words)} {stream}'
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    assert "nothing was" in done.stderr
