"""Real processes, killed by the kernel at moments that nobody chose."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash.conftest import build_stage
from tests.crash.harness_scenarios import SCENARIOS
from tests.crash.harness_state import check_converged, check_readable, converge

pytestmark = pytest.mark.crash
_ROUNDS = 4
_RUN = """
import sys
from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.config.settings import Settings
graph = open_graph(sys.argv[1], Settings(small_table_bytes=int(sys.argv[2]), lease_ttl_seconds=0.2))
print("ready", flush=True)
optimize_all(graph)
"""


@pytest.mark.night("combinations")
@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("small_table_bytes", [0, 1 << 26])
def test_a_killed_process_is_finished_by_the_next_run(tmp_path: Path, stamp: int, small_table_bytes: int) -> None:
    scenario = next(s for s in SCENARIOS if s.name == "small")
    built = build_stage(tmp_path, scenario, stamp)
    chance = random.Random(f"{stamp}:{small_table_bytes}")
    for _ in range(_ROUNDS):
        built.reset()
        _run_and_kill(built.root, small_table_bytes, after=chance.uniform(0.0, 0.6))
        check_readable(built.root, built.rows)
        time.sleep(0.3)
        converge(built.root)
        check_readable(built.root, built.rows)
        check_converged(built.root)


def _run_and_kill(root: str, small_table_bytes: int, *, after: float) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", _RUN, root, str(small_table_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
