"""Whatever a run waits for: the first Ctrl-C ends the waiting, not the time for which it would have waited."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination import pace
from omnigraph_ops.coordination.fence import current_lock, fenced
from omnigraph_ops.coordination.lease import LeasePlace, committer_lease
from omnigraph_ops.coordination.state import THROTTLE_DIR
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.sidecars import sidecar_path
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.outcomes import history
from omnigraph_ops.outcomes.results import Snapshot
from omnigraph_ops.outcomes.runs import RecordedRun
from omnigraph_ops.progress import Stopped
from tests.conftest import DemoGraph
from tests.support.history import header

pytestmark = pytest.mark.slow

SMALL = {"loads": 3, "rows": 12, "node_types": 1}
_HOLDS_A_LEASE = frozenset({"coordination/lease.py", "coordination/pace.py", "progress.py", "outcomes/runs.py"})
"""Where waiting is given to the caller, or is what the caller gives."""
_SHORT = {
    "stages/freeze/observe.py": "eight looks, a tenth of a second apart",
    "coordination/graph_view.py": "four looks, a fifth of a second apart",
    "coordination/guards.py": "two seconds at most, in a window, for writers that are arming",
    "stages/freeze/files.py": "three looks, a fifth of a second apart",
    "lance/history_table.py": "the record of the run, at its end",
    "stages/expire_rows/branches.py": "five tries to delete a branch, half a second apart, at the end of an attempt",
    "graph/schema.py": "twelve looks, three tenths of a second apart, before anything is done",
}


@contextlib.contextmanager
def _ledger_far_ahead(graph: Graph) -> Iterator[None]:
    ahead = pace.Ledger(next_start=time.time() + 3000)
    graph.storage.write(f"{THROTTLE_DIR}/ledger.json", serde.dumps(ahead).encode())
    yield


def _slot_taken(graph: Graph) -> AbstractContextManager[object]:
    place = LeasePlace(path=f"{THROTTLE_DIR}/slot-0", name="slot 0")
    return committer_lease(graph.storage, purpose="another rewrite", ttl_seconds=600, wait_seconds=0, place=place)


def _locked(graph: Graph) -> AbstractContextManager[object]:
    place = LeasePlace(path=f"{THROTTLE_DIR}/lock", name="the lock")
    return committer_lease(graph.storage, purpose="another booking", ttl_seconds=600, wait_seconds=0, place=place)


@pytest.mark.night("combinations")
@pytest.mark.parametrize(
    ("ceiling", "busy"),
    [
        # Ten seconds' worth is more than the table: less of it would leave nothing to rewrite.
        ({"MAX_REWRITE_BYTES_PER_SECOND": "1000000"}, _ledger_far_ahead),
        ({"MAX_REWRITE_BYTES_PER_SECOND": "1000000"}, _locked),
        ({"MAX_CONCURRENT_REWRITES": "1"}, _slot_taken),
    ],
)
def test_waiting_in_the_throttle_ends_with_the_first_signal(
    demo_graph: DemoGraph, ceiling: dict[str, str], busy: Callable[[Graph], AbstractContextManager[object]]
) -> None:
    graph = demo_graph(**SMALL)
    options = {f"OMNIGRAPH_OPS_{name}": value for name, value in ceiling.items()}
    options["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-m", "omnigraph_ops", "optimize", graph.uri, "--table", "node:Person"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with busy(graph):
        process = subprocess.Popen(
            command, env=os.environ | options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        signal.signal(signal.SIGINT, before)
        try:
            _until(lambda: any(Path(graph.uri, "__maintenance/rewrites").glob("*/*/plan.json")))
            time.sleep(1)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=300)  # the wait would last for 600
        finally:
            process.kill()
            process.communicate()
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert out.startswith("optimize ")
    assert history.read_runs(graph)[0].outcome is RunOutcome.INTERRUPTED


def test_waiting_for_writers_behind_the_fence_ends_with_the_first_signal(demo_graph: DemoGraph) -> None:
    graph = open_graph(demo_graph(**SMALL).uri)
    run = RecordedRun(graph, header(), Snapshot())
    graph.storage.write(sidecar_path("01J00000000000000000000000"), b"{}")
    threading.Timer(0.3, run.stop).start()
    began = time.monotonic()
    with pytest.raises(Stopped), fenced(graph.with_run(run), drain_seconds=600):
        pass
    assert time.monotonic() - began < 300
    assert current_lock(graph) is None


def test_nothing_else_waits_without_asking() -> None:
    """A new wait asks its run, or is named above with what bounds it."""
    package = Path(pace.__file__).parents[1]
    texts = {str(p.relative_to(package)): p.read_text(encoding="utf-8") for p in package.rglob("*.py")}
    # tenacity sleeps by itself where it is not told how.
    by_tenacity = {name for name, text in texts.items() if text.count("Retrying(") > text.count("sleep=")}
    sleeping = by_tenacity | {name for name, text in texts.items() if re.search(r"time\.sleep\b", text)}
    assert sleeping == _HOLDS_A_LEASE | _SHORT.keys()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
