"""`omnigraph-ops install-text-indexer`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from omnigraph_ops.cli.output import emit, progress
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.lance.text_indexer import RELEASES, home_of, install


@dataclass(frozen=True, slots=True, kw_only=True)
class TextIndexers:
    """Where the releases are, which there are, and which of them were installed just now."""

    folder: str
    releases: tuple[str, ...]
    installed: tuple[str, ...]


def text_indexer_verb(args: argparse.Namespace) -> int:
    """Install what is missing and say where it is. Writes."""
    home = home_of(Settings.from_env().text_indexers)
    done = install(home, on_progress=progress(args), again=args.again)
    emit(
        args,
        TextIndexers(folder=str(home), releases=tuple(RELEASES), installed=done),
        f"text indexers in {home}: pylance {', '.join(RELEASES)}",
    )
    return 0
