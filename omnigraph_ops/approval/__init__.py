"""What a person reads before they approve: Markdown bodies for a repair and for a cleanup."""

from omnigraph_ops.approval.cleanup import cleanup_body, policy_text
from omnigraph_ops.approval.markdown import human_bytes, human_seconds, ranges
from omnigraph_ops.approval.repair import repair_body

__all__ = ["cleanup_body", "human_bytes", "human_seconds", "policy_text", "ranges", "repair_body"]
