"""Files of a rewrite in one window have no journal: what keeps `orphans` from taking them before they are committed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.environment import this_machine
from omnigraph_ops.coordination.holds import active_holds, write_hold
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.support import plain
from tests.support.edges import when_rewritten
from tests.support.leases import dead_pid
from tests.support.orphans import PERSON, age
from tests.support.rows import tree_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
IMPATIENT = Settings(lease_wait_seconds=0)
AHEAD = """
import sys, time
real, real_ns = time.time, time.time_ns
time.time = lambda: real() + 8 * 86_400
time.time_ns = lambda: real_ns() + 8 * 86_400 * 10**9
from omnigraph_ops.cli import main
sys.exit(main(sys.argv[1:]))
"""
Opened = Callable[[], Graph]


@pytest.fixture(params=["stamp3", "stamp6", "plain"])
def opened(request: pytest.FixtureRequest, demo_graph: DemoGraph, tmp_path: Path) -> Opened:
    """Opens a graph, or a dataset without one, whose one table has something to rewrite."""
    if request.param == "plain":
        plain.indexed(tmp_path / "mine.lance", stable=True)
        return lambda: open_graph(str(tmp_path / "mine.lance"), IMPATIENT)
    graph = demo_graph(stamp=int(request.param[-1]), node_types=1, loads=4, rows=12)
    return lambda: open_graph(graph.uri, IMPATIENT)


def table_of(graph: Graph) -> str:
    return PERSON if graph.format.publishes else "table:mine"


def data_files(graph: Graph) -> set[str]:
    return {path for path in tree_of(graph.uri) if "data/" in path and path.endswith(".lance")}


def stopped_in_the_middle(monkeypatch: pytest.MonkeyPatch, beside: Callable[[], None]) -> None:
    """The next rewrite stops when its files are written and not committed, and goes on after `beside`."""
    when_rewritten(monkeypatch, beside, times=None, after=True)


def forgotten(graph: Graph) -> None:
    """Let its holds look as those of a process that is gone. Writes."""
    for hold in active_holds(graph.storage):
        write_hold(graph.storage, replace(hold, pid=dead_pid(), machine=this_machine()))


def removed_beside(graph: Graph) -> int:
    """A run of orphans for which everything that is there is old. Destroys."""
    age(graph.uri)
    return apply_orphans(graph, plan_orphans(graph)).files_removed


def test_orphans_beside_it_takes_nothing_however_old_the_files_look(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []

    def beside() -> None:
        seen.append(data_files(opened()))
        removed_beside(opened())
        assert data_files(opened()) == seen[-1]

    stopped_in_the_middle(monkeypatch, beside)
    before = data_files(opened())
    assert optimize_table(opened(), table_of(opened())).committed
    assert seen[0] > before, "the new files were there, and nothing referred to them"
    assert check(opened()).status is CheckStatus.CLEAN


@pytest.mark.night("all but one")
def test_orphans_of_a_host_whose_clock_is_eight_days_ahead_takes_nothing(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[int, str]] = []

    def beside() -> None:
        files = data_files(opened())
        ran = subprocess.run(
            [sys.executable, "-c", AHEAD, "orphans", opened().uri, "--older-than", "1h", "--allow-young", "--confirm"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMNIGRAPH_OPS_LEASE_WAIT_SECONDS": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        said.append((ran.returncode, ran.stderr))
        assert data_files(opened()) == files

    stopped_in_the_middle(monkeypatch, beside)
    assert optimize_table(opened(), table_of(opened())).committed
    code, text = said[0]
    assert (code, "nothing was deleted" in text) == (1, True)
    assert check(opened()).status is CheckStatus.CLEAN


def test_a_rewrite_that_was_stopped_for_long_commits_nothing_that_was_removed(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused for days, its hold is over and its files are old: they may go, and it must notice when it goes on."""
    removed: list[int] = []

    def beside() -> None:
        forgotten(opened())
        recover(opened(), grace_seconds=0)
        removed.append(removed_beside(opened()))

    rows = opened().open_pinned(opened().state().entries[0]).count_rows()
    before = {e.table_key: e.version for e in opened().state().entries}
    stopped_in_the_middle(monkeypatch, beside)
    with pytest.raises(StorageError, match="is not there as it was written; nothing was committed"):
        optimize_table(opened(), table_of(opened()))
    assert removed[0] > 0
    assert check(opened()).status is CheckStatus.CLEAN
    for entry in opened().state().entries:
        pinned = opened().open_pinned(entry)
        assert pinned.to_table().num_rows == pinned.count_rows()
    assert opened().open_pinned(opened().state().entries[0]).count_rows() == rows
    assert before[table_of(opened())] <= opened().state().get(table_of(opened())).version  # type: ignore[union-attr]
