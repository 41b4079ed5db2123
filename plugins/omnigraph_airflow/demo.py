"""`make demo`: a night of maintenance on a generated graph, in a real Airflow, while you watch.

    python -m omnigraph_airflow.demo [--no-ui] [--home DIR] [--port N]

Everything lives below `--home` (default `.demo`) and is made anew by every run.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

# All other imports follow once the signals are handled: before that, Ctrl-C would print a traceback.


def main() -> int:
    """Run the demo; the exit code says whether the night went well. Writes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)
    # Before the night handles interrupts as exceptions: one that comes while a module in C is imported can be lost.
    import omnigraph_ops.demo
    import omnigraph_ops.stages.optimize.run  # noqa: F401
    from omnigraph_airflow.demo_night import run

    return run()


def _leave(*_: Any) -> NoReturn:
    os.write(1, b"\nStopped.\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
