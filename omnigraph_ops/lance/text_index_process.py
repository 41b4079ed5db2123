"""The parent's side of `text_index_child.py`: one process per older pylance release, started once, asked many times."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omnigraph_ops.lance.errors import LanceFailure, classify
from omnigraph_ops.progress import SILENT, About, Progress
from omnigraph_ops.storage.faults import reason_of

_CHILD = Path(__file__).with_name("text_index_child.py")
_START_SECONDS = 300.0
_SAY_SECONDS = 60.0
_LONGEST_SECONDS = 86_400.0
_processes: dict[tuple[int, Path], TextIndexProcess] = {}
_starting = threading.Lock()


class TextIndexProcess:
    """One running release; requests of several threads run in it at once."""

    def __init__(self, folder: Path) -> None:
        self.release = folder.name
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {0: queue.SimpleQueue()}
        self._last, self._turn = 0, threading.Lock()
        self._is_ready, self._readiness = False, threading.Lock()
        # -P: the folder of the script has modules with names of others. Credentials go by standard input only.
        paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        self._child = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
            text=True,
            encoding="utf-8",
            # Ctrl-C in a terminal is for the parent, which lets an index that is being written come to its end.
            process_group=0,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def started(self) -> None:
        """Wait for the first word of the child, unless it came before; raises `LanceFailure`. Reads."""
        with self._readiness:
            if self._is_ready:
                return
            said = self._wait(0, _START_SECONDS, SILENT) if 0 in self._answers else {}
            self._is_ready = said.get("release") == self.release
        if not self._is_ready:
            self.stop()
            raise LanceFailure(
                f"the text indexer {self.release} does not start ({said.get('error') or said.get('release')}); "
                "no row was changed; run `omnigraph-ops install-text-indexer --again`"
            )

    def ask(self, action: str, request: Mapping[str, object], progress: Progress) -> int:
        """Let the child do one request; the version of the dataset afterwards. Writes.

        Raises:
            LanceFailure: or one of its kinds, from the text that the child reports.
        """
        with self._turn:
            self._last += 1
            number = self._last
            self._answers[number] = queue.SimpleQueue()
            assert self._child.stdin is not None
            try:
                self._child.stdin.write(json.dumps({"id": number, "environment": _store_variables(), **request}) + "\n")
                self._child.stdin.flush()
            except OSError:
                self._answers[number].put({"error": self._ended()})
        said = self._wait(number, _LONGEST_SECONDS, About(progress, action))
        if "error" in said:
            failure = LanceFailure(str(said["error"]))
            raise classify(failure)(f"cannot {action}: {reason_of(failure)}")
        return int(said["version"])

    def stop(self) -> None:
        """End the child. Kills it."""
        self._child.kill()
        self._child.wait()

    def _wait(self, number: int, seconds: float, progress: Progress) -> dict[str, Any]:
        waited = 0.0
        try:
            while waited < seconds:
                try:
                    return self._answers[number].get(timeout=_SAY_SECONDS)
                except queue.Empty:
                    waited += _SAY_SECONDS
                    progress(f"at work for {waited:.0f} s")
            self.stop()
            return {"error": f"the text indexer {self.release} gave no answer for {seconds:.0f} s and was stopped"}
        finally:
            del self._answers[number]

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            said = json.loads(line)
            waiting = self._answers.get(said["id"])
            if waiting is not None:
                waiting.put(said)
        self._child.wait()
        for waiting in list(self._answers.values()):
            waiting.put({"error": self._ended()})

    def _ended(self) -> str:
        return f"the text indexer {self.release} ended with exit code {self._child.poll()}"


def _store_variables() -> dict[str, str]:
    """What the environment says about stores now: it may have changed since the child was started. Reads it."""
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def begin(folder: Path) -> TextIndexProcess:
    """The process of the release in a folder, perhaps still on its way up: its start takes a second. Starts it."""
    # A forked process must not share the pipes of its parent.
    key = (os.getpid(), folder)
    with _starting:
        found = _processes.get(key)
        if found is None or not found.alive:
            found = _processes[key] = TextIndexProcess(folder)
        return found


def process_of(folder: Path) -> TextIndexProcess:
    """The running process of the release in a folder, started when there is none; raises `LanceFailure`. Starts it."""
    found = begin(folder)
    found.started()
    return found
