"""The fence around a verb: bounded, and said when it is lifted."""

from __future__ import annotations

import argparse
import contextlib
import sys
from contextlib import AbstractContextManager

from omnigraph_ops.cli.freeze_options import DEFAULT_FENCE
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.durations import parse_duration
from omnigraph_ops.errors import UsageError
from omnigraph_ops.graph.graph import Graph


def fence_of(args: argparse.Namespace, graph: Graph) -> AbstractContextManager[Graph]:
    """The fence that the options ask for, or nothing. Writes the lock branch while it is entered."""
    if not args.fence:
        return contextlib.nullcontext(graph)
    seconds = fence_seconds(args)

    def lifted() -> None:
        print(f"warning: the fence of {graph.target} was lifted after {seconds} s; writers go on", file=sys.stderr)

    return fenced(graph, at_most_seconds=float(seconds), on_lift=lifted)


def fence_seconds(args: argparse.Namespace) -> int:
    """The bound on the fence; `UsageError` for a bound without a fence. Pure."""
    if args.fence_seconds is not None and not args.fence:
        raise UsageError("--fence-seconds bounds --fence; give both; nothing was done")
    seconds: int = parse_duration(DEFAULT_FENCE) if args.fence_seconds is None else args.fence_seconds
    if seconds < 1:
        raise UsageError("--fence-seconds must be at least 1 s; nothing was done")
    return seconds
