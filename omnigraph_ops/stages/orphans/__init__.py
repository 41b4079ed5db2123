"""Orphans: remove what no version of any dataset, branch or tag refers to, exactly what a plan listed."""

from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.orphans.quarantine import list_quarantines, preview_quarantine, purge, restore
from omnigraph_ops.stages.orphans.texts import orphans_body

__all__ = [
    "apply_orphans",
    "list_quarantines",
    "orphans_body",
    "plan_orphans",
    "preview_quarantine",
    "purge",
    "restore",
]
