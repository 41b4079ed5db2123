"""What index work will write: a fold as much as the index is, grown by its new rows, a build as its column is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph_ops.lance.tables import FragmentFacts, IndexFacts, TableFacts
from omnigraph_ops.models import IndexBuild, IndexFold
from omnigraph_ops.stages.optimize.tiers import live_rows

_ROW_BYTES = {"BTREE": 4, "IVF_FLAT": 4, "INVERTED": 40}
"""Beside the values of its column, by type: where they are, and of a text index the words that only this row has."""
_FILE_BYTES = 4096
"""What the smallest index takes."""


def index_bytes(
    facts: TableFacts, folds: Iterable[IndexFold], builds: Iterable[IndexBuild], column_bytes: Mapping[str, int]
) -> int:
    """Bytes that these folds and builds are expected to write. Pure.

    Args:
        column_bytes: data bytes of the columns that are to be indexed for the first time.
    """
    by_name = {index.name: index for index in facts.indexes}
    folded = sum(_fold_bytes(by_name[fold.name], facts.fragments) for fold in folds)
    built = sum(
        _FILE_BYTES + column_bytes.get(build.column, 0) + facts.rows * _ROW_BYTES[build.index_type] for build in builds
    )
    return folded + built


def _fold_bytes(index: IndexFacts, fragments: Iterable[FragmentFacts]) -> int:
    """Folding writes the whole index anew; its size follows the rows that it covers."""
    rows = {f.fragment_id: live_rows(f) for f in fragments}
    covered = sum(number for fragment, number in rows.items() if fragment in index.covered)
    return index.size_bytes * sum(rows.values()) // covered if covered else index.size_bytes
