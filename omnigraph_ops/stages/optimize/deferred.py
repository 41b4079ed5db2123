"""Commit rewrites, with the work on indexes put off where that was asked for.

Where row ids are not stable, a rewrite moves every row, and Lance writes each index anew within the commit.
Deferred, it notes in `__lance_frag_reuse` where rows went and indexes keep their files. That note may never be
dropped: every query would come back empty. And Lance 7 fails on vector indexes until they are folded, so that
follows at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.rewrites import RewriteMetrics
from omnigraph_ops.lance.tables import commit_results, fold_index, index_facts


def commit_rewrites(
    dataset: Dataset, results: Sequence[str], *, defer_index_remap: bool, leave: Collection[str] = ()
) -> RewriteMetrics:
    """Commit finished rewrites; deferred, fold every index afterwards. Writes.

    Args:
        leave: indexes that stay unfolded: this pylance would add words to them that their readers do not find.
    """
    metrics = commit_results(dataset, results, defer_index_remap=defer_index_remap)
    for index in index_facts(dataset) if defer_index_remap else ():
        if index.name not in leave:
            fold_index(dataset, index.name, index.segments)
    return metrics


def refuse_deferral(dataset: Dataset, table_key: str) -> None:
    """Refuse to defer where nothing is to be deferred; `InvalidInput` says why. Reads."""
    if dataset.has_stable_row_ids:
        raise InvalidInput(
            f"--defer-index-remap does not apply to {table_key}: its row ids are stable, a rewrite moves no row "
            "of any index; nothing was written; leave the option out"
        )
