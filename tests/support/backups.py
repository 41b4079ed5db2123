"""Backups for tests: a process that is killed at a chosen copy, and restored graphs to look at."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.stages.backup.restore import restore_backup

_KILLED = """
import os, signal, sys, threading
from omnigraph_ops.stages.backup import restore, take, transfer
from omnigraph_ops.graph import open_graph
from omnigraph_ops.config.settings import Settings

verb, source, destination, point, number = sys.argv[1:6]
count, lock = 0, threading.Lock()

def killing(real):
    def call(*arguments, **named):
        global count
        with lock:
            count += 1
            if count == int(number):
                os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    return call

if point == "tidy":
    take._Attempt._drop_journal = killing(take._Attempt._drop_journal)
elif point == "fsync":
    os.fsync = killing(os.fsync)
else:
    for module in (restore, take, transfer):
        if hasattr(module, point):
            setattr(module, point, killing(getattr(module, point)))
if verb == "restore":
    restore.restore_backup(source, destination, settings=Settings(concurrency=2))
else:
    take.backup_graph(open_graph(source, Settings(concurrency=2)), destination)
"""


def killed_backup(graph: str, destination: Path | str, point: str, number: int = 1) -> None:
    """Back up in a process of its own, which is killed before the so-manyeth call of `point`. Writes."""
    _killed("backup", graph, str(destination), point, number)


def killed_restore(backup: str, place: str, point: str, number: int = 1) -> None:
    """Restore in a process of its own, which is killed before the so-manyeth call of `point`. Writes."""
    _killed("restore", backup, place, point, number)


def _killed(verb: str, source: str, destination: str, point: str, number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, verb, source, destination, point, str(number)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def restored(backup: str, place: Path) -> Graph:
    """The graph of a backup at a new place, proven by the restore itself. Writes."""
    report = restore_backup(backup, str(place), settings=Settings())
    assert report.problems == ()
    return open_graph(str(place), Settings())


def flip(backup: str, file: str, *, shared: bool = False) -> None:
    """Change one bit of a file of a backup, or change it back; `shared`: in all backups that link it. Writes."""
    path = Path(backup, "files", file)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if not shared:
        path.unlink()
    path.write_bytes(data)


def hide(graph: Graph) -> Path:
    """Move a graph away: whatever still reads its files fails from here on. Writes."""
    hidden = Path(graph.uri).with_suffix(".hidden")
    shutil.move(graph.uri, hidden)
    return hidden
