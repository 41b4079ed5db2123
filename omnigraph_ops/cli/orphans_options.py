"""The options of `orphans`; kept apart from the verb, which imports Lance."""

from __future__ import annotations

import argparse

from omnigraph_ops.cli.consent import add_consent_options
from omnigraph_ops.cli.values import seconds

DEFAULT_AGE = "7d"


def add_orphans_options(parser: argparse.ArgumentParser) -> None:
    """Add what `orphans` takes beside the address of the graph."""
    parser.add_argument(
        "--older-than",
        type=seconds,
        metavar="DURATION",
        help=f"only files older than this (default of a preview {DEFAULT_AGE}; less needs --allow-young)",
    )
    parser.add_argument("--allow-young", action="store_true", help=f"let --older-than be less than {DEFAULT_AGE}")
    add_consent_options(parser, confirm="remove what the plan lists", plan="FILE")
    parser.add_argument(
        "--fence",
        "--keep-writers-away",
        dest="fence",
        action="store_true",
        help="hold the engine's schema-apply lock meanwhile; allows an age below one hour",
    )
    parser.add_argument("--listing", metavar="FILE", help="read this inventory (CSV, JSON lines, Parquet), do not list")
    parser.add_argument("--quarantine", action="store_true", help="plan to move the files aside, not to delete them")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quarantined", action="store_true", help="list what was moved aside")
    which.add_argument("--restore", metavar="ID", help="bring a quarantine back")
    which.add_argument("--purge", metavar="ID", help="with --confirm: delete what a quarantine holds")
