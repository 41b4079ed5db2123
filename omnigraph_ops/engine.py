"""The engine's command line: which release a binary is, one command per process, and what its errors mean.

EngineFailure(OpsError)
├── EngineConflict        another writer was faster; nothing of this command landed, but for a merge that another
│   │                     engine took for dead and finished
│   └── EngineRowConflict a merge met changes of the same rows
├── EngineRecovery        the engine wants something recovered, or a schema apply done, first; that may be what this
│                         command was about to publish
└── EngineTimeout         killed after its time; what it did is for a fresh read to say
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph_ops.errors import InvalidInput, OpsError, UnsupportedStamp
from omnigraph_ops.storage.scratch import in_scratch, scratch_folder

_VERSION = re.compile(r"omnigraph (\d+)\.(\d+)\.(\d+)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBERED = re.compile(r"^\s*0:\s*(.*)$", re.MULTILINE)
_VERSION_SECONDS = 30.0
# PR_SET_PDEATHSIG outlasts exec. No `preexec_fn`: it forks with Python in the child, which Lance's threads forbid.
_TIED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    os._exit(137)
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"the engine {sys.argv[2]!r} cannot be run: {error.strerror}")
"""
"""Become the engine, and die with the process that asked for it."""
_VARIABLES = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
    "aws_region": "AWS_REGION",
    "aws_endpoint": "AWS_ENDPOINT_URL_S3",
    "allow_http": "AWS_ALLOW_HTTP",
}


class EngineFailure(OpsError):
    """The engine refused or failed; the message is the engine's."""


class EngineConflict(EngineFailure):
    """Another writer was faster; the whole attempt may be made again."""


class EngineRowConflict(EngineConflict):
    """A merge met changes of the same rows: what was merged has to be made anew."""


class EngineRecovery(EngineFailure):
    """Something pending has to be settled first."""


class EngineTimeout(EngineFailure):
    """The engine did not finish in time and was stopped."""


