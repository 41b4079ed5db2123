"""Claim: the driver of the job `copy` needs as much memory for 100 times the files, and so does a worker.

Backs up made-up graphs' worth of files of 1 KiB through a real spark-submit, and watches the peak memory of the three
kinds of process in its session: the JVM, the Python driver, the Python workers.

    python bench/bench_spark_copy.py [FILES ...]
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from omnigraph_ops.models.freeze import CutFile, CutFileKind
from omnigraph_ops.progress import SILENT, Meter
from omnigraph_ops.spark.submit import Submitter
from omnigraph_ops.stages.backup.parts import SubmittedCopy
from omnigraph_ops.stages.backup.transfer import CopyJournal, CopyPace, CopyPlan, Transfer
from omnigraph_ops.storage.store import Storage

BACKUP = "01J00000000000000000000000"
CONTENT = b"x" * 1024


def peaks_of_children() -> dict[str, int]:
    """MiB at the peak of each kind of process below this one. Reads."""
    found: dict[str, int] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, StopIteration):
            if int(place.name) == os.getpid() or os.getsid(int(place.name)) == os.getsid(0):
                continue
            words = (place / "cmdline").read_bytes().decode().replace("\0", " ")
            if str(os.getpid()) not in _ancestors(int(place.name)):
                continue
            program = words.split(" ", 1)[0]
            kind = "JVM" if program.endswith("java") else "worker" if "pyspark.daemon" in words else "driver"
            peak = next(line for line in (place / "status").read_text().splitlines() if line.startswith("VmHWM"))
            found[kind] = max(found.get(kind, 0), int(peak.split()[1]) // 1024)
    return found


def _ancestors(process: int) -> list[str]:
    chain = []
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        chain.append(str(process))
    return chain


@contextlib.contextmanager
def watched(peaks: dict[str, int]) -> Iterator[None]:
    """Keep the highest peaks of the block."""
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.1):
            for kind, peak in peaks_of_children().items():
                peaks[kind] = max(peaks.get(kind, 0), peak)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def prepared(folder: Path, files: int) -> tuple[Transfer, CopyPlan]:
    """A copy of so many files, which it writes."""
    source, destination = folder / f"source-{files}", folder / f"destination-{files}"
    names = [f"data/{n % 100}/{n}.lance" for n in range(files)]
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(CONTENT)
    cut = tuple(CutFile(file=n, source=n, size=len(CONTENT), kind=CutFileKind.DATA) for n in names)
    target = Storage(str(destination), {})
    transfer = Transfer(
        source=Storage(str(source), {}),
        destination=target,
        backup_id=BACKUP,
        earlier=None,
        need_checksums=False,
        workers=8,
        pace=CopyPace(None),
        meter=Meter(SILENT, "copying", 0, "bytes"),
        journal=CopyJournal(target, BACKUP, "freeze"),
    )
    return transfer, CopyPlan(copy=cut)


def measure(folder: Path, files: int) -> tuple[dict[str, int], float]:
    """The peaks and the seconds of a copy of so many files."""
    transfer, plan = prepared(folder, files)
    peaks: dict[str, int] = {}
    started = time.perf_counter()
    with watched(peaks):
        done = SubmittedCopy(submit=Submitter(master="local[2]"))(transfer, plan, lambda: None)
    assert len(done.copied) == files
    return peaks, time.perf_counter() - started


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for count in [int(word) for word in sys.argv[1:]] or [300, 30_000]:
            peaks, seconds = measure(Path(scratch), count)
            print(f"{count:7,} files: {seconds:6.1f} s, " + ", ".join(f"{k} {v} MiB" for k, v in sorted(peaks.items())))
