"""Cleanup: remove old versions and orphaned forks, exactly those that a plan listed."""

from omnigraph_ops.stages.cleanup.apply import cleanup_all, cleanup_table, remove_orphaned_forks
from omnigraph_ops.stages.cleanup.plan import plan_cleanup

__all__ = ["cleanup_all", "cleanup_table", "plan_cleanup", "remove_orphaned_forks"]
