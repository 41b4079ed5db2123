"""The job `orphans`, for real: the same plan as in process, in Parquet parts, and what happens to it afterwards."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from omnigraph_ops.coordination import sealed
from omnigraph_ops.errors import InvalidInput, StalePlan
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.progress import SILENT
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.orphans.quarantine import restore
from omnigraph_ops.stages.orphans.stage import Orphans, OrphansRequest
from omnigraph_ops.storage.inventory import walk
from tests.conftest import DemoGraph
from tests.support.orphans import KNOWS, PERSON, age, assert_same_plan, drop, every_version, plant, put
from tests.support.rows import tree_of
from tests.support.shell import Cli
from tests.support.spark_cluster import environment
from tests.support.spark_session import submit_in
from tests.support.writers import entry_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-local")]
MASTER = "local[2]"
SPEC: dict[str, Any] = {"node_types": 2, "loads": 3, "rows": 20}


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    """A graph with leftovers of every kind."""
    made = demo_graph(**SPEC)
    table = entry_of(made, PERSON).path
    drop(made, KNOWS)
    age(made.uri, days=30)
    plant(made)
    plant(made, folder=f"{table}/tree/gone/for/good")
    put(made, f"{table}/tree/young/data/{'1' * 32}.lance", days=0)
    put(made, f"{table}/data/{'0' * 32}.lance", days=0)
    put(made, f"{table}/data/strange name", b"?")
    put(made, "left here", b"?")
    for folder in ("_indices/12345678-1234-1234-1234-123456789012/deep", "data/empty"):
        Path(made.uri, table, folder).mkdir(parents=True)
    age(Path(made.uri, table, "_indices"))
    age(Path(made.uri, table, "data", "empty"))
    return made


def files_below(root: str) -> set[str]:
    """Every file, with its folders. Reads."""
    return {str(p) for p in Path(root).rglob("*") if p.is_file()}


def on_spark(session: SparkSession, graph: Graph, **request: Any) -> OrphansPlan:
    return Orphans().plan(graph, OrphansRequest(**request), SILENT, submit_in(session))


def test_a_plan_from_spark_is_the_plan_in_process(session: SparkSession, graph: Graph) -> None:
    here = plan_orphans(graph)
    there = on_spark(session, graph)
    assert here.files
    assert here.folders
    assert len(here.groups) == 3
    assert {g.kept is None for g in here.groups} == {True, False}
    assert len(here.unknown) == 2
    assert_same_plan(graph, there, here)
    sealed.verify(there, uri=graph.uri, consequence="nothing was done")
    assert there.parts is not None
    left = {p.name for p in Path(graph.uri, there.parts.folder).iterdir()}
    assert left == {part.name for part in there.parts.parts}, "the references are gone"


def test_an_inventory_on_spark_is_the_inventory_in_process(session: SparkSession, graph: Graph, tmp_path: Path) -> None:
    stored = [s for s in walk(graph.storage) if not s.is_folder]
    (missing, *_) = (s for s in stored if "/_transactions/" in s.path and s.path.endswith(".txn"))
    listed = [s for s in stored if s is not missing]
    paths = [*(s.path for s in listed), "s3://elsewhere/file", listed[0].path, f"{graph.uri}/{listed[1].path}"]
    table = pa.table(
        {
            "path": paths,
            "size": [7] * len(paths),
            "last_modified": [time.time() - 40 * 86_400] * len(paths),
        }
    )
    pq.write_table(table, tmp_path / "inventory.parquet", row_group_size=16)
    here = plan_orphans(graph, listing=tmp_path / "inventory.parquet", quarantine=True)
    there = on_spark(session, graph, listing=str(tmp_path / "inventory.parquet"), quarantine=True)
    assert here.files
    assert (here.foreign_rows, here.missing_rows) == (1, 1)
    assert {g.kept for g in here.groups} >= {"it changed since the inventory was taken"}
    assert_same_plan(graph, there, here)


def test_a_malformed_inventory_is_one_sentence_and_leaves_nothing(graph: Graph, tmp_path: Path, cli: Cli) -> None:
    before = files_below(graph.uri)
    Path(tmp_path, "list.csv").write_text("path,size,last_modified\nx,1,2026-01-01\ny,-1,2026-01-01\n")
    with pytest.raises(InvalidInput) as here:
        plan_orphans(graph, listing=tmp_path / "list.csv")
    done = cli("orphans", graph.uri, "--listing", str(tmp_path / "list.csv"), "--spark", MASTER)
    assert done.code != 0
    assert str(here.value) in done.err
    assert files_below(graph.uri) == before


@pytest.mark.usefixtures("submits_here")
def test_a_plan_from_spark_is_saved_quarantined_and_restored(graph: Graph, cli: Cli, tmp_path: Path) -> None:
    versions, before = every_version(graph), files_below(graph.uri)
    saved = str(tmp_path / "plan.json")
    shown = cli("orphans --quarantine", graph.uri, "--save-plan", saved, "--spark", MASTER)
    assert shown.code == 0, shown.err
    assert "as Parquet" in shown.out
    plan = json.loads(Path(saved).read_text())
    files = plan_orphans(graph).files
    done = cli("orphans --json", graph.uri, "--plan", saved, "--confirm")
    assert done.code == 0, done.err
    assert (done.json["files_removed"], done.json["spared"], done.json["failed"]) == (len(files), [], [])
    assert every_version(graph) == versions
    graph.storage.delete_tree(plan["parts"]["folder"])
    report = restore(graph, done.json["quarantine_id"])
    assert (report.files, report.failed) == (len(files), ())
    assert {path for path in files_below(graph.uri) if "/__maintenance/" not in path} == before
    assert not [p for p in Path(graph.uri, "__maintenance", "quarantine").rglob("*") if p.is_file()]


def test_a_plan_from_spark_removes_what_it_lists_and_nothing_since(session: SparkSession, graph: Graph) -> None:
    rows = every_version(graph)
    plan = on_spark(session, graph)
    stays = plan.shown_files[0].path
    put(graph, stays, b"written anew", days=0)
    report = apply_orphans(graph, plan)
    assert (report.files_removed, report.failed) == (plan.total_files - len(report.spared), ())
    assert stays in {s.path for s in report.spared}
    assert report.folders_removed >= len(plan.folders)
    assert every_version(graph) == rows
    again = plan_orphans(graph)
    assert {f.path for f in again.files} <= {s.path for s in report.spared}


def test_a_part_that_was_altered_or_is_gone_removes_nothing(session: SparkSession, graph: Graph) -> None:
    plan = on_spark(session, graph)
    assert plan.parts is not None
    part = Path(graph.uri, plan.parts.folder, plan.parts.parts[0].name)
    data, before = part.read_bytes(), tree_of(graph.uri)
    part.write_bytes(data[:-1] + b"?")
    with pytest.raises(StalePlan, match="altered"):
        apply_orphans(graph, plan)
    part.unlink()
    with pytest.raises(StalePlan, match="gone"):
        apply_orphans(graph, plan)
    part.write_bytes(data)
    assert tree_of(graph.uri) == before
