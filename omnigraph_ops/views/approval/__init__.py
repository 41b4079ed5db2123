"""What a person reads before they approve: Markdown bodies for a repair and for a cleanup."""

from omnigraph_ops.views.approval.cleanup import cleanup_body, policy_text
from omnigraph_ops.views.approval.repair import repair_body
from omnigraph_ops.views.markdown import human_bytes, human_seconds, ranges

__all__ = ["cleanup_body", "human_bytes", "human_seconds", "policy_text", "ranges", "repair_body"]
