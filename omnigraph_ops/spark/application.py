"""The one application that `spark-submit` runs: a job for every heavy part of a stage.

spark-submit --master MASTER application.py JOB --graph URI … [--result-uri PATH]

Any job may be submitted again after any failure: what a killed driver left half done is finished first, and what its
workers finished is not done again (docs/how-to/spark.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from omnigraph_ops import serde
from omnigraph_ops.errors import OpsError
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.spark.backup_jobs import COPY, RESTORE, VERIFY
from omnigraph_ops.spark.evidence_job import EVIDENCE
from omnigraph_ops.spark.expire_job import EXPIRE
from omnigraph_ops.spark.orphans_job import ORPHANS
from omnigraph_ops.spark.rewrite_job import MEASURE, REWRITE
from omnigraph_ops.storage.location import locate
from omnigraph_ops.storage.store import Storage

JOBS = (REWRITE, COPY, VERIFY, RESTORE, EVIDENCE, ORPHANS, EXPIRE, MEASURE)
_BY_NAME = {job.name: job for job in JOBS}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one job; the outcome goes to `--result-uri`. The effect of the job."""
    arguments = _parser().parse_args(argv)
    job = _BY_NAME[arguments.job]
    spark = SparkSession.builder.appName(f"omnigraph {job.name} {getattr(arguments, job.subject)}").getOrCreate()
    try:
        if arguments.result_uri is not None:
            write_outcome(arguments.result_uri, SubmitOutcome())
        value = job.run(spark, arguments)
    except OpsError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        write_outcome(arguments.result_uri, SubmitOutcome(error=str(error), retryable=error.retryable))
        return error.exit_code
    finally:
        spark.stop()
    write_outcome(arguments.result_uri, SubmitOutcome(value=value))
    return 0


def write_outcome(uri: str | None, outcome: SubmitOutcome[object]) -> None:
    """Put the outcome where the submitter reads it, atomically; without a place, print it. Writes."""
    text = serde.dumps(outcome)
    if uri is None:
        print(text, flush=True)
        return
    root, _, name = locate(uri).root.rpartition("/")
    Storage(root).write(name, text.encode())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="application.py", description="Do the heavy part of a stage on Spark.", allow_abbrev=False
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for job in JOBS:
        said = jobs.add_parser(job.name, help=job.summary, description=job.summary, allow_abbrev=False)
        said.add_argument("--result-uri", help="where the outcome goes, as JSON; default: standard output")
        job.arguments(said)
    return parser


if __name__ == "__main__":
    sys.exit(main())
