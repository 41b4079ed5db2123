"""The Spark application whose deletes leave a mark each and are done twice, or whose driver dies; for a test only."""

from __future__ import annotations

import os
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from omnigraph_ops.spark import application, expire_job
from omnigraph_ops.spark.expire_job import delete_on_worker
from omnigraph_ops.stages.expire_rows.apply import TaskDone

MARKS, DIES = os.environ["MARKS"], "DRIVER_DIES" in os.environ


def _twice(arguments: Namespace, fragments: Sequence[int]) -> TaskDone:
    """As when a speculative copy of the task comes second: its files are there, and its outcome is not taken."""
    delete_on_worker(arguments, fragments)
    Path(MARKS, uuid4().hex).touch()
    time.sleep(1.0)
    return delete_on_worker(arguments, fragments)


def _die() -> None:
    while not list(Path(MARKS).iterdir()):
        time.sleep(0.05)
    os._exit(137)


if __name__ == "__main__":
    vars(expire_job).update(delete_on_worker=_twice, _FRAGMENTS_OF_TASK=1)
    if DIES:
        threading.Thread(target=_die, daemon=True).start()
    sys.exit(application.main())
