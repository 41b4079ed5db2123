"""Where two versions of a table are compared row by row: in this process, or in tasks of the job `evidence`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from omnigraph_ops.errors import OpsError
from omnigraph_ops.models.repair import EvidenceTier
from omnigraph_ops.stages.repair.compare import (
    BytesRead,
    Sides,
    ValueDiff,
    compare_rows,
    compare_values,
    compared_column,
    estimate,
    uncompared_column,
)
from omnigraph_ops.stages.repair.differences import Differences, RowDiff
from omnigraph_ops.stages.stage import Submit


class Here:
    """Compares in this process, one column at a time."""

    rows = staticmethod(compare_rows)
    values = staticmethod(compare_values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What the job `evidence` found."""

    differences: Differences
    bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark:
    """Compares in tasks of the job `evidence`; what is estimated below `from_bytes` is compared in this process."""

    submit: Submit
    check: Callable[[], None]
    tier: EvidenceTier
    from_bytes: int = 0
    _found: dict[int, Compared] = field(default_factory=dict)
    """The values of the table that is at work, by the identity of its sides: one job reads rows and values."""

    def rows(self, sides: Sides, meter: BytesRead) -> RowDiff:
        """Submit, and keep the values for later. Reads."""
        self._found.clear()
        if not self._is_worth_it(sides):
            return compare_rows(sides, meter)
        found = self.submit("evidence", self._words(sides), Compared, self.check)
        meter.count(found.bytes_read)
        self._found[id(sides)] = found
        return found.differences.rows

    def values(self, sides: Sides, meter: BytesRead) -> ValueDiff:
        """What the job of `rows` found. Reads where that was not submitted."""
        if id(sides) in self._found:
            return value_diff(sides, self._found[id(sides)].differences)
        if self._is_worth_it(sides):
            raise OpsError("the values were not compared, because the job that reads them failed")
        return compare_values(sides, meter)

    def _is_worth_it(self, sides: Sides) -> bool:
        cost = next(c.estimated_bytes for c in estimate(sides) if c.tier is self.tier)
        return not sides.same_fragments and cost >= self.from_bytes

    def _words(self, sides: Sides) -> tuple[str, ...]:
        before, after = sides.before.dataset, sides.after.dataset
        versions = ("--before", str(int(before.version)), "--after", str(int(after.version)))
        values = ("--values",) if self.tier is EvidenceTier.FULL else ()
        return ("--dataset", str(after.uri), *versions, *values)


Comparison = Here | OnSpark
"""Compares the fragments of one table that differ: rows by id first, then every value."""


def value_diff(sides: Sides, found: Differences) -> ValueDiff:
    """The columns of both sides with what was found about those that can be compared. Pure."""
    compared = iter(found.columns)
    return ValueDiff(
        columns=tuple(
            compared_column(pair, next(compared)) if pair.comparable else uncompared_column(pair)
            for pair in sides.columns
        ),
        changed=found.changed,
    )
