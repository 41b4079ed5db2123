"""What `calibrate` can measure: for each job the work to generate, both ways to do it, and the setting that follows.

A rewrite has a measuring application of its own (`rewrites`). Of the other jobs the whole call is timed both ways,
because each submit costs its start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omnigraph_ops.calibration import rewrites
from omnigraph_ops.calibration.rewrites import (
    Line,
    Sample,
    Unit,
    crossing,
    environment,
    line,
    scratch_errors,
    scratch_folder,
)
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.demo.tables import MOMENT, MOMENTS, compact_wide_table, write_moments, write_wide_table
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.gateway import live_rows
from omnigraph_ops.lance.rows import clock_of
from omnigraph_ops.models.backup import BackupReport, RestoreReport, VerifyReport
from omnigraph_ops.models.repair import EvidenceTier
from omnigraph_ops.models.rows import EpochUnit
from omnigraph_ops.models.runs import CalibratedJob
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.quantities import human_bytes
from omnigraph_ops.spark.submit import Submitter, spark_submit
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.stage import Backup, BackupRequest
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.stages.expire_rows.apply import Delete, SubmittedDelete, delete_here
from omnigraph_ops.stages.orphans.stage import Orphans, OrphansRequest
from omnigraph_ops.stages.repair.compare import BytesRead, Comparison, Here, OnSpark, Sides, estimate, read_side
from omnigraph_ops.stages.stage import Submit
from omnigraph_ops.views.view import Section, View

_FRAGMENTS = (16, 320)
"""Of the small and the large table, 3.5 MB each: a backup of the large one is five parts of the job `copy`."""
_FILES = (10_000, 200_000)
_ROWS_PER_ROW = 50
"""Rows of a fragment of moments for each of a wide one: they have one number each, and are quickly looked through."""
_MONTH = 30 * 86_400
_NEVER = 2**63 - 1
_REWRITE, _COPY = "OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES", "OMNIGRAPH_OPS_SPARK_COPY_THRESHOLD_BYTES"
_STAGES = "OMNIGRAPH_OPS_SPARK_STAGES"
_UNKNOWN = "unknown: the large work took no longer than the small one, so other work of this machine outweighs both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where one calibration measures, and how much."""

    folder: Path
    master: str
    rows: int
    """Per fragment of generated tables; the number of generated files is in proportion."""
    progress: Progress = SILENT


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedWork:
    """One generated piece of work, which both ways do again and again."""

    size: int
    """As the threshold counts it."""
    here: Callable[[], object]
    there: Callable[[Submit], object]
    undo: Callable[[], object] = lambda: None
    """Removes what a run wrote; not timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to set afterwards."""

    threshold: str
    """The variable up to the threshold; or what a person does from there on, where there is no variable."""
    never: str
    """What to set where Spark pays at no size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """How one job is measured, and what to set afterwards."""

    work: str
    """What is the same both ways, as in `rewrites`."""
    unit: Unit = "bytes"
    advice: Advice
    make: Callable[[Bench, Path, int], TimedWork] | None
    """Generates the work in a folder, of an amount. None: rewrites, which the job `measure` times in one session."""
    amounts: tuple[int, int] = _FRAGMENTS
    """Of the small and the large work."""

    def measure(self, bench: Bench) -> tuple[Line, Line]:
        """The lines in process and on Spark, each through the best of two runs. Writes in the folder of the bench."""
        if self.make is None:
            return _rewrites(bench)
        with scratch_errors():
            small, large = (self.make(bench, bench.folder / f"{self.unit}-{amount}", amount) for amount in self.amounts)
        submit = Submitter(master=bench.master, environment=environment(bench.folder))
        bench.progress(f"in process, {_amount(small.size, self.unit)} and {_amount(large.size, self.unit)}")
        here = [_best(work, work.here) for work in (small, large)]
        bench.progress(f"on {bench.master}, the same")
        there = [_best(work, partial(work.there, submit)) for work in (small, large)]
        return line(here[0], here[1], unit=self.unit), line(there[0], there[1], unit=self.unit)


def _rewrites(bench: Bench) -> tuple[Line, Line]:
    small, large = (rewrites.write_table(bench.folder / f"tasks-{n}", rows=bench.rows, tasks=n) for n in rewrites.TASKS)
    bench.progress(f"in process, {human_bytes(small.bytes)} and {human_bytes(large.bytes)}")
    here = line(rewrites.in_process(small), rewrites.in_process(large))
    bench.progress(f"on {bench.master}, the same")
    return here, line(*rewrites.submitted(small, large, bench.master))


def _best(work: TimedWork, run: Callable[[], object]) -> Sample:
    seconds = list[float]()
    for _ in range(rewrites.RUNS):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
        work.undo()
    return Sample(size=work.size, seconds=min(seconds))


def _copies(bench: Bench, folder: Path, fragments: int) -> TimedWork:
    """Backups of a table. Writes it."""
    graph = _wide(bench, folder, fragments)
    backups = folder.with_name(f"{folder.name}-backups")
    request = BackupRequest(destination=str(backups))
    return TimedWork(
        size=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        here=lambda: Backup().run(graph, request, SILENT),
        there=lambda submit: Backup().run(graph, request, SILENT, submit),
        undo=lambda: shutil.rmtree(backups, ignore_errors=True),
    )


def _verifications(bench: Bench, folder: Path, fragments: int) -> TimedWork:
    """Verifications of the backup of a table. Writes both."""
    made = _backup(bench, folder, fragments)
    return TimedWork(
        size=made.total.bytes,
        here=lambda: verify_backup(made.backup),
        there=lambda submit: submit("verify", ("--backup", made.backup), VerifyReport, lambda: None),
    )


def _restores(bench: Bench, folder: Path, fragments: int) -> TimedWork:
    """Restores of the backup of a table. Writes both."""
    made, place = _backup(bench, folder, fragments), folder.with_name(f"{folder.name}-restored")
    words = ("--backup", made.backup, "--place", str(place))
    return TimedWork(
        size=made.total.bytes,
        here=lambda: restore_backup(made.backup, str(place)),
        there=lambda submit: submit("restore", words, RestoreReport, lambda: None),
        undo=lambda: shutil.rmtree(place),
    )


def _backup(bench: Bench, folder: Path, fragments: int) -> BackupReport:
    request = BackupRequest(destination=str(folder.with_name(f"{folder.name}-backups")))
    return Backup().run(_wide(bench, folder, fragments), request, SILENT)


def _comparisons(bench: Bench, folder: Path, fragments: int) -> TimedWork:
    """Full evidence of a table that was compacted. Writes it."""
    graph = _wide(bench, folder, fragments)
    (entry,) = graph.state().entries
    compact_wide_table(str(folder / rewrites.DATASET), rows=bench.rows * rewrites.FRAGMENTS_PER_TASK)
    full, uri = EvidenceTier.FULL, graph.table_uri(entry)

    def sides() -> Sides:
        # The head of plain Lance is the version that the entry saw.
        return Sides(before=read_side(graph.open_pinned(entry)), after=read_side(graph.lance.open(uri)))

    def compare(comparison: Comparison) -> None:
        both, meter = sides(), BytesRead()
        comparison.rows(both, meter)
        comparison.values(both, meter)

    return TimedWork(
        size=next(cost.estimated_bytes for cost in estimate(sides()) if cost.tier is full),
        here=lambda: compare(Here()),
        there=lambda submit: compare(OnSpark(submit=submit, check=lambda: None, tier=full)),
    )


def _wide(bench: Bench, folder: Path, fragments: int) -> Graph:
    write_wide_table(str(folder / rewrites.DATASET), fragments=fragments, rows=bench.rows)
    return open_graph(str(folder / rewrites.DATASET), Settings())


def _searches(bench: Bench, folder: Path, files: int) -> TimedWork:
    """Plans for a graph with empty files that nothing refers to, every other one old enough to go. Writes it."""
    write_demo_graph(folder, DemoSpec(loads=1, rows=1, index_after_load=0))
    graph = open_graph(str(folder), Settings())
    tables, then = [entry.path for entry in graph.state().entries], time.time() - _MONTH
    number = files * bench.rows // rewrites.ROWS
    for n in range(number):
        file = folder / tables[n % len(tables)] / "data" / f"{n:032x}.lance"
        file.touch()
        if n % 2:
            os.utime(file, (then, then))
    return TimedWork(
        size=number,
        here=lambda: Orphans().plan(graph, OrphansRequest(), SILENT),
        there=lambda submit: Orphans().plan(graph, OrphansRequest(), SILENT, submit),
    )


def _expiries(bench: Bench, folder: Path, fragments: int) -> TimedWork:
    """Deletes of half the rows of a table. Writes it."""
    write_moments(str(folder / rewrites.DATASET), fragments=fragments, rows=bench.rows * _ROWS_PER_ROW)
    graph = open_graph(str(folder / rewrites.DATASET), Settings())
    (entry,) = graph.state().entries
    uri, whole = graph.table_uri(entry), graph.open_pinned(entry)
    clock = clock_of(whole, MOMENT, EpochUnit.S)

    def delete(way: Delete) -> int:
        return way(graph.lance.open(uri), clock, MOMENTS // 2, contextlib.nullcontext)

    def there(submit: Submit) -> int:
        return delete(SubmittedDelete(submit=submit, graph=graph))

    return TimedWork(size=live_rows(whole), here=lambda: delete(delete_here), there=there, undo=whole.restore)


def _of_stage(name: str) -> Advice:
    """A stage has its size in the list of all. Pure."""
    return Advice(threshold=f"{_STAGES}={name}=", never=f"nothing: leave {name} out of {_STAGES}")


_OF_BACKUPS = Advice(threshold=f"{_COPY}=", never=f"nothing: leave {_COPY} unset")
JOBS = {
    CalibratedJob.REWRITE: MeasuredJob(
        work="rewrites",
        # Without a value the default would stay, and send tables to Spark.
        advice=Advice(threshold=f"{_REWRITE}=", never=f"{_REWRITE}={_NEVER}"),
        make=None,
    ),
    CalibratedJob.COPY: MeasuredJob(work="backups", advice=_OF_BACKUPS, make=_copies),
    CalibratedJob.VERIFY: MeasuredJob(work="verifications", advice=_OF_BACKUPS, make=_verifications),
    CalibratedJob.RESTORE: MeasuredJob(
        work="restores",
        advice=Advice(
            threshold="nothing: give `restore` the option --spark from so many bytes on: ",
            never="nothing: restore without --spark",
        ),
        make=_restores,
    ),
    CalibratedJob.EVIDENCE: MeasuredJob(work="comparisons", advice=_of_stage("repair"), make=_comparisons),
    CalibratedJob.ORPHANS: MeasuredJob(
        work="plans of orphans", unit="files", advice=_of_stage("orphans"), make=_searches, amounts=_FILES
    ),
    CalibratedJob.EXPIRE: MeasuredJob(work="deletes", unit="rows", advice=_of_stage("expire-rows"), make=_expiries),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Both lines, and the size from which on Spark is faster: files of `orphans`, rows of `expire`, else bytes.

    All thresholds are None where Spark is never faster on this deployment.
    """

    job: CalibratedJob = CalibratedJob.REWRITE
    master: str
    in_process: Line
    spark: Line
    threshold_bytes: int | None = None
    threshold_files: int | None = None
    threshold_rows: int | None = None


