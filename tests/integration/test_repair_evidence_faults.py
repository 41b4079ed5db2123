"""Evidence where something is missing, damaged, of another schema or hostile: said, and never a crash."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset

from omnigraph_ops.errors import StalePlan
from omnigraph_ops.models.repair import Classification, EvidenceTier, ShownRow
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.evidence import counts, evidence, remove_data, repair_text_of
from tests.support.writers import Change, delete_first, drift, entry_of

SMALL = {"loads": 3, "rows": 20}
PERSON, DOC = "node:Person", "node:Doc"
SAMPLE, FULL, COUNTS = EvidenceTier.SAMPLE, EvidenceTier.FULL, EvidenceTier.COUNTS


def test_counts_reads_no_data_file(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    drift(graph, PERSON, delete_first(2))
    remove_data(graph, PERSON)
    found = evidence(graph, tier=COUNTS)
    assert (found.rows_before, found.rows_after, found.content_equal, found.problem) == (60, 58, False, None)
    assert found.indexes
    assert counts(found) == (None, None, None)
    (cost,) = (c for c in found.costs if c.measured_bytes is not None)
    assert (cost.tier, cost.measured_bytes) == (COUNTS, 0)
    sample = evidence(graph, tier=SAMPLE)
    assert (counts(sample), sample.shown) == ((0, 2, 0), ())
    assert sample.problem is not None


@pytest.mark.slow
def test_a_missing_data_file_leaves_the_preview_whole(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON,))
    remove_data(graph, PERSON)
    found = evidence(graph)
    assert found.problem is not None
    assert (found.content_equal, counts(found)[:2]) == (None, (0, 0))
    assert "could not be read" in repair_text_of(graph)


def test_rows_that_cannot_be_compared_leave_the_preview_whole(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL, drift_tables=(PERSON,))
    slow = raising(OSError("503 Slow Down"))
    when_asked(monkeypatch, LanceDataset, "scanner", slow, about=entry_of(graph, PERSON).path, times=None)
    found = evidence(graph)
    assert (found.content_equal, found.rows_removed) == (None, None)
    assert "503 Slow Down" in (found.problem or "")


def test_a_pin_that_cannot_be_read_is_said(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    entry = entry_of(graph, PERSON)
    drift(graph, PERSON, delete_first())
    graph.storage.write(f"{entry.path}/_versions/{2**64 - 1 - entry.version:020d}.manifest", b"damage")
    (row,) = preview_repair(graph, tables=(PERSON,), evidence=FULL).rows
    assert (row.classification, row.operations, row.rows_before) == (Classification.SUSPICIOUS, ("Delete",), None)
    assert row.evidence is not None
    assert row.evidence.problem is not None
    assert row.evidence.versions[0].operation == "Delete"


def test_a_head_that_cannot_be_read_is_said(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    entry = entry_of(graph, PERSON)
    drift(graph, PERSON, delete_first())
    graph.storage.write(f"{entry.path}/_versions/{2**64 - 2 - entry.version:020d}.manifest", b"damage")
    rows = {r.table_key: r for r in preview_repair(graph, evidence=FULL).rows}
    damaged = rows[PERSON]
    assert damaged.classification is Classification.UNVERIFIABLE
    assert damaged.evidence is not None
    assert damaged.evidence.problem == damaged.error
    assert rows[DOC].classification is Classification.NO_DRIFT


def add_column(dataset: lance.LanceDataset) -> None:
    dataset.add_columns({"extra": "age + 1"})


def drop_column(dataset: lance.LanceDataset) -> None:
    dataset.drop_columns(["bio"])


def retype_column(dataset: lance.LanceDataset) -> None:
    dataset.alter_columns({"path": "age", "data_type": pa.int64()})


@pytest.mark.parametrize("tier", EvidenceTier)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (add_column, "Column extra (int32) appears"),
        (drop_column, "Column bio (string) disappears"),
        (retype_column, "Column age changes from int32 to int64"),
    ],
)
def test_schema_changes_are_said_and_never_a_crash(
    demo_graph: DemoGraph, tier: EvidenceTier, change: Change, words: str
) -> None:
    graph = demo_graph(**SMALL)
    drift(graph, PERSON, change)
    found = evidence(graph, tier=tier)
    assert (found.content_equal, found.problem) == (False, None)
    assert any(words in sentence for sentence in found.if_published)


def test_swapped_column_names_are_no_identical_fragments(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    drift(graph, DOC, swap_doc)
    found = evidence(graph, DOC)
    assert found.fragments_identical == 0
    assert (found.content_equal, found.rows_changed) == (False, found.rows_before)


def swap_doc(dataset: lance.LanceDataset) -> None:
    for old, new in (("body", "spare"), ("title", "body"), ("spare", "title")):
        lance.dataset(dataset.uri).alter_columns({"path": old, "name": new})


HOSTILE = "\x1b[31m| `x` | <script>alert(1)</script>\n# [a](http://b) \u202e"


def test_hostile_values_are_only_text(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)

    def hostile(dataset: lance.LanceDataset) -> None:
        rows = dataset.to_table(limit=1)
        rows = rows.set_column(rows.schema.get_field_index("id"), rows.schema.field("id"), pa.array([HOSTILE]))
        lance.write_dataset(rows, dataset, mode="append")

    drift(graph, PERSON, hostile)
    (row,) = evidence(graph).shown
    assert all(text is None or text.isprintable() for text in texts(row))
    assert all(line.isprintable() for line in repair_text_of(graph).splitlines())


def texts(row: ShownRow) -> list[str | None]:
    return [text for value in row.values for text in (value.before, value.after)]


def test_the_evidence_does_not_decide(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON,))
    preview = preview_repair(graph, evidence=FULL)
    assert apply_repair(graph, preview).manifest_version is not None


def test_data_that_goes_after_the_preview_stops_the_repair(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON,))
    preview = preview_repair(graph, evidence=FULL)
    remove_data(graph, PERSON)
    with pytest.raises(StalePlan, match="changed since it was previewed; nothing was published"):
        apply_repair(graph, preview)
