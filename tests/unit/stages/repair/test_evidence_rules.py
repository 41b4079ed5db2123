"""What evidence concludes from what was read, and the sentences it says it in."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.graph.lance_manifest import History, VersionRecord
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.evidence import ColumnFacts, ColumnHashes, FragmentPrint, RowVersions
from omnigraph_ops.models.repair import ColumnEvidence, Coverage, DriftEvidence, EvidenceTier, IndexEvidence
from omnigraph_ops.stages.repair.compare import column_pairs, identical_fragments
from omnigraph_ops.stages.repair.differences import (
    ColumnDiff,
    ColumnSum,
    Differences,
    RowDiff,
    Rows,
    diff_column,
    diff_rows,
)
from omnigraph_ops.stages.repair.evidence import (
    MAX_VERSIONS,
    BranchView,
    branch_evidence,
    if_not_published,
    if_published,
    version_evidence,
)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def rows(ids: tuple[int, ...], created: tuple[int, ...], updated: tuple[int, ...]) -> RowVersions:
    return RowVersions(ids=numbers(*ids), created=numbers(*created), updated=numbers(*updated), bytes_read=0)


def fragment(number: int, mark: str) -> FragmentPrint:
    return FragmentPrint(fragment_id=number, print=mark, rows=1, data_bytes=1, files=1)


def column(name: str, number: int, kind: str = "string") -> ColumnFacts:
    return ColumnFacts(name=name, field_id=number, type=kind, is_blob=False)


def test_rows_are_told_apart_by_id_and_recorded_version() -> None:
    diff = diff_rows(rows((4, 1, 2), (1, 1, 1), (1, 1, 1)), rows((9, 2, 4), (5, 1, 1), (5, 6, 1)))
    assert (diff.added, diff.removed) == (Rows(count=1, first=(9,)), Rows(count=1, first=(1,)))
    assert diff.rewritten == Rows(count=1, first=(2,))


def test_unknown_versions_prove_nothing() -> None:
    assert diff_rows(rows((1,), (0,), (0,)), rows((1,), (0,), (0,))).rewritten is None


def test_columns_are_compared_row_by_row_in_any_order() -> None:
    before = ColumnHashes(ids=numbers(3, 1, 2), hashes=numbers(30, 10, 20), bytes_read=0)
    moved = ColumnHashes(ids=numbers(1, 2, 3), hashes=numbers(10, 20, 30), bytes_read=0)
    same, rows_changed = diff_column(before, moved)
    assert (same.before == same.after, rows_changed.tolist()) == (True, [])
    swapped, rows_changed = diff_column(before, replace(moved, hashes=numbers(20, 10, 30)))
    assert (swapped.before == swapped.after, rows_changed.tolist()) == (False, [1, 2])


def test_fragments_are_identical_only_if_everything_about_them_is() -> None:
    before, after = (fragment(0, "a"), fragment(1, "b")), (fragment(0, "a"), fragment(1, "c"), fragment(2, "b"))
    plain = column_pairs([column("x", 0)], [column("x", 0)])
    assert identical_fragments(before, after, plain) == {0}
    swapped = column_pairs([column("x", 0), column("y", 1)], [column("x", 1), column("y", 0)])
    assert identical_fragments(before, after, swapped) == frozenset()


def test_dropped_added_and_retyped_columns_are_not_comparable() -> None:
    pairs = column_pairs([column("a", 0), column("b", 1)], [column("b", 1, "int32"), column("c", 2)])
    assert [(p.name, p.comparable) for p in pairs] == [("a", False), ("b", False), ("c", False)]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"content_equal": True}, "Readers of main see the same rows with the same values."),
        (
            {"rows_added": 1, "rows_removed": 2, "rows_changed": 3},
            "Readers of main gain 1 row, lose 2 rows, see 3 rows that were written again, their values not compared.",
        ),
        ({"rows_before": 5, "rows_after": 4}, "Readers of main see 4 rows instead of 5."),
        (
            {"rows_before": 5, "rows_after": 5},
            "Readers of main see as many rows as before (5); which and their values are unread.",
        ),
        (
            {"rows_added": 0, "rows_removed": 0, "rows_changed": None},
            "Readers of main see the same row ids; the values were not all compared.",
        ),
        ({}, "What readers of main would see is not known: a version could not be read."),
    ],
)
def test_what_readers_see_is_said_as_far_as_it_is_known(facts: dict[str, object], sentence: str) -> None:
    assert if_published(DriftEvidence(tier=EvidenceTier.SAMPLE, **facts)) == (sentence,)


def test_compared_values_are_said_to_differ() -> None:
    compared = ColumnEvidence(column="a", type_before="int32", type_after="int32", digest_after="x")
    evidence = DriftEvidence(tier=EvidenceTier.FULL, rows_added=0, rows_removed=0, rows_changed=3, columns=(compared,))
    assert if_published(evidence) == ("Readers of main see other values in 3 rows.",)


def test_indexes_and_columns_have_their_sentences() -> None:
    whole = Coverage(fragments_covered=2, fragments=2, rows_covered=20, rows=20)
    half = Coverage(fragments_covered=1, fragments=2, rows_covered=10, rows=20)
    evidence = DriftEvidence(
        tier=EvidenceTier.COUNTS,
        content_equal=True,
        columns=(
            ColumnEvidence(column="new", type_before=None, type_after="int32"),
            ColumnEvidence(column="old", type_before="string", type_after=None),
            ColumnEvidence(column="wide", type_before="int32", type_after="int64"),
        ),
        indexes=(
            IndexEvidence(name="a", columns=("x",), before=whole, after=half),
            IndexEvidence(name="b", columns=("x",), before=whole, after=None),
            IndexEvidence(name="c", columns=("x",), before=half, after=half),
            IndexEvidence(name="d", columns=("x",), before=None, after=half),
        ),
    )
    assert if_published(evidence)[1:] == (
        "Column new (int32) appears; the accepted schema may not declare it.",
        "Column old (string) disappears; the accepted schema may still declare it.",
        "Column wide changes from int32 to int64.",
        "Index a covers 10 of 20 rows in 1 of 2 fragments instead of 20 of 20 rows in 2 of 2 fragments: "
        "queries scan 10 rows beside it instead of 0.",
        "Index b is gone: queries on x scan.",
        "Index d appears and covers 10 of 20 rows in 1 of 2 fragments.",
    )
    assert any("refuse until it is repaired" in sentence for sentence in if_not_published())


def test_branches_read_their_own_version_whatever_main_publishes() -> None:
    def entry(version: int, fork: str | None = None) -> TableEntry:
        return TableEntry(table_key="node:A", path="nodes/a", version=version, branch=fork, row_count=1)

    def view(name: str, *entries: TableEntry) -> BranchView:
        state = BranchState(branch=name, manifest_version=1, entries=entries, head_commit_id=None)
        return BranchView(name=name, state=state)

    views = (
        view("lazy", entry(4)),
        view("ahead", entry(6)),
        view("own", entry(9, "own")),
        view("without"),
        BranchView(name="broken\n", state=None, problem="gone"),
    )
    main, lazy, ahead, own, broken = branch_evidence(entry(5), views, content_equal=False)
    assert (main.branch, main.version, main.sees_change) == (None, 5, True)
    assert (lazy.version, lazy.sees_change, lazy.fork) == (4, False, None)
    assert "already reads version 6" in ahead.note
    assert (own.fork, own.sees_change) == ("own", False)
    assert (broken.branch, broken.version, broken.sees_change) == ("broken\\n", None, None)
    assert branch_evidence(entry(5), (), content_equal=None)[0].sees_change is None


def test_the_version_that_cannot_be_read_is_named_after_those_that_can() -> None:
    record = VersionRecord(version=6, operation="Delete", properties=(("who\n", "x" * 500),))
    chain = History(operations=("Delete",), problem="missing Lance transaction for version 7", records=(record,))
    known, unknown = version_evidence(chain, after=5)
    assert (known.version, known.operation, known.properties[0].name) == (6, "Delete", "who\\n")
    assert len(known.properties[0].value) < 300
    assert (unknown.version, unknown.operation) == (7, None)
    assert unknown.problem == chain.problem
    many = History(operations=("Append",) * 300, records=(record,) * 300)
    assert len(version_evidence(many, after=5)) == MAX_VERSIONS


@pytest.mark.slow
@given(
    sides=st.lists(
        st.tuples(
            st.integers(1, 2**63 - 1),
            st.none() | st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1)),
            st.none() | st.tuples(st.integers(1, 3), st.integers(0, 2**64 - 1)),
        ),
        unique_by=lambda row: row[0],
        max_size=30,
    ),
    cuts=st.integers(1, 5),
)
def test_the_differences_of_parts_add_up_to_those_of_the_whole(
    sides: list[tuple[int, tuple[int, int] | None, tuple[int, int] | None]], cuts: int
) -> None:
    def of(part: list[Any]) -> Differences:
        def side(which: int) -> tuple[RowVersions, ColumnHashes]:
            there = [(row[0], *row[which]) for row in part if row[which] is not None]
            ids, stamps, hashes = (numbers(*(row[n] for row in there)) for n in range(3))
            versions = RowVersions(ids=ids, created=stamps, updated=stamps, bytes_read=0)
            return versions, ColumnHashes(ids=ids, hashes=hashes, bytes_read=0)

        (before, old), (after, new) = side(1), side(2)
        column, changed = diff_column(old, new)
        return Differences(rows=diff_rows(before, after), columns=(column,), changed=Rows.of(changed))

    nothing = Differences(rows=RowDiff(), columns=(ColumnDiff(before=ColumnSum()),))
    assert reduce(add, (of([r for r in sides if r[0] % cuts == n]) for n in range(cuts)), nothing) == of(sides)


def test_a_digest_tells_rows_and_values_apart_in_any_order() -> None:
    def digest(*pairs: tuple[int, int]) -> str:
        return ColumnSum.of(
            ColumnHashes(ids=numbers(*(p[0] for p in pairs)), hashes=numbers(*(p[1] for p in pairs)), bytes_read=0)
        ).text

    assert digest((1, 5), (2, 6)) == digest((2, 6), (1, 5))
    different = {digest((1, 5), (2, 6)), digest((1, 6), (2, 5)), digest((1, 5)), digest((1, 5), (3, 6)), digest()}
    assert len(different) == 5
