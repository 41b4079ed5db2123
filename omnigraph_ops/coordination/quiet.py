"""Is the graph quiet: nothing pending, nobody maintaining it, no publish for a while."""

from __future__ import annotations

import time

from omnigraph_ops.coordination.fence import stale_fence
from omnigraph_ops.coordination.lease import working_holder
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models import QuietState


def quiet_state(graph: Graph, quiet_seconds: float) -> QuietState:
    """Whether the last publish is at least `quiet_seconds` old and no other run holds the lease. Reads.

    Pending recovery does not count, nor does a fence of a run that was killed: the recovery check comes next and
    decides about both.
    """
    age = seconds_since_publish(graph)
    lease = working_holder(graph.storage)
    if lease is not None:
        return _state(graph, quiet=False, reason=f"{lease.owner} is maintaining it ({lease.purpose})", age=age)
    if graph.is_locked() and stale_fence(graph) is None:
        return _state(graph, quiet=False, reason="a schema apply is in progress", age=age)
    if age < quiet_seconds:
        return _state(graph, quiet=False, reason=f"last publish {age:.0f} s ago", age=age)
    return _state(graph, quiet=True, reason=f"no publish for {age:.0f} s", age=age)


def seconds_since_publish(graph: Graph) -> float:
    """Age of the newest publish in seconds. Reads the clock."""
    published_at = graph.published_at()
    return max(0.0, time.time() - published_at) if published_at else 0.0


def _state(graph: Graph, *, quiet: bool, reason: str, age: float) -> QuietState:
    return QuietState(uri=graph.uri, quiet=quiet, reason=reason, seconds_since_publish=round(age, 1))
