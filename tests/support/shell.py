"""Run the command in this process and judge how it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from omnigraph_ops.cli import main


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a person at the shell gets."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Outcome]


def runner(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs one verb in this process: `cli("cleanup --keep 1", root)`."""

    def run(verb: str, root: str, *more: str) -> Outcome:
        capsys.readouterr()
        name, *flags = verb.split()
        try:
            code = main([name, root, *flags, *more])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        out, err = capsys.readouterr()
        return Outcome(code=code, out=out, err=err)

    return run


def assert_refused(outcome: Outcome, words: str, code: int = 1) -> None:
    """One sentence on stderr, nothing on stdout, no traceback."""
    assert outcome.code == code, outcome
    errors = [line for line in outcome.err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, outcome.err
    assert words in errors[0]
    assert "Traceback" not in outcome.err
    assert "unexpected" not in outcome.err
    assert outcome.out == ""
