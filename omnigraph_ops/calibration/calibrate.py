"""Both lines of a job, where they cross, and what to set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph_ops.calibration.jobs import JOBS, Bench
from omnigraph_ops.calibration.lines import Line, Unit, crossing
from omnigraph_ops.calibration.rewrites import ROWS
from omnigraph_ops.calibration.scratch import scratch_folder
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.models.runs import CalibratedJob
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.quantities import human_bytes
from omnigraph_ops.spark.submit import spark_submit
from omnigraph_ops.views.view import Section, View

_UNKNOWN = "unknown: the large work took no longer than the small one, so other work of this machine outweighs both"


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
    rows: int = ROWS,
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
        threshold_bytes=bound if measured.unit == "bytes" else None,
        threshold_files=bound if measured.unit == "files" else None,
        threshold_rows=bound if measured.unit == "rows" else None,
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
    pays, said = f"at no size: Spark is no faster per {measured.unit[:-1]} here", measured.never
    if not (found.in_process.rises and found.spark.rises):
        pays, said = _UNKNOWN, "nothing: repeat this on an idle machine"
    bound = next((size for size in bounds if size is not None), None)
    if bound is not None:
        pays, said = f"from {_amount(bound, measured.unit)} on", f"{measured.setting}{bound}"
    rows = tuple(
        (name, f"{one.fixed_seconds:.2f} s", f"{_amount(int(one.per_second), measured.unit)}/s")
        for name, one in (("in process", found.in_process), (found.master, found.spark))
    )
    return View(
        title=f"calibrate — the same {measured.work} in process and on Spark",
        facts=(("Spark pays", pays), ("Set", said)),
        sections=(Section(title="Measured", header=("Where", "To start", "Then"), rows=rows),),
    )


def _amount(size: int, unit: Unit) -> str:
    return human_bytes(size) if unit == "bytes" else f"{size:,} {unit}"
