"""What becomes of a signal where code in C was at work."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator

import pytest

from omnigraph_ops.cli import process
from omnigraph_ops.cli.process import Signals


@pytest.fixture(autouse=True)
def no_other_alarm() -> Iterator[None]:
    """As in a process of a command: Airflow leaves its handler of alarms in one that loaded DAGs."""
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGALRM, before)


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


def test_an_interrupt_that_code_in_c_dropped_comes_again() -> None:
    with Signals(own_process=False).installed(), pytest.raises(KeyboardInterrupt):
        _Dropped(KeyboardInterrupt)
        time.sleep(10)


def test_a_dropped_interrupt_does_not_come_again_once_the_run_is_being_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signals = Signals(own_process=False)
    monkeypatch.setattr(process, "_AGAIN_SECONDS", 100.0)  # not before the run is at its end
    with signals.installed():
        _Dropped(KeyboardInterrupt)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
        signals.closing()
        signal.raise_signal(signal.SIGALRM)
        _Dropped(KeyboardInterrupt)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_an_alarm_that_somebody_else_set_is_left_to_them() -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 100)
        with Signals(own_process=False).installed():
            _Dropped(KeyboardInterrupt)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
