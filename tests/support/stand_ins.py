"""Scripts that stand in for the programs that this tool starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

INTERRUPT = "sleep 0.2; kill -INT $PPID"
"""Of a script: whoever started it is interrupted, once it waits for it."""


def java_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Java that does nothing, which the environment names. Writes it."""
    home = folder / "java"
    (home / "bin").mkdir(parents=True)
    _script(home / "bin" / "java", "exit 0")
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


def fake_submit(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A `spark-submit` beside a Python, which does what the script says. Writes it."""
    java_of(folder, monkeypatch)
    _script(folder / "spark-submit", script)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


def _script(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
    path.chmod(0o755)
