"""The Spark application with slow tasks; only a test submits it."""

from __future__ import annotations

import sys
import time

from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome
from omnigraph_ops.lance.rewrites import TaskLimits
from omnigraph_ops.spark import application, rewrite_job

_real = rewrite_job.execute_on_worker


def _slow(uri: str, version: int, limits: TaskLimits, tries: int, order: TaskOrder) -> TaskOutcome:
    time.sleep(1.5)
    return _real(uri, version, limits, tries, order)


if __name__ == "__main__":
    rewrite_job.execute_on_worker = _slow
    sys.exit(application.main())
