"""The options of the verbs about holding still: freezes, holds and the fence; the verbs import Lance, these do not."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from omnigraph_ops.cli.consent import add_yes
from omnigraph_ops.cli.values import positive, seconds

AddVerb = Callable[[str, str], argparse.ArgumentParser]
DEFAULT_TTL = "1d"
DEFAULT_FENCE = "10m"


def add_freeze_verbs(add: AddVerb) -> None:
    """Add `freeze`, `unfreeze`, `files`, `holds`, `hold` and `release`."""
    _freeze(add("freeze", "Keep the graph, with all its branches, as it is now readable until the freeze ends."))
    parser = add("unfreeze", "End a freeze: its tags and its record go, maintenance goes on.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("hold_id", metavar="ID", nargs="?", help="the freeze, as `freeze` and `holds` print it")
    which.add_argument("--all-mine", action="store_true", help="every freeze of this user on this machine")
    add_yes(parser)
    _files(add("files", "List the files of a freeze: copied elsewhere, precisely these are the graph. Reads."))
    add("holds", "List freezes and other holds: who, what, why, since when, until when. Removes ended ones.")
    _hold(add("hold", "Announce that you read a version of a table: nobody's cleanup of ours removes it meanwhile."))
    release = add("release", "End a hold that `hold` announced.")
    release.add_argument("hold_id", metavar="ID", help="the hold, as `hold` and `holds` print it")
    add_yes(release)


def add_fence_options(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--fence` and the bound on it."""
    parser.add_argument("--fence", "--keep-writers-away", dest="fence", action="store_true", help=text)
    parser.add_argument(
        "--fence-seconds",
        type=seconds,
        metavar="DURATION",
        help=f"with --fence: let the writers go on after this (default {DEFAULT_FENCE})",
    )


def _freeze(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", metavar="KEY", action="append", default=[], dest="tables", help="only this table")
    parser.add_argument(
        "--ttl",
        type=seconds,
        default=DEFAULT_TTL,
        metavar="DURATION",
        help=f"the freeze ends by itself after this (default {DEFAULT_TTL})",
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="shown to everybody whom the freeze stops")
    parser.add_argument("--extend", metavar="ID", help="let this freeze end --ttl from now instead of taking a new one")
    add_yes(parser)
    add_fence_options(parser, "keep engine writers away while the freeze is taken: all branches at one instant")


def _files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--freeze", required=True, metavar="ID", dest="freeze_id", help="the freeze to list")
    parser.add_argument("--checksum", action="store_true", help="read every file and add its SHA-256")
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table", help="how to print it")


def _hold(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", required=True, metavar="KEY", help="the table that you read")
    parser.add_argument("--version", type=positive, metavar="N", help="its version (default: what is published now)")
    parser.add_argument("--branch", metavar="NAME", help="the graph branch that you read (default main)")
    parser.add_argument("--ttl", type=seconds, metavar="DURATION", default="1h", help="how long at most (default 1h)")
    parser.add_argument("--reason", default="a reader", metavar="TEXT", help="shown in plans of cleanup")
    add_yes(parser)
