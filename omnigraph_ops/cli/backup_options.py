"""The options of the verbs about backups; the verbs import Lance, these do not."""

from __future__ import annotations

import argparse

from omnigraph_ops.cli.consent import add_yes
from omnigraph_ops.cli.values import address, size


def add_backup(parser: argparse.ArgumentParser) -> None:
    """Add what `backup` takes."""
    parser.add_argument(
        "destination", type=address, metavar="DEST", nargs="?", help="a folder or s3:// prefix: DEST/<backup-id>/"
    )
    parser.add_argument("--freeze", metavar="ID", dest="freeze_id", help="this freeze (default: one of its own)")
    parser.add_argument(
        "--incremental-from", metavar="BACKUP", help="take unchanged files from this earlier backup, read the rest"
    )
    parser.add_argument(
        "--checksum", action="store_true", help="a SHA-256 of every file, also where the store could copy by itself"
    )
    _add_pace(parser)


def add_other_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `verify`, `restore` and `backups`, which address backups and no graph."""
    verify = _verb(verbs, "verify", "Read a backup again, all of it. Exit 1 with every file that is not as backed up.")
    _add_backup(verify)
    verify.add_argument(
        "--graph", type=address, metavar="GRAPH", help="also compare what this graph still has of its files"
    )
    _add_pace(verify)
    restore = _verb(verbs, "restore", "Make a graph of a backup at an empty place, and check it. Never overwrites.")
    _add_backup(restore)
    restore.add_argument("destination", type=address, metavar="DEST", help="path or s3:// URI of the graph to be")
    add_yes(restore)
    _add_pace(restore)
    listing = _verb(verbs, "backups", "List the backups below a destination: age, size, base, finished or not.")
    listing.add_argument("destination", type=address, metavar="DEST", help="as given to `backup`")


def _verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    parser.add_argument("--quiet", action="store_true", help="no target line and no progress on stderr")
    return parser


def _add_backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "backup", type=address, metavar="BACKUP", help="folder of one backup, as `backup` and `backups` print it"
    )


def _add_pace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-bytes-per-second", type=size, metavar="SIZE", help="go no faster than this, e.g. 50MB")
