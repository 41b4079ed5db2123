"""Declares all verbs; they are imported in the order of the help."""

from __future__ import annotations

from omnigraph_ops.cli import stages  # isort: skip
from omnigraph_ops.cli import records  # isort: skip
from omnigraph_ops.cli import backup  # isort: skip
from omnigraph_ops.cli import freeze  # isort: skip
from omnigraph_ops.cli import setup  # isort: skip

__all__ = ["backup", "freeze", "records", "setup", "stages"]
