"""Recovery: `check` says what is pending, `recover` finishes what may be finished without a person."""

from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover

__all__ = ["check", "recover"]
