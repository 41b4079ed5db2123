"""Evidence about drift made by Lance itself: counted by row id, proven by value, cheap where it says so."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.repair import Classification, EvidenceTier, RowChange
from omnigraph_ops.stages.repair.run import preview_repair
from tests.conftest import DemoGraph
from tests.support.engine_graphs import unpacked
from tests.support.evidence import compact, counts, evidence, ids
from tests.support.rows import tree_of
from tests.support.writers import Change, copies, delete_first, drift, entry_of

SMALL = {"loads": 3, "rows": 20}
PERSON, DOC, PHOTO = "node:Person", "node:Doc", "node:Photo"
SAMPLE, FULL, COUNTS = EvidenceTier.SAMPLE, EvidenceTier.FULL, EvidenceTier.COUNTS


def update(count: int) -> Change:
    return lambda dataset: dataset.update({"age": "-7"}, where=f"id IN ({ids(dataset, count)})")


def upsert(dataset: lance.LanceDataset) -> None:
    rows = dataset.to_table(limit=4)
    keys = pa.array([*rows.column("id").to_pylist()[:3], "brand-new"])
    rows = rows.set_column(rows.schema.get_field_index("id"), rows.schema.field("id"), keys)
    rows = rows.set_column(rows.schema.get_field_index("age"), rows.schema.field("age"), pa.array([-1] * 4, pa.int32()))
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def overwrite(dataset: lance.LanceDataset) -> None:
    lance.write_dataset(dataset.to_table(limit=5), dataset, mode="overwrite")


def all_at_once(dataset: lance.LanceDataset) -> None:
    delete_first(2)(dataset)
    update(3)(lance.dataset(dataset.uri))
    copies("extra-")(lance.dataset(dataset.uri))
    compact(lance.dataset(dataset.uri))


DRIFTS: list[tuple[str, Change, tuple[int, int, int]]] = [
    ("append", copies("extra-"), (3, 0, 0)),
    ("delete", delete_first(2), (0, 2, 0)),
    ("delete everything", lambda dataset: dataset.delete("true"), (0, 60, 0)),
    ("update", update(4), (0, 0, 4)),
    ("merge", upsert, (1, 0, 3)),
    ("compaction", compact, (0, 0, 0)),
    ("all at once", all_at_once, (3, 2, 3)),
    ("overwrite", overwrite, (5, 60, 0)),
]


def verdict(tier: EvidenceTier, expected: tuple[int, int, int]) -> bool | None:
    """Rows that were written again may hold what they held: only `full` knows."""
    if tier is SAMPLE and expected[:2] == (0, 0):
        return None
    return not any(expected)


@pytest.mark.night("combinations")
@pytest.mark.parametrize("tier", [SAMPLE, FULL])
@pytest.mark.parametrize(("change", "expected"), [d[1:] for d in DRIFTS], ids=[d[0] for d in DRIFTS])
def test_rows_are_counted_by_id(
    demo_graph: DemoGraph, stamp: int, tier: EvidenceTier, change: Change, expected: tuple[int, int, int]
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    drift(graph, PERSON, change)
    tree = tree_of(graph.uri)
    found = evidence(graph, tier=tier)
    assert (counts(found), found.problem) == (expected, None)
    assert found.content_equal is verdict(tier, expected)
    shown = [sum(1 for row in found.shown if row.change is kind) for kind in RowChange]
    assert shown == [min(n, 5) for n in expected]
    (cost,) = (c for c in found.costs if c.tier is tier)
    assert cost.measured_bytes is not None
    assert cost.measured_bytes <= cost.estimated_bytes
    assert tree_of(graph.uri) == tree


@pytest.mark.slow
def test_a_compaction_is_proven_equal_by_full_only(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, blobs=True, drift_tables=(PERSON, DOC))
    drift(graph, PHOTO, compact)
    for key in (PERSON, DOC, PHOTO):
        proven = None if key == PHOTO and not graph.format.compacts_blobs else True
        assert [evidence(graph, key, tier).content_equal for tier in (COUNTS, SAMPLE, FULL)] == [None, None, proven]
        found = evidence(graph, key)
        assert all(c.equal and c.digest_before == c.digest_after for c in found.columns)
        assert (found.rows_before == found.rows_after, found.shown) == (True, ())
        assert [v.operation for v in found.versions] == ["ReserveFragments", "Rewrite"]


def test_full_finds_the_one_value_that_differs(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    drift(graph, PERSON, update(1))
    found = evidence(graph)
    assert {c.column: (c.equal, c.rows_changed) for c in found.columns if not c.equal} == {"age": (False, 1)}
    (row,) = found.shown
    (age,) = (v for v in row.values if v.before != v.after)
    assert (age.column, age.after) == ("age", "-7")


def test_an_update_to_the_same_values_is_equal_after_all(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    drift(graph, PERSON, lambda dataset: dataset.update({"age": "age"}, where=f"id IN ({ids(dataset, 3)})"))
    assert (evidence(graph, tier=SAMPLE).rows_changed, evidence(graph, tier=SAMPLE).content_equal) == (3, None)
    assert (evidence(graph).rows_changed, evidence(graph).content_equal) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize("tier", EvidenceTier)
def test_a_delete_that_matched_nothing_stays_suspicious_and_is_proven_equal(
    demo_graph: DemoGraph, stamp: int, tier: EvidenceTier
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON,), drift_kind="empty_delete")
    row = next(r for r in preview_repair(graph, evidence=tier).drifted)
    assert row.classification is Classification.SUSPICIOUS
    assert row.evidence is not None
    assert (row.evidence.content_equal, counts(row.evidence)) == (True, (0, 0, 0))
    assert "every fragment is the same" in row.evidence.content_reason
    assert all(c.estimated_bytes == 0 for c in row.evidence.costs)
    assert row.evidence.versions[0].predicate is not None


def test_the_drift_that_the_real_engine_left_behind(tmp_path: Path) -> None:
    with unpacked("0.7.2", "churned", tmp_path) as root:
        rows = {r.table_key: r for r in preview_repair(open_graph(str(root)), evidence=FULL).drifted}
    assert {r.classification for r in rows.values()} == {Classification.SUSPICIOUS}
    found = {key: row.evidence for key, row in rows.items() if row.evidence is not None}
    assert {key: (e.content_equal, counts(e)) for key, e in found.items()} == {
        "edge:WorksAt": (True, (0, 0, 0)),
        "edge:Wrote": (True, (0, 0, 0)),
        "node:Person": (False, (0, 1, 0)),
    }
    (version,) = found["edge:Wrote"].versions
    assert (version.operation, version.writer, version.predicate) == ("Delete", "lance 7.0.0", "src IN ('p3')")
    assert version.committed_at_us is not None
    assert datetime.datetime.fromtimestamp(version.committed_at_us / 1e6, datetime.UTC).year >= 2026


def test_index_coverage_is_shown_before_and_after(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    drift(graph, PERSON, lambda dataset: dataset.optimize.optimize_indices())
    found = evidence(graph, tier=COUNTS)
    assert found.content_equal is True
    index = next(i for i in found.indexes if i.name == "id_idx")
    assert index.before is not None
    assert index.after is not None
    assert (index.before.rows_covered, index.before.fragments_covered) == (20, 1)
    assert (index.after.rows_covered, index.after.fragments_covered, index.after.fragments) == (60, 3, 3)
    covers = "Index id_idx covers 60 of 60 rows in 3 of 3 fragments instead of 20 of "
    (said,) = [line for line in found.if_published if line.startswith(covers)]
    assert re.search(r": queries scan 0 rows beside it instead of \d+\.$", said), said


def test_identical_fragments_are_not_read(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    drift(graph, PERSON, copies("extra-"))
    entry = entry_of(graph, PERSON)
    for fragment in graph.open_pinned(entry).get_fragments():
        for file in fragment.metadata.files:
            graph.storage.delete(f"{entry.path}/data/{file.path}")
    found = evidence(graph)
    assert (found.problem, counts(found), found.fragments_identical) == (None, (3, 0, 0), 3)


def test_vectors_nulls_and_nan_are_compared_by_value(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    nan = "arrow_cast(make_array(" + ", ".join(["CAST('NaN' AS FLOAT)"] * 8) + "), 'FixedSizeList(8, Float32)')"
    drift(graph, DOC, lambda dataset: dataset.update({"embedding": nan}, where=f"id IN ({ids(dataset, 1)})"))
    found = evidence(graph, DOC)
    assert counts(found) == (0, 0, 1)
    (row,) = found.shown
    (value,) = (v for v in row.values if v.before != v.after)
    assert (value.column, (value.after or "").startswith("[nan, nan, nan, nan, … 8 values #")) == ("embedding", True)
    drift(graph, DOC, compact)
    assert counts(evidence(graph, DOC)) == (0, 0, 1)


@pytest.mark.slow
def test_branches_that_read_the_table_are_named(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, lazy_branches=1, written_branches=1, drift_tables=(PERSON,))
    branches = {b.branch: b for b in evidence(graph, tier=COUNTS).branches}
    assert len(branches) == 3
    assert {b.sees_change for name, b in branches.items() if name is not None} == {False}
    assert {b.fork is None for name, b in branches.items() if name is not None} == {True, False}


def test_who_and_when_comes_from_the_transaction(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)

    def signed(dataset: lance.LanceDataset) -> None:
        rows = dataset.to_table(limit=1)
        lance.write_dataset(
            rows, dataset, mode="append", commit_message="by hand\x1b[2J", transaction_properties={"who": "mø"}
        )

    drift(graph, PERSON, signed)
    (version,) = evidence(graph, tier=COUNTS).versions
    assert {p.name: p.value for p in version.properties} == {
        "__lance_commit_message": "by hand\\x1b[2J",
        "who": "mø",
    }
    assert (version.operation, version.read_version) == ("Append", version.version - 1)
