"""The job `evidence` finds what one process finds: on chosen drifts, and on random histories of a table."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.repair import DriftEvidence, EvidenceTier
from omnigraph_ops.spark import evidence_job
from omnigraph_ops.stages.repair.compare import OnSpark
from omnigraph_ops.stages.repair.run import preview_repair
from tests.support.evidence import compact, remove_data
from tests.support.spark_session import submit_in
from tests.support.templates import Templates
from tests.support.writers import Change, copies, delete_first, drift

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-local")]
PERSON, DOC, PHOTO = "node:Person", "node:Doc", "node:Photo"
SPEC = DemoSpec(node_types=3, loads=3, rows=15, blobs=True)
SAMPLE, FULL = EvidenceTier.SAMPLE, EvidenceTier.FULL


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_job, "_ROWS_PER_PARTITION", 20)


def on(session: SparkSession, tier: EvidenceTier) -> OnSpark:
    return OnSpark(submit=submit_in(session), check=lambda: None, tier=tier)


def found(graph: Graph, key: str, tier: EvidenceTier, comparison: OnSpark | None = None) -> DriftEvidence:
    (row,) = preview_repair(graph, tables=(key,), evidence=tier, comparison=comparison).rows
    assert row.evidence is not None
    # What it cost is of the way, not of the drift.
    return replace(row.evidence, costs=())


def update(dataset: lance.LanceDataset) -> None:
    names = [f.name for f in dataset.schema]
    if "age" in names:
        dataset.update({"age": "-7"}, where="id IN (" + first_ids(dataset, 4) + ")")


def same_update(dataset: lance.LanceDataset) -> None:
    if "age" in [f.name for f in dataset.schema]:
        dataset.update({"age": "age"}, where="id IN (" + first_ids(dataset, 2) + ")")


def first_ids(dataset: lance.LanceDataset, count: int) -> str:
    chosen = dataset.to_table(columns=["id"], limit=count).column("id").to_pylist()
    return ", ".join(f"'{value}'" for value in chosen) or "''"


def overwrite(dataset: lance.LanceDataset) -> None:
    lance.write_dataset(dataset.to_table(limit=5), dataset, mode="overwrite")


def add_column(dataset: lance.LanceDataset) -> None:
    if "extra" not in [f.name for f in dataset.schema]:
        dataset.add_columns({"extra": "1"})


def drop_column(dataset: lance.LanceDataset) -> None:
    if "age" in [f.name for f in dataset.schema]:
        dataset.drop_columns(["age"])


def append(dataset: lance.LanceDataset) -> None:
    copies(f"extra-{dataset.version}-")(dataset)


STEPS: dict[str, Change] = {
    "append": append,
    "delete": delete_first(2),
    "delete all": lambda dataset: dataset.delete("true"),
    "delete nothing": lambda dataset: dataset.delete("false"),
    "update": update,
    "same update": same_update,
    "compact": compact,
    "overwrite": overwrite,
    "add a column": add_column,
    "drop a column": drop_column,
}


HISTORIES = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4)


def test_any_history_is_found_alike(session: SparkSession, templates: Templates, tmp_path: Path) -> None:
    seen = set[tuple[bool | None, bool]]()

    @seed(17)
    @settings(max_examples=15, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        history=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4), tier=st.sampled_from((SAMPLE, FULL))
    )
    def run(history: list[str], tier: EvidenceTier) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            root = Path(folder, "graph.omni")
            templates.copy(SPEC, root)
            graph = open_graph(str(root))
            for name in history:
                drift(graph, PERSON, STEPS[name])
            here, there = found(graph, PERSON, tier), found(graph, PERSON, tier, on(session, tier))
            assert here == there
            assert here.problem is None
            seen.add((here.content_equal, bool(here.shown)))

    run()
    assert {(False, True), (True, False)} <= seen, "or it proves nothing"


@pytest.mark.parametrize("key", [DOC, PHOTO])
def test_vectors_and_blobs_are_found_alike(
    session: SparkSession, templates: Templates, tmp_path: Path, key: str
) -> None:
    templates.copy(SPEC, tmp_path / "graph.omni")
    graph = open_graph(str(tmp_path / "graph.omni"))
    drift(graph, key, compact)
    drift(graph, key, delete_first(1))
    here = found(graph, key, FULL)
    assert here == found(graph, key, FULL, on(session, FULL))
    assert (here.rows_removed, here.rows_changed) == (1, 0)
    assert all(column.equal is False for column in here.columns), "the digests cover the removed row"


def test_a_file_that_is_gone_is_a_problem_and_no_comparison(
    session: SparkSession, templates: Templates, tmp_path: Path
) -> None:
    templates.copy(SPEC, tmp_path / "graph.omni")
    graph = open_graph(str(tmp_path / "graph.omni"))
    drift(graph, PERSON, update)
    remove_data(graph, PERSON)
    there = found(graph, PERSON, FULL, on(session, FULL))
    assert there.problem is not None
    assert "cannot read" in there.problem
    assert there.rows_changed is None


def test_what_was_read_is_counted(session: SparkSession, templates: Templates, tmp_path: Path) -> None:
    templates.copy(SPEC, tmp_path / "graph.omni")
    graph = open_graph(str(tmp_path / "graph.omni"))
    drift(graph, PERSON, compact)
    costs = []
    for comparison in (None, on(session, FULL)):
        (row,) = preview_repair(graph, tables=(PERSON,), evidence=FULL, comparison=comparison).rows
        assert row.evidence is not None
        costs.append(next(c.measured_bytes for c in row.evidence.costs if c.tier is FULL))
    assert costs[1] is not None
    assert costs[1] > 0
    assert costs[0] is not None
    assert abs(costs[0] - costs[1]) <= costs[0]


def test_a_column_of_unsigned_numbers_keeps_its_highest_bit() -> None:
    hashes = pa.table({"hash0": pa.array([-1, 2**62, -(2**63)], pa.int64())})
    assert evidence_job._numbers(hashes, "hash0").tolist() == [2**64 - 1, 2**62, 2**63]
