"""A load of the real engine that is preparing its rows, before anything names them, loses nothing to maintenance."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.errors import ApprovalMissing
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from tests.interop.engine import Engine, engine, people

pytestmark = pytest.mark.interop
PEOPLE = 3000


@contextlib.contextmanager
def stopped_while_it_stages(subject: Engine, graph: Path, branch: str) -> Iterator[subprocess.Popen[str]]:
    """A load with its first data file on disk, stopped; it goes on after the block. Starts a process."""
    rows = graph.with_suffix(".jsonl")
    lines = [{"type": "Person", "data": {"name": f"q{n}", "bio": os.urandom(4000).hex()}} for n in range(PEOPLE)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = set(graph.glob("nodes/*/**/data/*"))
    words = ("load", "--data", str(rows), "--mode", "append", "--branch", branch, str(graph))
    with subprocess.Popen(
        [subject.binary, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as load:
        while load.poll() is None and not set(graph.glob("nodes/*/**/data/*")) - before:
            time.sleep(0.001)
        load.send_signal(signal.SIGSTOP)
        try:
            if load.poll() is not None or list(graph.glob("__recovery/*.json")):
                pytest.skip("the load was past its preparation before it could be stopped")
            yield load
        finally:
            load.send_signal(signal.SIGCONT)
        said, _ = load.communicate(timeout=300)
        assert load.returncode == 0, said


def cleaned(graph: Graph) -> None:
    """Everything that cleanup takes while others write. Destroys."""
    report = cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1)))
    assert [table.error for table in report.tables if table.error] == []


# On a branch of its own 0.9.0 prepares nothing before its sidecar is there.
@pytest.mark.parametrize(("stamp", "branch"), [(3, "main"), (3, "feature"), (6, "main")])
def test_its_rows_are_there_afterwards(tmp_path: Path, stamp: int, branch: str) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    subject.init(graph)
    for start in (0, 10):
        subject.load(graph, people(start, 10), mode="merge")
    subject.run("branch", "create", "--uri", str(graph), "feature")
    before = len(subject.export(graph, branch))
    opened = open_graph(str(graph), Settings())
    with stopped_while_it_stages(subject, graph, branch):
        cleaned(opened)
        with fenced(opened) as behind_fence:
            cleaned(behind_fence)
            with pytest.raises(ApprovalMissing):
                plan_orphans(behind_fence, older_than_seconds=0)
    assert len(subject.export(graph, branch)) == before + PEOPLE
    subject.load(graph, people(50, 2), mode="merge", branch=branch)
    assert check(open_graph(str(graph))).status is CheckStatus.CLEAN
