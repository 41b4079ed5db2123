"""The Spark application whose index tasks leave a mark each and are done twice; only a test submits it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from uuid import uuid4

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.models.optimize import TablePlan
from omnigraph_ops.spark import application, rewrite_job
from omnigraph_ops.spark.rewrite_job import IndexDone, index_on_worker

MARKS = os.environ["MARKS"]


def _twice(target: str, settings: Settings, uri: str, since: int, plan: TablePlan) -> IndexDone:
    """As when a speculative copy of the task comes second: the index is committed to the clone, and nobody told."""
    index_on_worker(target, settings, uri, since, plan)
    Path(MARKS, uuid4().hex).touch()
    time.sleep(2.0)
    return index_on_worker(target, settings, uri, since, plan)


if __name__ == "__main__":
    vars(rewrite_job).update(index_on_worker=_twice)
    sys.exit(application.main())
