"""The Spark application with slow tasks; only a test submits it."""

from __future__ import annotations

import sys
import time
from typing import Any

from omnigraph_ops.rewrites.work import TaskOutcome
from omnigraph_ops.spark import executor, rewrite_table

_real = executor.execute_on_worker


def _slow(*arguments: Any) -> TaskOutcome:
    time.sleep(1.5)
    return _real(*arguments)


if __name__ == "__main__":
    executor.execute_on_worker = _slow
    sys.exit(rewrite_table.main())
