"""What a signal leaves on stderr where code in C was at work."""

from __future__ import annotations

import sys

import pytest

from omnigraph_ops.cli.process import Signals


class _Dropped:
    """Raises where nobody can catch it."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error


def test_an_interrupt_that_code_in_c_dropped_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.unraisablehook
    with Signals(own_process=False).installed():
        _Dropped(KeyboardInterrupt)
        assert capsys.readouterr().err == ""
        _Dropped(ValueError)
        assert "ValueError" in capsys.readouterr().err
    assert sys.unraisablehook is before