def calibrate(
    *,
    job: CalibratedJob = CalibratedJob.REWRITE,
    master: str = "local[*]",
    scratch: str | None = None,
    rows: int = rewrites.ROWS,
    progress: Progress = SILENT,
) -> Calibration:
    """Do generated work both ways and compare. Writes and removes files in the scratch folder.

    Args:
        scratch: a folder that the Spark workers reach under the same path; default the temporary folder.
        rows: rows per fragment of the generated tables; few make it quick and tell nothing.

    Raises:
        InvalidInput: the scratch folder is not one.
        NotInstalled: Spark is not installed in this environment.
        OpsError: a submit failed; what it said is in the message.
    """
    spark_submit("calibrate")  # before the minute that the tables take
    measured = JOBS[job]
    with scratch_folder(scratch) as folder, _graphs_untouched():
        here, there = measured.measure(Bench(folder=folder, master=master, rows=rows, progress=progress))
    bound = crossing(here, there)
    return Calibration(
        job=job,
        master=master,
        in_process=here,
        spark=there,
        **{f"threshold_{measured.unit}": bound},
    )


@contextlib.contextmanager
def _graphs_untouched() -> Iterator[None]:
    """What fails is generated work: its error may speak of tables and publishes, and means no graph. Pure."""
    try:
        yield
    except InvalidInput:
        raise  # of the scratch folder, and says so
    except OpsError as error:
        raise OpsError(f"{error}; no graph of yours was touched") from None


def calibration_view(found: Calibration) -> View:
    """The result and what to set. Pure."""
    measured, bounds = JOBS[found.job], (found.threshold_bytes, found.threshold_files, found.threshold_rows)
    pays, said = f"at no size: Spark is no faster per {measured.unit[:-1]} here", measured.advice.never
    if not (found.in_process.rises and found.spark.rises):
        pays, said = _UNKNOWN, "nothing: repeat this on an idle machine"
    bound = next((size for size in bounds if size is not None), None)
    if bound is not None:
        pays, said = f"from {_amount(bound, measured.unit)} on", f"{measured.advice.threshold}{bound}"
    rows = tuple(
        (name, f"{one.fixed_seconds:.2f} s", f"{_amount(int(one.per_second), measured.unit)}/s")
        for name, one in (("in process", found.in_process), (found.master, found.spark))
    )
    return View.of(
        f"calibrate — the same {measured.work} in process and on Spark",
        Section.table("Measured", ("Where", "To start", "Then"), rows),
        facts=(("Spark pays", pays), ("Set", said)),
    )


def _amount(size: int, unit: Unit) -> str:
    return human_bytes(size) if unit == "bytes" else f"{size:,} {unit}"
