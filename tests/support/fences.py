"""Fences of runs that were killed behind them."""

from __future__ import annotations

import subprocess
import sys

_KILLED = """
import sys, time
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.graph import open_graph
with fenced(open_graph(sys.argv[1]), at_most_seconds=600):
    print("fenced", flush=True)
    time.sleep(600)
"""


def killed_behind_its_fence(root: str) -> None:
    """Another process raises the fence of the graph at `root` and gets SIGKILL. Writes."""
    process = subprocess.Popen([sys.executable, "-c", _KILLED, root], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "fenced\n"
    process.kill()
    process.wait()
