"""The command in a process of its own, which sends itself signals right before or after one of its effects."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType
from typing import Any

_STAGES = (
    *("backup.take", "cleanup.apply", "expire_rows.apply", "optimize.run"),
    *("orphans.apply", "recovery.recover", "repair.run"),
)
_PRELOADED = [
    *("omnigraph_ops.cli.main", "omnigraph_ops.cli.recording", "omnigraph_ops.cli.parsing", "tests.support.kills"),
    *(f"omnigraph_ops.stages.{name}" for name in _STAGES),
]
_LONGEST_SECONDS = 120.0
KINDS = (
    (signal.SIGKILL,),
    (signal.SIGINT,),
    (signal.SIGTERM,),
    (signal.SIGINT, signal.SIGINT),
    (signal.SIGINT, signal.SIGINT, signal.SIGINT),
)
"""The signals that may end a run, alone and in a row."""
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Which signals, and when."""

    moment: int
    """How many moments of effects, each before or after one, pass before it."""
    signals: tuple[int, ...]
    delay: float = 0.0
    """Seconds from that moment to the first signal: into the middle of what comes then."""
    gap: float = 0.02
    """Seconds between the signals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the process came to its end."""

    code: int
    """Of the exit; negative: the signal that killed it."""
    moments: int
    """How many moments of effects it had; 0 when it was killed."""
    names: tuple[str, ...]
    """Of these moments, as in `before #3 put __manifest/_versions`."""
    out: str
    err: str


def run_command(
    words: Sequence[str],
    root: Path,
    scratch: Path,
    *,
    environment: Mapping[str, str] = _NONE,
    kill: Kill | None = None,
    while_stopped: Callable[[], object] | None = None,
) -> Ended:
    """Run the command to its end, whatever ends it. Starts a process.

    Args:
        while_stopped: called when `kill` has stopped the process (SIGSTOP), which goes on after it.
    """
    # Forked by a process that has everything imported, and has never used any of it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    scratch.mkdir(exist_ok=True)
    for name in ("out", "err", "moments"):
        (scratch / name).write_text("")
    child = context.Process(target=_child, args=(tuple(words), str(root), str(scratch), dict(environment), kill))
    child.start()
    if while_stopped is not None:
        _during_stop(child, while_stopped)
    child.join(_LONGEST_SECONDS)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise AssertionError(f"{words} with {kill} did not end: {(scratch / 'err').read_text()}")
    names = tuple((scratch / "moments").read_text().splitlines())
    return Ended(
        code=child.exitcode,
        moments=len(names),
        names=names,
        out=(scratch / "out").read_text(),
        err=(scratch / "err").read_text(),
    )


def _during_stop(child: BaseProcess, act: Callable[[], object]) -> None:
    assert child.pid is not None
    deadline = time.monotonic() + _LONGEST_SECONDS
    # The child of another process cannot be waited for: the kernel tells its state behind the name of its program.
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2][0] != "T":
        assert child.is_alive() and time.monotonic() < deadline, "it was never stopped"
        time.sleep(0.01)
    try:
        act()
    finally:
        os.kill(child.pid, signal.SIGCONT)


def _child(words: tuple[str, ...], root: str, scratch: str, environment: dict[str, str], kill: Kill | None) -> None:
    from omnigraph_ops.cli.main import main
    from tests.support.kills import Killer, killing

    os.environ.update(environment)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{scratch}/{name}", os.O_WRONLY | os.O_APPEND), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    # In the background of a shell, or below `nohup`, the one or the other is ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    moments: list[str] = []
    with killing(Killer(root=Path(root), on_quiet=moments_hook(moments, kill, _heard()))):
        sys.argv = ["omnigraph-ops", *words]
        code = main()
        Path(scratch, "moments").write_text("\n".join(moments))
        sys.stdout.flush()
        os._exit(code)


def _heard() -> threading.Event:
    """Set once a handler that is installed from now on has come to its end. Replaces `signal.signal`."""
    heard, install = threading.Event(), signal.signal

    def telling(number: int, handler: Any) -> Any:
        def handle(*arguments: Any) -> None:
            try:
                handler(*arguments)
            finally:
                heard.set()

        return install(number, handle if callable(handler) else handler)

    signal.signal = telling  # type: ignore[assignment]
    return heard


def moments_hook(moments: list[str], kill: Kill | None, heard: threading.Event | None = None) -> Callable[[str], None]:
    """A hook for `Killer.on_quiet` that notes every moment, and sends the signals at the one of the kill.

    Args:
        heard: set once the signal was handled. The effect waits for it, for the main thread may be slow to wake up.
    """

    def hook(moment: str) -> None:
        moments.append(moment)
        if kill is not None and len(moments) == kill.moment + 1:
            if kill.delay or len(kill.signals) > 1:
                threading.Thread(target=_send, args=(kill,), daemon=True).start()
                waits = kill.signals[0] == signal.SIGHUP  # of which the second one aborts nothing
            else:
                os.kill(os.getpid(), kill.signals[0])
                waits = kill.signals[0] in {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
            if waits and heard is not None:
                heard.wait(_LONGEST_SECONDS)

    return hook


def _send(kill: Kill) -> None:
    time.sleep(kill.delay)
    for number in kill.signals:
        os.kill(os.getpid(), number)
        time.sleep(kill.gap)
