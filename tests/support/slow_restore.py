"""The Spark application with parts of few files; only a test submits it."""

from __future__ import annotations

import sys

from omnigraph_ops.spark import application
from omnigraph_ops.stages.backup import parts

if __name__ == "__main__":
    parts._PART_FILES = 5
    sys.exit(application.main())
