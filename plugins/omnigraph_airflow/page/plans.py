"""A kept plan as facts and tables: everything that its approval covers."""

from __future__ import annotations

from typing import Any

from omnigraph_ops.coordination.state import PLANS_DIR
from omnigraph_ops.stages.registry import BY_NAME
from omnigraph_ops.views.plan import bounded
from omnigraph_ops.views.view import View


def plan_view(plan: Any) -> View:
    """The page about a plan of any stage. Pure."""
    stage = next((stage for stage in BY_NAME.values() if isinstance(plan, stage.plan_type)), None)
    if stage is None:
        raise TypeError(f"there is no page for a {type(plan).__name__}")
    kept = f"{PLANS_DIR}/{plan.digest.removeprefix('sha256:')}.json in the graph; at the shell --json prints it"
    return bounded(stage.view(plan), kept)
