"""Signals, stdout, stderr and imports of the process of a command.

The first Ctrl-C, SIGTERM or SIGHUP (a terminal that was closed) asks the run to stop, the second aborts it, the third
ends the process at once. stderr may fail, on a full disk, a closed pipe or closed from the start: then it loses text
instead of ending the run. A stdout that is closed from the start refuses text, so that the exit code tells; one whose
encoding lacks a character shows it escaped.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

if TYPE_CHECKING:
    from omnigraph_ops.outcomes.runs import RecordedRun

_HANDLED: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGALRM: signal.SIG_DFL,
}
"""The signals, and the handlers that they are taken over from: what ignores a signal goes on ignoring it."""
_AGAIN = signal.SIGALRM
"""Comes in place of an interrupt that code in C dropped."""
_AGAIN_SECONDS = 0.05
_SHOWN = 3
_CLOSING = "The run is at its end and is being recorded; press Ctrl-C again to leave that to the next command."


class NoPandas:
    """An importer that hides pandas, which pyarrow imports wherever it is installed.

    No command needs it, and it is a fifth of the time and of the memory that one starts with.
    """

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        """Refuse pandas; others find the rest. Pure."""
        if name == "pandas":
            raise ModuleNotFoundError("hidden: no command needs it", name=name)


class Signals:
    """What came of the signals of one command."""

    def __init__(self, *, own_process: bool) -> None:
        self._own_process, self._count, self._first = own_process, 0, 0
        self._run: RecordedRun | None = None
        self._closing, self._importing = False, own_process
        self.left = ""
        """What an aborted command left behind; empty: nobody can tell."""
        self.interrupted = False
        """Whether a signal came before the run was at its end."""

    @property
    def name(self) -> str:
        """The first signal that came, empty when none did."""
        return signal.Signals(self._first).name if self._first else ""

    @property
    def code(self) -> int:
        """The exit code of a command that a signal ended."""
        return 128 + (self._first or signal.SIGINT)

    @property
    def nothing_began(self) -> bool:
        """Whether a run that writes was ended before its first effect."""
        return self._run is not None and not self._run.began

    def imported(self) -> None:
        """All modules are there: from now on a signal goes the way of exceptions."""
        self._importing = False

    def watch(self, run: RecordedRun) -> None:
        """Stop this run at its next unit instead of ending it anywhere."""
        self._run = run

    def closing(self) -> None:
        """The run is at its end and is about to be recorded: from now on a signal interrupts no work of it."""
        self._closing, self.interrupted = True, bool(self._first)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals for the block; a process that ends with it ignores them from then on. Sets handlers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        taken = [number for number, before in _HANDLED.items() if signal.getsignal(number) is before]
        for number in taken:
            signal.signal(number, self._on)
        before, sys.unraisablehook = sys.unraisablehook, self._unraisable
        try:
            yield
        finally:
            sys.unraisablehook = before
            if _AGAIN in taken:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number in taken:
                # What comes now would meet the end of the interpreter, where it can only be a traceback.
                signal.signal(number, signal.SIG_IGN if self._own_process else _HANDLED[number])

    def leave(self, code: int) -> NoReturn:
        """End the process without the interpreter's own end. Ends it.

        Threads of Lance, and of a run that was aborted, may still be at work; the interpreter would wait for them, or
        they would meet its ruins.
        """
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    def _unraisable(self, found: sys.UnraisableHookArgs) -> None:
        """Send an interrupt again that code in C had to drop; tell of other errors. Sets a timer, or prints."""
        if not isinstance(found.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(found)
        elif signal.getsignal(_AGAIN) == self._on:
            # By no thread: the code that was interrupted may hold the lock that a thread needs to start.
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def _on(self, number: int, _frame: object) -> None:
        if number == _AGAIN:
            if self._closing:
                return
            raise KeyboardInterrupt
        if number == signal.SIGHUP and self._count:
            return  # a terminal that is closed says so more than once
        self._count += 1
        self._first = self._first or number
        if self._importing:
            # Modules written in C turn an exception in the middle of their import into anything.
            _say("Interrupted; nothing was done")
            os._exit(self.code)
        if self._count > 2 and self._own_process:
            os._exit(self.code)
        if self._run is not None:
            began = self._run.began
            # Also of an abort: it ends the main thread alone, and others wait for their turn perhaps.
            self._run.stop()
            if self._count == 1 and began:
                _say(_CLOSING if self._closing else _stopping(self._run.at_work()))
                return
        raise KeyboardInterrupt


def _stopping(units: tuple[str, ...]) -> str:
    """What the first signal brings about, and what a second one would. Pure."""
    more = f" and {len(units) - _SHOWN} more" if len(units) > _SHOWN else ""
    first = f"Finishing {', '.join(units[:_SHOWN])}{more}, then stopping." if units else "Stopping."
    return (
        f"{first} Press Ctrl-C again to abort at once: nothing that is published is lost, and `omnigraph-ops recover` "
        "and the same command finish what that leaves."
    )


def _say(text: str) -> None:
    # Not by `print`: the signal may have come in the middle of one.
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


class LossyStderr:
    """A stream that drops what the one below does not take: what is done, and its exit code, do not hang on it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost = False
        """Whether anything was dropped."""

    def write(self, text: str) -> int:
        """Write, or drop. Writes."""
        with self._losing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop. Writes."""
        with self._losing():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):  # a closed stream raises the latter
            self.lost = True


@contextlib.contextmanager
def lossy_stderr(*, own_process: bool) -> Iterator[None]:
    """Drop what stderr does not take for the block; a process that ends with it, at its end as well. Sets stderr."""
    before = sys.stderr
    if own_process and before is None:
        _open_nowhere()
    elif isinstance(before, LossyStderr):
        yield
        return
    sys.stderr = cast("TextIO", LossyStderr(sys.stderr))
    try:
        yield
    finally:
        # The interpreter flushes it once more, and ends with another exit code where that fails.
        if not own_process:
            sys.stderr = before


def _open_nowhere() -> None:
    """Keep files of the graph from getting the number of stderr, to which native code writes. Opens a file."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2, inheritable=True)
    sys.stderr = os.fdopen(2, "w", closefd=False)


def closed_stdout() -> TextIO:
    """A stdout for a process that was started without one: it refuses all, where `None` loses all. Opens a file."""
    # No file of the graph gets its number.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 1, inheritable=True)
    return cast("TextIO", _ClosedStdout())


def escaping_stdout() -> None:
    """Show what the encoding of the terminal lacks as JSON escapes it, which JSON output may have. Sets stdout."""
    # The second is that of the locale C.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in {"strict", "surrogateescape"}:
        codecs.register_error(_ESCAPED, _escaped)
        sys.stdout.reconfigure(errors=_ESCAPED)


_ESCAPED = "omnigraph-ops"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


class _ClosedStdout(io.TextIOBase):
    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "stdout is closed")
