"""Whether the content is proven equal or different; what is not proven is said to be unknown. Pure."""

from __future__ import annotations

from omnigraph_ops.stages.repair.evidence.compare import RowDiff
from omnigraph_ops.stages.repair.evidence.rows import ValueDiff
from omnigraph_ops.stages.repair.evidence.sides import Sides


def content_verdict(sides: Sides, diff: RowDiff | None, values: ValueDiff | None) -> tuple[bool | None, str]:
    """Equal, different or unknown (None), with the reason; `diff` and `values` as far as they were read. Pure."""
    if not sides.same_columns:
        return False, "the columns differ"
    if sides.same_fragments:
        return True, "every fragment is the same: its files, its deletions and its row ids"
    if sides.before.rows != sides.after.rows:
        return False, "the number of rows differs"
    if diff is None:
        return None, "no row was looked at"
    if len(diff.added) or len(diff.removed):
        return False, "rows were added or removed"
    return _by_values(diff, values)


def _by_values(diff: RowDiff, values: ValueDiff | None) -> tuple[bool | None, str]:
    if values is not None:
        if len(values.changed):
            return False, "values differ"
        return True, "every value of every row outside identical fragments was compared, by 64-bit hash"
    if diff.rewritten is not None and not len(diff.rewritten):
        return None, "the row ids are the same and no row is recorded as written again; values were not compared"
    return None, "the row ids are the same; values were not compared"
