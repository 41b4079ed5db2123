"""The fence around a verb: bounded, and told when it is lifted."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.options import DEFAULT_FENCE_SECONDS
from omnigraph_ops.errors import UsageError

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


def fence_of(call: Call, graph: Graph) -> AbstractContextManager[Graph]:
    """The graph behind the fence that the options ask for, or as it is. Writes the lock branch while entered."""
    if not call.options.get("fence"):
        return contextlib.nullcontext(graph)
    from omnigraph_ops.coordination.fence import fenced

    seconds = fence_seconds(call)

    def lifted() -> None:
        call.tell(f"warning: the fence of {graph.target} was lifted after {seconds} s; writers go on")

    return fenced(graph, at_most_seconds=float(seconds), on_lift=lifted)


def fence_seconds(call: Call) -> int:
    """The bound on the fence; `UsageError` for a bound without a fence. Pure."""
    said: int | None = call.options.get("fence_seconds")
    if said is not None and not call.options["fence"]:
        raise UsageError("--fence-seconds bounds --fence; give both; nothing was done")
    seconds = DEFAULT_FENCE_SECONDS if said is None else said
    if seconds < 1:
        raise UsageError("--fence-seconds must be at least 1 s; nothing was done")
    return seconds
