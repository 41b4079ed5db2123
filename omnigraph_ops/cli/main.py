"""Run one verb: parse, call the stage, print, translate errors into one sentence and an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence

from omnigraph_ops.cli.parser import build_parser
from omnigraph_ops.edges.faults import first_line
from omnigraph_ops.errors import OpsError
from omnigraph_ops.settings_reference import misspelled_settings


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `omnigraph-ops`; returns the exit code."""
    try:
        arguments = build_parser().parse_args(argv)
        for line in misspelled_settings():
            print(f"warning: {line}", file=sys.stderr)
        # Stages import Lance, which takes a second: not for `--help` and usage errors.
        from omnigraph_ops.cli.recording import recorded
        from omnigraph_ops.cli.verbs import VERBS

        with _ended_by_sigterm():
            return recorded(arguments, VERBS[arguments.verb])
    except OpsError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted; run `omnigraph-ops check` to see whether anything is pending", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        return _unexpected(error)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that freezes, fences and leases are given back. Sets the handler."""
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _unexpected(error: BaseException) -> int:
    if os.environ.get("OMNIGRAPH_OPS_TRACEBACK"):
        traceback.print_exception(error)
    print(
        f"Error: unexpected {type(error).__name__}: {first_line(error)}; "
        "run `omnigraph-ops check` to see whether anything is pending; "
        "set OMNIGRAPH_OPS_TRACEBACK=1 for the traceback",
        file=sys.stderr,
    )
    return 1
