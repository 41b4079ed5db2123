"""The options of `omnigraph-ops install-text-indexer`."""

from __future__ import annotations

import argparse

_TEXT_INDEXER = """\
Install the releases of pylance that write full-text indexes (about 200 MB each), each in a folder of its own.

The engine looks up stemmed words. Lance 9 changed the stop words and Lance 11 the stemmer, so an index that this
tool's own pylance writes hides some words from the engine. With these releases optimize writes text indexes as the
engine's Lance does: 8.0.1 for graphs of stamp 3, 10.0.0 for those of stamp 6. Without them text indexes are left to
the engine, and `plan` lists them as pending.

Run it once per Python environment: on every Airflow worker, and where the driver of a Spark submit runs. `make
install` and the Dockerfile do it. Releases go below the prefix of this Python, or to OMNIGRAPH_OPS_TEXT_INDEXERS.

  omnigraph-ops install-text-indexer
  OMNIGRAPH_OPS_TEXT_INDEXERS=/opt/text-indexers omnigraph-ops install-text-indexer
"""


def add_text_indexer(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `install-text-indexer` to the verbs."""
    parser = verbs.add_parser(
        "install-text-indexer",
        help="Install what writes full-text indexes as the engine's own Lance does.",
        description=_TEXT_INDEXER,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--again", action="store_true", help="install releases that are there already, too")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
