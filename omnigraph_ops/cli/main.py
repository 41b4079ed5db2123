"""Run one verb: parse, call the stage, print, translate errors into one sentence and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# Everything else is imported when the signals are handled: until then Ctrl-C is a traceback.
from omnigraph_ops.cli.process import NoPandas, Signals, closed_stdout, escaping_stdout, lossy_stderr
from omnigraph_ops.errors import OpsError


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `omnigraph-ops`; returns the exit code. Without arguments it has the process for itself."""
    signals = Signals(own_process=argv is None)
    if argv is None:
        sys.meta_path.insert(0, NoPandas)
        escaping_stdout()
    if argv is None and sys.stdout is None:
        sys.stdout = closed_stdout()
    with signals.installed(), lossy_stderr(own_process=argv is None):
        try:
            code = _run(argv, signals)
        except KeyboardInterrupt:
            code = signals.code  # pressed again while the end was being told
        if signals.name and argv is None:
            signals.leave(code)
    return code


def _run(argv: Sequence[str] | None, signals: Signals) -> int:
    try:
        code = _parsed_and_run(argv, signals)
    except OpsError as error:
        print(f"Error: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print(f"Interrupted; {signals.left or _PENDING}", file=sys.stderr)
        return signals.code
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        code = _unexpected(error)
    if signals.interrupted:
        print("Interrupted; what was done is recorded; run the same command again for the rest", file=sys.stderr)
        return signals.code
    return code


def _parsed_and_run(argv: Sequence[str] | None, signals: Signals) -> int:
    from omnigraph_ops.cli.call import COMPLETE, PROGRAM, Call, cli
    from omnigraph_ops.cli.parsing import parse
    from omnigraph_ops.config.settings import misspelled_settings

    if argv is None and COMPLETE in os.environ:
        cli.main(prog_name=PROGRAM, complete_var=COMPLETE)
    try:
        parsed = parse(argv)
    except BrokenPipeError:
        raise
    except OSError as error:  # of help or the version
        raise OpsError(f"the text could not be printed: {error.strerror or error}; nothing was done") from None
    if isinstance(parsed, int):
        return parsed
    for line in misspelled_settings():
        print(f"warning: {line}", file=sys.stderr)
    # Stages import Lance, which takes a second: not for `--help` and usage errors.
    from omnigraph_ops.cli.recording import Recorder

    if not parsed.graph:
        signals.left = "no graph that was there before was changed"
    signals.imported()
    recorder = Recorder(parsed.verb, signals)
    call = Call(verb=parsed.verb, options=parsed.options, recorder=recorder)
    try:
        code = parsed.run(call)
    except BaseException as error:
        recorder.finish(error)
        raise
    else:
        complete = recorder.finish(None)
        return code if complete and call.printed else max(code, 1)
    finally:
        if parsed.graph and (call.only_reads or signals.nothing_began):
            signals.left = "the graph was not changed"
        call.close()


_PENDING = "run `omnigraph-ops check` to see whether anything is pending"


def _unexpected(error: BaseException) -> int:
    import traceback

    from omnigraph_ops.errors import first_line

    if os.environ.get("OMNIGRAPH_OPS_TRACEBACK"):
        traceback.print_exception(error)
    print(
        f"Error: unexpected {type(error).__name__}: {first_line(error)}; "
        f"{_PENDING}; set OMNIGRAPH_OPS_TRACEBACK=1 for the traceback",
        file=sys.stderr,
    )
    return 1
