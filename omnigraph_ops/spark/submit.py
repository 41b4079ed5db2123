"""Run `spark-submit` to its end and read what the application left. Imports no PySpark: it starts a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeVar

from omnigraph_ops import serde
from omnigraph_ops.errors import NotInstalled, OpsError, StorageError
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.spark.java import spark_environment
from omnigraph_ops.storage.scratch import scratch_folder

T = TypeVar("T")
APPLICATION = Path(__file__).with_name("application.py")
"""The one application; its first argument is the job."""
_GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.2
_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""The last one: Airflow's time limits, and interrupts that the shell sends again."""


@dataclass(slots=True, kw_only=True)
class Submitter:
    """Submits jobs from this process to one master, one after the other: each takes what the master has.

    A master on which Spark did not start is not asked again: one that does not answer costs a minute each time. Where
    this environment has no Spark it is `NotInstalled` at once, before anything is done without it.
    """

    master: str
    progress: Progress = SILENT
    environment: Mapping[str, str] | None = None
    """Of the submits; None: that of this process, with what Spark needs."""
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _why_dead: str | None = None
    _submit: str = field(init=False)

    def __post_init__(self) -> None:
        self._submit = spark_submit(f"--spark {self.master}")

    def __call__(self, job: str, arguments: Sequence[str], value: type[T], check: Callable[[], None]) -> T:
        """Run one job; what it returned. The effect of the job.

        Args:
            check: called while the job runs; whatever it raises ends the submit.

        Raises:
            StorageError: Spark did not start, or the job failed and the same submit may succeed later.
            OpsError: the job failed.
        """
        with self._turn, scratch_folder("omnigraph-submit-") as folder:
            check()
            if self._why_dead is not None:
                raise StorageError(self._why_dead)
            result, log = folder / "result.json", folder / "submit.log"
            words = [str(APPLICATION), job, "--result-uri", str(result), *arguments]
            self.progress(f"{job} on {self.master}")
            environment = os.environ | spark_environment() if self.environment is None else self.environment
            watched = _Watched(log=log, master=self.master, check=check, progress=self.progress)
            code = run_submit([self._submit, "--master", self.master, *words], environment, log, watched)
            outcome = _outcome(result, value)
            if outcome is not None and outcome.value is not None:
                return outcome.value
            why = reason(log.read_text(errors="replace"))
            # One that a signal ended while Java started says nothing about the master.
            if outcome is None and code >= 0:
                self._why_dead = f"Spark did not start on {self.master}, so nothing was done there: {why}"
                raise StorageError(self._why_dead)
        if outcome is not None and outcome.error:
            raise StorageError(outcome.error) if outcome.retryable else OpsError(outcome.error)
        raise StorageError(f"the job {job} on {self.master} {ended(code, why)}; run the same command again")


_STARVED = b"has not accepted any resources"


@dataclass(slots=True, kw_only=True)
class _Watched:
    """The check of a submit, which also tells that the job waits: Spark says so in its log alone."""

    log: Path
    master: str
    check: Callable[[], None]
    progress: Progress
    _read: int = 0
    _told: bool = False

    def __call__(self) -> None:
        """Raise what the check raises. Reads the new lines of the log."""
        self.check()
        if self._told or not self.log.exists():
            return
        with self.log.open("rb") as file:
            file.seek(self._read)
            lines = file.read().rpartition(b"\n")[0]
        self._read += len(lines)
        if _STARVED in lines:
            self._told = True
            self.progress(f"{self.master} has no free worker, so the job waits for one")


def ended(code: int, why: str) -> str:
    """How a submit ended that left no outcome. Pure."""
    try:
        name = signal.Signals(-code if code < 0 else code - 128).name
    except ValueError:
        return f"ended with code {code} and no outcome: {why}"
    # What it said last is then not the reason.
    return f"was killed ({name}) and left no outcome: a person did that, or the system when memory ran out"


def spark_submit(wanted_by: str) -> str:
    """The `spark-submit` of this environment; `NotInstalled` where there is none. Reads."""
    submit = Path(sys.executable).with_name("spark-submit")
    if not submit.exists():
        raise NotInstalled.of(wanted_by, "pyspark", "spark")
    return str(submit)


def run_submit(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    check: Callable[[], None],
) -> int:
    """Run a submit to its end and return its exit code; whatever ends the wait ends the submit. Starts a process.

    Raises:
        OpsError: it could not be started.
    """
    made: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as output:
        try:
            with _held_back():
                made.append(_started(command, environment, output))
            return _waited(made[0], check)
        finally:
            for process in made:
                _end(process)


def _started(command: Sequence[str], environment: Mapping[str, str], output: BinaryIO) -> subprocess.Popen[bytes]:
    """The submit in a session of its own: launcher, JVM and driver are ended together. Starts a process."""
    try:
        return subprocess.Popen(
            list(command), env=dict(environment), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise OpsError(f"spark-submit could not be started: {error}") from None


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Let signals take effect after the block: one inside of `Popen` would leave a process nobody knows. Sets handlers.

    Where a thread is waited for instead, a signal may leave the lock of that wait taken, and the wait never ends.
    """
    if threading.current_thread() is not threading.main_thread():  # no signal arrives in others
        yield
        return
    came: list[int] = []

    def deliver() -> None:
        for number in came:
            signal.raise_signal(number)

    with contextlib.ExitStack() as after:  # which works backwards: when they are delivered, the handlers are back
        after.callback(deliver)
        for number in _INTERRUPTING:
            after.callback(signal.signal, number, signal.getsignal(number) or signal.SIG_DFL)
            signal.signal(number, lambda number, _frame: came.append(number))
        yield


def reason(log: str) -> str:
    """The line of a submit's output that says best why it failed. Pure."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    # The application's own sentence is its last word; of what Spark and Java say the first is the cause.
    own = [line for line in lines if line.startswith("Error: ") and "JNI" not in line]
    errors = [line for line in lines if " ERROR " in line and "Error initializing SparkContext" not in line]
    causes = errors or [line for line in lines if "Exception: " in line or "OutOfMemoryError: " in line]
    # Java warns of modules that Spark uses, which harms nothing.
    others = [line for line in lines if " INFO " not in line and not line.startswith("WARNING: ")]
    said = (own[-1:] or causes[:1] or others[-1:] or ["it said nothing"])[0]
    return said.removeprefix("Error: ").rpartition("Exception: ")[2].rpartition(" ERROR ")[2].rstrip(". ")


def _waited(process: subprocess.Popen[bytes], check: Callable[[], None]) -> int:
    """The exit code. Sleeps."""
    while True:
        check()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the submit to end, so that Spark removes its own temporary files, then insist. Kills processes."""
    try:
        _signal(process, signal.SIGTERM)
    finally:
        # Also when somebody does not want to wait so long: a second Ctrl-C.
        _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to everything that was started, and wait a while for its first process. Signals processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)


def _outcome(result: Path, value: type[T]) -> SubmitOutcome[T] | None:
    """What the application left; None when Spark did not start. Reads."""
    if not result.exists():
        return None
    return serde.from_json(SubmitOutcome[value], result.read_bytes())  # type: ignore[valid-type]
