"""The options of `expire-rows`; kept apart from the verb, which imports Lance."""

from __future__ import annotations

import argparse

from omnigraph_ops.cli.consent import add_consent_options
from omnigraph_ops.cli.values import positive, seconds, share

DEFAULT_SHARE = 0.5


def add_retention_options(parser: argparse.ArgumentParser) -> None:
    """Add what `expire-rows` takes beside the address of the graph."""
    parser.add_argument("--table", metavar="KEY", dest="table", help="the table, e.g. node:Event")
    parser.add_argument("--property", metavar="NAME", help="a Date, a DateTime, or an integer with --unit")
    parser.add_argument(
        "--older-than", type=seconds, metavar="DURATION", help="rows whose property is older than this, e.g. 90d"
    )
    parser.add_argument("--unit", choices=("s", "ms"), help="what an integer property counts since 1970")
    parser.add_argument("--policies", metavar="FILE", help="a YAML or JSON list of policies instead of one by options")
    parser.add_argument("--branch", metavar="NAME", help="a branch instead of main")
    parser.add_argument(
        "--max-share",
        type=share,
        metavar="SHARE",
        help=f"of the rows of a table that may go (default of a preview {DEFAULT_SHARE})",
    )
    parser.add_argument(
        "--max-rows", type=positive, metavar="N", help="rows of a table that may go (default: as planned)"
    )
    parser.add_argument("--engine", metavar="PATH", help="the engine's binary (default: OMNIGRAPH_OPS_ENGINE)")
    add_consent_options(parser, confirm="delete what the plan allows", plan="FILE|DIGEST")
