"""What is proven about a table's content before any publish. The name of an operation proves nothing."""

from __future__ import annotations

import numpy as np

from omnigraph_ops.lance.errors import LanceFailure
from omnigraph_ops.lance.evidence import fragment_prints, row_versions
from omnigraph_ops.lance.gateway import Dataset, live_rows
from omnigraph_ops.lance.rewrites import validate_rewrite
from omnigraph_ops.lance.tables import open_indexes


def wrong_content(before: Dataset, after: Dataset) -> str | None:
    """What speaks against `after` having the rows of `before`, to end a sentence; None when nothing does. Reads.

    The number of live rows, the stable row ids and `unreadable` are compared. Values are not: see `evidence`.
    """
    return other_rows(before, after) or unreadable(before, after)


def other_rows(before: Dataset, after: Dataset) -> str | None:
    """Why `after` does not have the rows of `before`, to end a sentence; None when it has. Reads no data file."""
    try:
        had, has = live_rows(before), live_rows(after)
        if had != has:
            return f"has {has} rows instead of {had}"
        if before.has_stable_row_ids and not _same_row_ids(before, after):
            return "does not have the rows that it had"
    except LanceFailure as error:
        return f"cannot be read ({error})"
    return None


def unreadable(before: Dataset | None, after: Dataset) -> str | None:
    """Why readers of `after` would fail where those of `before` do not, to end a sentence; None if none would. Reads.

    Every data file that `before` did not have must hold what its fragment says, and every new index must open; all
    of them where there is no `before`.
    """
    try:
        validate_rewrite(after, before)
        open_indexes(after, besides=before)
    except LanceFailure as error:
        return f"cannot be read ({error})"
    return None


def _same_row_ids(before: Dataset, after: Dataset) -> bool:
    """Whether the fragments that are not the same on both sides hold the same rows. Reads row ids, no column."""
    old = {f.fragment_id: f.print for f in fragment_prints(before)}
    new = {f.fragment_id: f.print for f in fragment_prints(after)}
    gone = [number for number, text in old.items() if new.get(number) != text]
    made = [number for number, text in new.items() if old.get(number) != text]
    return np.array_equal(np.sort(row_versions(before, gone).ids), np.sort(row_versions(after, made).ids))
