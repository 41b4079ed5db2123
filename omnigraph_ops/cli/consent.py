"""What a person must have said before a verb changes a graph: the terms that decide, and consent to another machine."""

from __future__ import annotations

import sys

from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.stderr import LossyStderr
from omnigraph_ops.errors import ApprovalMissing
from omnigraph_ops.storage.location import locate


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
