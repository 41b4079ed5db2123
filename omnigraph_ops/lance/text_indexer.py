"""The older pylance releases that write full-text indexes: which, where they are installed, one process each.

A full-text index holds stemmed words. Lance 9 changed the stop words and Lance 11 the stemmer, so an index has to be
written by a release that treats words as the engine that reads it does; see docs/adr/0012. Each release is installed
into a folder of its own, without its dependencies: those of the main installation serve it as well.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omnigraph_ops.errors import OpsError, reason_of
from omnigraph_ops.lance.gateway import LanceFailure, classify
from omnigraph_ops.progress import SILENT, About, Progress

COMMAND = "omnigraph-ops install-text-indexer"
RELEASES: dict[str, tuple[str, ...]] = {
    "8.0.1": (
        "173dbd9646b736c2aaa575595c754ff80e903c43e82348a0be1787f7c393554d",
        "4399da6aa9705f45a8996cae6aa98fca1dbb8f064c232ca619479c1717cd1b9a",
        "871f7a49803a4d461d946cf2aee0ababc5d405e9342789be155c0b45a3e8b962",
        "a5437153f183ea41ae4a077f73c14907252c8835c54a3037a397622cb5a12d22",
        "ba819e599b97a83f965eb6a58803eee2f5bc7b175e529c7a73d8bd44c66b9fe8",
        "c7a2f246889683d0942b8b04d7d080e3d63c3ac4aa26485388d2e53863ad3c75",
    ),
    "10.0.0": (
        "018efe7d437d326b9049c1223458bd955e85e48509b4b0bbf8b2d3d94075dbff",
        "254bad5d765c14db6c4eddd5323133dee3c76ff6d40c4777afe0b0e91d4c04d2",
        "489b944827c0271e16a62b4006f8c75acc3bd7fbc381f35388a2afaaae38d438",
        "9f0c089e30389d9b7765a4c16f3d9325b05ed4fbf6cc2bbc9418292983472e54",
        "9fecf46e6835dc64b2d71767d5eab4f73787543a852432e9ba8ecf8527b3cdab",
        "d4bba56ae829202b7e9cdc82c92c00a4b52f03e679dc3edfad1db09d1285be2e",
    ),
}
"""Releases with the SHA-256 of their wheels for every platform."""
_TIMEOUT_SECONDS = 1800.0


def home_of(configured: str | None) -> Path:
    """The folder that holds the releases: the configured one, else one below this interpreter's prefix. Pure."""
    return Path(configured) if configured else Path(sys.prefix, "share", "omnigraph-ops", "text-indexers")


def is_installed(home: Path, release: str) -> bool:
    """Whether a release can be used from there. Reads."""
    return (home / release / "lance" / "__init__.py").is_file() and (
        home / release / f"pylance-{release}.dist-info" / "RECORD"
    ).is_file()


def install(home: Path, *, progress: Progress = SILENT, again: bool = False) -> tuple[str, ...]:
    """Install every release that is not there yet; which were installed. Writes below `home`.

    Args:
        again: install those that are there, too.

    Raises:
        OpsError: pip failed or the release does not start; what was installed before is as it was.
    """
    done = []
    for release, hashes in RELEASES.items():
        if is_installed(home, release) and not again:
            progress(f"pylance {release} is installed in {home / release}")
            continue
        progress(f"installing pylance {release} into {home / release}")
        _install(home, release, hashes)
        done.append(release)
    return tuple(done)


def _install(home: Path, release: str, hashes: tuple[str, ...]) -> None:
    """Install beside the final folder and rename: a half-installed release is never used. Writes."""
    scratch = home / f".{release}-{uuid.uuid4().hex}"
    wanted = " ".join([f"pylance=={release}", *(f"--hash=sha256:{digest}" for digest in hashes)])
    try:
        scratch.mkdir(parents=True)
        pins = scratch / "requirements.txt"
        pins.write_text(wanted + "\n", encoding="utf-8")
        target = scratch / "target"
        _run(release, _installer(target, pins))
        _run(release, [sys.executable, "-c", _PROBE, str(target), release])
        _put_in_place(target, home / release, scratch / "before")
    except OSError as error:
        reason = error.strerror
        raise OpsError(f"pylance {release} cannot be installed into {home}: {reason}; nothing changed") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _put_in_place(new: Path, place: Path, aside: Path) -> None:
    """Rename a release to where it is used; the one that is there stays until then. Writes."""
    if place.exists():
        place.rename(aside)
    try:
        new.rename(place)
    except OSError:
        if aside.exists():
            aside.rename(place)
        raise


_PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
import lance
sys.exit(lance.__version__ != sys.argv[2])
"""


def _installer(target: Path, pins: Path) -> list[str]:
    """pip's command, or uv's where there is no pip: an environment that uv made has none. Reads."""
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--target", str(target))
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
        return [*pip, *options, "--requirement", str(pins)]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable, *options, "--requirement", str(pins)]
    raise OpsError(f"`{COMMAND}` needs pip or uv, and {sys.executable} finds neither; nothing changed")


def _run(release: str, command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            # Images that install for the user set this, and pip combines it with no target.
            env={**os.environ, "PIP_USER": "0"},
        )
    except subprocess.TimeoutExpired:
        raise OpsError(f"pylance {release} was not installed within {_TIMEOUT_SECONDS:.0f} s; run it again") from None
    if done.returncode != 0:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        reason = next((line for line in said if line.startswith("ERROR:")), said[-1] if said else "no reason given")
        raise OpsError(
            f"pylance {release} cannot be installed: {reason.removeprefix('ERROR:').strip()}; nothing changed; "
            f"check that the installer reaches a package index and run `{COMMAND}` again"
        )


_CHILD = Path(__file__).with_name("text_index_child.py")
_START_SECONDS = 300.0
_LOOK_SECONDS = 0.5
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

    def ask(self, action: str, request: Mapping[str, object], progress: Progress) -> Mapping[str, Any]:
        """Let the child do one request; its answer, as the script describes it. Writes.

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
        return said

    def stop(self) -> None:
        """End the child. Kills it."""
        self._child.kill()
        self._child.wait()

    def _wait(self, number: int, seconds: float, progress: Progress) -> dict[str, Any]:
        waited = 0.0
        try:
            while waited < seconds:
                try:
                    # Not one long wait: a signal that the system gives to another thread does not end it.
                    return self._answers[number].get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    waited += _LOOK_SECONDS
                    if waited % _SAY_SECONDS == 0:
                        progress(f"at work for {waited:.0f} s")
            self.stop()
            return {"error": f"the text indexer {self.release} gave no answer for {seconds:.0f} s and was stopped"}
        finally:
            del self._answers[number]

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if not line.startswith("{"):  # a site may print when its Python starts, which is before the script
                continue
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
