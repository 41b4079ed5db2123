"""The shell face of the stages: one verb per stage."""

from omnigraph_ops.cli.main import main

__all__ = ["main"]
