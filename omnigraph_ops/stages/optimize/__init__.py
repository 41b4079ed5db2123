"""Optimize: fold indexes, rewrite small fragments, publish; content-preserving throughout."""

from omnigraph_ops.stages.optimize.budget import Budget, budget_of, note_deferrals
from omnigraph_ops.stages.optimize.plan import plan_table
from omnigraph_ops.stages.optimize.run import (
    optimize_all,
    optimize_internal,
    optimize_internal_last,
    optimize_table,
    plan_optimize,
)

__all__ = [
    "Budget",
    "budget_of",
    "note_deferrals",
    "optimize_all",
    "optimize_internal",
    "optimize_internal_last",
    "optimize_table",
    "plan_optimize",
    "plan_table",
]
