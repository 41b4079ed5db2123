"""The options of `expire-rows`; kept apart from the verb, which imports Lance."""

from __future__ import annotations

import argparse

DEFAULT_SHARE = 0.5


def add_retention_options(parser: argparse.ArgumentParser) -> None:
    """Add what `expire-rows` takes beside the address of the graph."""
    parser.add_argument("--table", metavar="KEY", dest="table", help="the table, e.g. node:Event")
    parser.add_argument("--property", metavar="NAME", help="a Date, a DateTime, or an integer with --unit")
    parser.add_argument("--older-than", metavar="DURATION", help="rows whose property is older than this, e.g. 90d")
    parser.add_argument("--unit", choices=("s", "ms"), help="what an integer property counts since 1970")
    parser.add_argument("--policies", metavar="FILE", help="a YAML or JSON list of policies instead of one by options")
    parser.add_argument("--branch", metavar="NAME", help="a branch instead of main")
    parser.add_argument(
        "--max-share", type=float, metavar="SHARE", help=f"of the rows of a table that may go (default {DEFAULT_SHARE})"
    )
    parser.add_argument("--max-rows", type=int, metavar="N", help="rows of a table that may go (default: as planned)")
    parser.add_argument("--engine", metavar="PATH", help="the engine's binary (default: OMNIGRAPH_OPS_ENGINE)")
    parser.add_argument("--confirm", action="store_true", help="delete what the plan allows")
    parser.add_argument("--yes", action="store_true", help="consent for a graph that is not on this machine")
    parser.add_argument("--save-plan", metavar="FILE", help="also write the sealed plan to a file")
    parser.add_argument(
        "--plan", metavar="FILE|DIGEST", help="this plan and nothing else: a file, or the digest of a preview"
    )
