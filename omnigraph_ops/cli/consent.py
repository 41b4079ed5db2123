"""Consent to a destructive verb on a graph that is not on this machine."""

from __future__ import annotations

import argparse
import sys

from omnigraph_ops.errors import ApprovalMissing
from omnigraph_ops.graph.location import locate


def require_consent(args: argparse.Namespace, target: str) -> None:
    """Require --yes, or a typed yes on a terminal, unless the graph is local. Reads stdin.

    Raises:
        ApprovalMissing: neither was given; nothing was touched.
    """
    if locate(target).is_local or args.yes:
        return
    verb = args.verb
    if args.json or not sys.stdin.isatty():
        raise ApprovalMissing(
            f"refusing destructive `{verb}` against non-local target {target} without confirmation; "
            "pass --yes to confirm (an interactive TTY would be prompted instead)"
        )
    prompt = f"About to run a destructive `{verb}` against {target} (not local). Type 'yes' to continue: "
    print(prompt, end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)  # the end of input leaves the prompt's line open
    if answer.strip().lower() not in {"yes", "y"}:
        raise ApprovalMissing(f"aborted: destructive `{verb}` not confirmed; nothing was deleted")
