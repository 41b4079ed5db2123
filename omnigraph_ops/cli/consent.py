"""What stands before the effect of a verb: the consent of a person, and the fence around it."""

from __future__ import annotations

import contextlib
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.options import DEFAULT_FENCE_SECONDS
from omnigraph_ops.cli.process import LossyStderr
from omnigraph_ops.errors import ApprovalMissing, UsageError
from omnigraph_ops.storage.location import locate

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


def require_consent(call: Call, target: str, *, does: str = "", untouched: str = "nothing was deleted") -> None:
    """Require --yes, or a typed yes on a terminal, unless the graph is local. Reads stdin.

    Args:
        does: what the verb does, as in `publishes the heads of drifted tables`; empty for what destroys.
        untouched: what is true when the answer is no.

    Raises:
        ApprovalMissing: neither was given; nothing was touched.
    """
    if locate(target).is_local or call.yes:
        return
    what = f"`{call.verb}`, which {does}," if does else f"destructive `{call.verb}`"
    if call.json or not sys.stdin.isatty():
        raise ApprovalMissing(
            f"refusing {what} against non-local target {target} without confirmation; "
            "pass --yes to confirm (an interactive TTY would be prompted instead)"
        )
    article = "" if does else "a "
    prompt = f"About to run {article}{what} against {target} (not local). Type 'yes' to continue: "
    print(prompt, end="", file=sys.stderr, flush=True)
    if isinstance(sys.stderr, LossyStderr) and sys.stderr.lost:
        raise ApprovalMissing(f"the question about {what} cannot be shown on stderr; {untouched}; pass --yes")
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)  # the end of input leaves the prompt's line open
    if answer.strip().lower() not in {"yes", "y"}:
        raise ApprovalMissing(f"aborted: {what} not confirmed; {untouched}")


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
