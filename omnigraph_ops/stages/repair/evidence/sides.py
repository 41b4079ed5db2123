"""Both versions of a drifted table, opened, with what their metadata says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from omnigraph_ops.lance.evidence import ColumnFacts, FragmentPrint, column_facts, fragment_prints
from omnigraph_ops.lance.gateway import Dataset, live_rows
from omnigraph_ops.stages.repair.evidence.compare import ColumnPair, column_pairs, identical_fragments


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One version of the table."""

    dataset: Dataset
    fragments: tuple[FragmentPrint, ...]
    columns: tuple[ColumnFacts, ...]
    rows: int


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The published version and the Lance HEAD."""

    before: Side
    after: Side

    @cached_property
    def columns(self) -> tuple[ColumnPair, ...]:
        """Columns of both by name."""
        return column_pairs(self.before.columns, self.after.columns)

    @cached_property
    def identical(self) -> frozenset[int]:
        """Fragments that need no comparison."""
        return identical_fragments(self.before.fragments, self.after.fragments, self.columns)

    def differing(self, side: Side) -> tuple[FragmentPrint, ...]:
        """Fragments of a side that are not the same on the other. Pure."""
        return tuple(f for f in side.fragments if f.fragment_id not in self.identical)

    def differing_ids(self, side: Side) -> frozenset[int]:
        return frozenset(f.fragment_id for f in self.differing(side))

    @property
    def same_columns(self) -> bool:
        """Whether both have the same columns with the same types."""
        return all(pair.comparable for pair in self.columns)

    @property
    def same_fragments(self) -> bool:
        """Whether metadata alone proves that all rows are the same."""
        return not self.differing(self.before) and not self.differing(self.after)


def read_side(dataset: Dataset) -> Side:
    """The metadata of an open version. Reads."""
    return Side(
        dataset=dataset,
        fragments=fragment_prints(dataset),
        columns=column_facts(dataset),
        rows=live_rows(dataset),
    )
