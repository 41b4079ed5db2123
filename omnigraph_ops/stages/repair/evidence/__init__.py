"""What differs between the published version of a drifted table and its Lance HEAD, for a person to judge."""

from omnigraph_ops.stages.repair.evidence.collect import EvidenceCollector

__all__ = ["EvidenceCollector"]
