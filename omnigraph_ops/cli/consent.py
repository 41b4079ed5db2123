"""What a person must have said before a verb changes a graph: the terms that decide, and consent to another machine."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph_ops.cli.stderr import LossyStderr
from omnigraph_ops.errors import ApprovalMissing, UsageError
from omnigraph_ops.storage.location import locate


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """What a verb is about to do, for the question about it."""

    does: str | None
    """As in `publishes the heads of drifted tables`; None for what destroys."""
    untouched: str
    """What is true when the answer is no."""

    def named(self, verb: str) -> str:
        """The verb as its question and its refusal name it. Pure."""
        return f"destructive `{verb}`" if self.does is None else f"`{verb}`, which {self.does},"


DELETES = Consequence(does=None, untouched="nothing was deleted")


def require_consent(args: argparse.Namespace, target: str, effect: Consequence = DELETES) -> None:
    """Require --yes, or a typed yes on a terminal, unless the graph is local. Reads stdin.

    Raises:
        ApprovalMissing: neither was given; nothing was touched.
    """
    if locate(target).is_local or args.yes:
        return
    what = effect.named(args.verb)
    if args.json or not sys.stdin.isatty():
        raise ApprovalMissing(
            f"refusing {what} against non-local target {target} without confirmation; "
            "pass --yes to confirm (an interactive TTY would be prompted instead)"
        )
    article = "a " if effect.does is None else ""
    prompt = f"About to run {article}{what} against {target} (not local). Type 'yes' to continue: "
    print(prompt, end="", file=sys.stderr, flush=True)
    if isinstance(sys.stderr, LossyStderr) and sys.stderr.lost:
        raise ApprovalMissing(f"the question about {what} cannot be shown on stderr; {effect.untouched}; pass --yes")
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)  # the end of input leaves the prompt's line open
    if answer.strip().lower() not in {"yes", "y"}:
        raise ApprovalMissing(f"aborted: {what} not confirmed; {effect.untouched}")


def require_terms(args: argparse.Namespace, **defaults: object) -> None:
    """Refuse `--confirm` that would decide by a default, or that is to save a plan instead. Pure.

    Args:
        defaults: options by their names in `args`, with what a preview uses for them.

    Raises:
        UsageError: an option is missing that a plan would have carried; nothing was read.
    """
    if not args.confirm:
        return
    if args.save_plan is not None:
        raise UsageError("--save-plan saves a preview; apply it afterwards with --plan FILE --confirm")
    missing = options(**{name: value for name, value in defaults.items() if getattr(args, name) is None})
    if missing and args.plan is None:
        raise UsageError(
            f"{args.verb} --confirm decides by what you write, not by a default; nothing was deleted; add "
            f"{' '.join(missing)}, or bind it to a saved preview with --plan"
        )


def options(**values: object) -> list[str]:
    """These values as the options of a command line, without those that are None. Pure."""
    given = [(f"--{name.replace('_', '-')}", str(value)) for name, value in values.items() if value is not None]
    return [word for pair in given for word in pair]


def say_how_to_apply(args: argparse.Namespace, target: str, terms: Sequence[str]) -> None:
    """After a preview: the command that carries it out. Writes to stderr.

    Args:
        terms: what the preview decided by; a saved or bound plan carries it already.
    """
    plan = args.save_plan or args.plan
    chosen = ["--plan", plan] if plan is not None else terms
    kept = [f"--{name.replace('_', '-')}" for name in ("allow_young", "fence") if getattr(args, name, False)]
    command = shlex.join(["omnigraph-ops", args.verb, target, *chosen, *kept, "--confirm"])
    print(f"to carry out {'this plan' if plan is not None else 'this policy'}: {command}", file=sys.stderr)


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add `--yes`, alike for every verb that `require_consent` is for."""
    parser.add_argument("--yes", action="store_true", help="consent for a graph that is not on this machine")


def add_consent_options(parser: argparse.ArgumentParser, confirm: str, plan: str) -> None:
    """Add `--confirm`, `--yes`, `--save-plan` and `--plan`, alike for every verb that asks."""
    parser.add_argument("--confirm", action="store_true", help=confirm)
    add_yes(parser)
    parser.add_argument("--save-plan", metavar="FILE", help="also write the sealed plan of a preview to a file")
    parser.add_argument("--plan", metavar=plan, help="this plan and nothing else; applies with --confirm")
