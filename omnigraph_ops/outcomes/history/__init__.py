"""The history of a graph: one record per run in a Lance table under `__maintenance/`."""

from omnigraph_ops.outcomes.history.read import read_run, read_runs, table_trend
from omnigraph_ops.outcomes.history.write import append, keep

__all__ = ["append", "keep", "read_run", "read_runs", "table_trend"]