_TEXTS: tuple[tuple[str, type[EngineFailure]], ...] = (
    ("recovery required", EngineRecovery),  # first: its reason may be the text of a conflict
    ("merge conflicts:", EngineRowConflict),
    ("stale view of", EngineConflict),
    ("changed during preparation", EngineConflict),
    ("commit conflict", EngineConflict),
    ("concurrent", EngineConflict),
    ("ahead of manifest version", EngineConflict),  # a writer between its commit and its publish, or drift
    ("recovery sidecar", EngineRecovery),
    ("schema apply is in progress", EngineRecovery),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRelease:
    """One release, and the ways of it that deleting rows has to respect."""

    version: tuple[int, int, int]
    stamp: int

    @property
    def text(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def moves_unmatched_edges(self) -> bool:
        """A delete commits to every edge table at its node type, matched or not, and publishes only the matched."""
        return self.version < (0, 9, 0)

    def loads_keys(self, types: Iterable[str | None]) -> bool:
        """Whether a load takes rows with a key of properties of these types."""
        return self.version >= (0, 9, 0) or set(types) <= {"String"}

    @property
    def counts_edges(self) -> bool:
        """Whether a delete fails that leaves a node fewer edges than the schema demands of it."""
        return self.version >= (0, 9, 0)

    @property
    def nests_branches(self) -> bool:
        """Whether it can write on a branch of a branch."""
        return self.version >= (0, 9, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCli:
    """A binary whose release is known, with what its processes get."""

    path: str
    release: EngineRelease
    timeout_seconds: float
    environment: Mapping[str, str]
    """Variables beside those of this process."""

    def create_branch(self, root: str, name: str, parent: str) -> None:
        """Fork a branch of the graph. Writes."""
        self._run("branch", "create", "--uri", root, name, "--from", parent)

    def delete_branch(self, root: str, name: str) -> None:
        """Delete a branch of the graph. Destroys."""
        self._run("branch", "delete", "--uri", root, "--yes", name)

    def merge(self, root: str, source: str, target: str) -> None:
        """Merge a branch into another, row by row, in one publish. Writes."""
        self._run("branch", "merge", "--uri", root, source, "--into", target, "--json")

    def mutate(self, root: str, branch: str, query: str, params: Mapping[str, object]) -> int:
        """Run one mutation query on a branch; how many nodes and edges the engine says it touched. Writes."""
        with scratch_folder() as folder:
            source, values = folder / "query.gq", folder / "params.json"
            with in_scratch():
                source.write_text(query, encoding="utf-8")
                values.write_text(json.dumps(params), encoding="utf-8")
            given = ("--params-file", str(values)) if params else ()
            out = self._run("mutate", "--store", root, "--branch", branch, "--query", str(source), *given, "--json")
        return _touched(out)

    def load(self, root: str, branch: str, lines: Iterable[str]) -> None:
        """Load JSON lines into a branch; a row whose key is there replaces that one. Writes."""
        with scratch_folder() as folder:
            data = folder / "rows.jsonl"
            with in_scratch():
                data.write_text("\n".join(lines), encoding="utf-8")
            self._run("load", "--branch", branch, "--data", str(data), "--mode", "merge", "--json", root)

    def _run(self, *arguments: str) -> str:
        return _process([self.path, *arguments], self.timeout_seconds, self.environment)


def engine_cli(path: str, *, timeout_seconds: float, storage_options: Mapping[str, str] | None) -> EngineCli:
    """The engine at a path, after asking it for its release. Runs it once.

    Raises:
        InvalidInput: there is no such program, or it is not an engine of a known release.
    """
    if not os.access(path, os.X_OK) or not Path(path).is_file():
        raise InvalidInput(f"the engine {path!r} is not a program that can be run; nothing was written")
    try:
        said = _process([path, "--version"], _VERSION_SECONDS, {})
    except EngineFailure as error:
        raise InvalidInput(f"the engine {path!r} does not tell its release ({error}); nothing was written") from None
    options = storage_options or {}
    named = {variable: options[name] for name, variable in _VARIABLES.items() if name in options}
    release = release_of(said, path)
    return EngineCli(path=path, release=release, timeout_seconds=timeout_seconds, environment=named)


def typical_release(stamp: int) -> EngineRelease | None:
    """A release for all that write graphs of a stamp, which share the ways that matter here; None for others. Pure."""
    version = {3: (0, 7, 2), 6: (0, 9, 0)}.get(stamp)
    return None if version is None else EngineRelease(version=version, stamp=stamp)


def release_of(said: str, path: str) -> EngineRelease:
    """The release in the text of `--version`; `InvalidInput` for one whose graphs are not known here. Pure."""
    found = _VERSION.search(said)
    version = (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)
    if (0, 6, 2) <= version < (0, 8, 0):
        return EngineRelease(version=version, stamp=3)
    if (0, 9, 0) <= version < (0, 11, 0):
        return EngineRelease(version=version, stamp=6)
    what = said.strip().splitlines()[0] if said.strip() else "nothing"
    raise InvalidInput(
        f"the engine {path!r} says {what!r}, known are the releases 0.6.2 to 0.7.x, 0.9.x and 0.10.x; "
        "nothing was written"
    )


def require_stamp(engine: EngineCli, graph_stamp: int, root: str) -> None:
    """Refuse an engine that does not write graphs of that stamp. Pure.

    Raises:
        UnsupportedStamp: it is of the wrong release; nothing was written.
    """
    if engine.release.stamp != graph_stamp:
        raise UnsupportedStamp(
            f"the engine {engine.path!r} is omnigraph {engine.release.text}, which writes stamp "
            f"{engine.release.stamp}; {root} is of stamp {graph_stamp}; nothing was written; name the engine of "
            "its release"
        )


def classify(text: str) -> type[EngineFailure]:
    """The class for what a failed engine printed. Pure."""
    lower = text.lower()
    return next((kind for marker, kind in _TEXTS if marker.lower() in lower), EngineFailure)


def _process(command: list[str], seconds: float, environment: Mapping[str, str]) -> str:
    """The standard output of one engine process; its failure as a typed error. Runs it."""
    try:
        child = subprocess.Popen(
            _tied(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **environment, "NO_COLOR": "1", "RUST_BACKTRACE": "0"},
            start_new_session=True,
        )
    except OSError as error:
        raise EngineFailure(f"the engine {command[0]!r} cannot be run: {error.strerror}") from None
    with child:
        try:
            out, err = child.communicate(timeout=seconds)
        except BaseException as error:
            _stop(child)
            if isinstance(error, subprocess.TimeoutExpired):
                raise EngineTimeout(f"`{_named(command)}` did not finish within {seconds:.0f} s") from None
            raise
    if child.returncode != 0:
        err = _COLOUR.sub("", err)
        text = f"{err}\n{_COLOUR.sub('', out)}"
        ended = _killed(child.returncode, err) if child.returncode < 0 else f"failed: {_sentence(text)}"
        raise classify(text)(f"`{_named(command)}` {ended}")
    return out


def _tied(command: list[str]) -> list[str]:
    """The command, ending with this process: one that went on would delete after the run was recorded. Pure."""
    if sys.platform != "linux":
        return command
    return [sys.executable, "-ISc", _TIED, str(os.getpid()), *command]


def _stop(child: subprocess.Popen[str]) -> None:
    """End the process and whatever it started; it may have children that hold its pipes. Kills it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _named(command: list[str]) -> str:
    """What was run, without values. Pure."""
    words = [word for word in command[1:3] if not word.startswith("-")]
    return " ".join(["omnigraph", *words])


def _killed(code: int, err: str) -> str:
    """What ended a process that a signal killed, and what it printed last: an abort has its reason there. Pure."""
    name = next((f" ({known.name})" for known in signal.Signals if known == -code), "")
    last = next((f"; its last line: {line.strip()}" for line in reversed(err.splitlines()) if line.strip()), "")
    return f"was killed by signal {-code}{name}{last}"


def _sentence(text: str) -> str:
    """The first sentence of the engine's report, or of whatever it printed. Pure."""
    numbered = _NUMBERED.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return numbered[1].strip() if numbered else (lines[0] if lines else "it printed nothing")


def _touched(out: str) -> int:
    try:
        said: dict[str, Any] = json.loads(out)
        return int(said["affected_nodes"]) + int(said["affected_edges"])
    except (ValueError, KeyError, TypeError):
        raise EngineFailure("`omnigraph mutate` did not say what it touched") from None
