"""On any history, and in a bucket, a plan from Spark is the plan in process."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, seed, settings
from pyspark.sql import SparkSession

from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.spark.orphans_job import SparkSearch
from omnigraph_ops.stages.orphans import plan as planning
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.candidates import folder_of, sweep_parts
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.orphans.quarantine import list_quarantines, restore
from tests.property.history import Cleanup, History, Orphans, histories
from tests.property.judge import run_cleanup, run_orphans
from tests.property.world import World
from tests.support.orphans import PERSON, assert_same_plan, every_version
from tests.support.rows import rows_everywhere
from tests.support.templates import Templates
from tests.support.writers import entry_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark-local")]
HOUR = 3600
EXAMPLES = 100 if os.environ.get("OMNIGRAPH_PROPERTY_PROFILE") == "nightly" else 8


def planned_or_refused(graph: Graph, search: SparkSearch | None = None) -> OrphansPlan | str:
    try:
        return plan_orphans(graph, older_than_seconds=HOUR, search=search)
    except OpsError as error:
        return str(error)


def compare(session: SparkSession, graph: Graph, seen: Counter[str]) -> None:
    """Plan both ways. Writes parts, and removes them."""
    here = planned_or_refused(graph)
    folder = folder_of(new_ulid())
    there = planned_or_refused(graph, SparkSearch(session, folder))
    if isinstance(here, str) or isinstance(there, str):
        assert there == here
        seen["refused"] += 1
        return
    assert_same_plan(graph, there, here)
    seen["files"] += len(here.files)
    graph.storage.delete_tree(folder)


@pytest.mark.night
def test_any_history(templates: Templates, stamp: int, tmp_path: Path, session: SparkSession) -> None:
    seen: Counter[str] = Counter()

    @seed(stamp)
    @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(history=histories())
    def run(history: History) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            world = World(templates, stamp, Path(folder))
            for step in history:
                if isinstance(step, Cleanup):
                    run_cleanup(world, step)
                elif isinstance(step, Orphans):
                    compare(session, world.graph(), seen)
                    run_orphans(world, step)
                else:
                    world.take(step)
            compare(session, world.graph(), seen)

    run()
    assert seen["files"]


@pytest.mark.night
def test_a_bucket(s3_graph: Callable[[DemoSpec], str], session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = open_graph(s3_graph(DemoSpec(node_types=1, loads=3, rows=8, deletes=1, written_branches=1)))
    # The workers' own environment was made before the server was there.
    session.sparkContext.environment.update({k: v for k, v in os.environ.items() if k.startswith("AWS_")})
    base = entry_of(graph, PERSON).path
    for path in ("data/a b+ü.lance", "_transactions/1-x.txn", "data/strange name", "tree/gone/data/x.lance"):
        graph.storage.write(f"{base}/{path}", b"left over")
    # Nobody can age an object.
    monkeypatch.setattr(planning, "time", SimpleNamespace(time=lambda: time.time() + 8 * 86_400))
    rows, versions = rows_everywhere(graph), every_version(graph)
    here = plan_orphans(graph)
    there = plan_orphans(graph, search=SparkSearch(session, folder_of(new_ulid())), quarantine=True)
    assert_same_plan(graph, replace(there, quarantine=False), here)
    report = apply_orphans(graph, there)
    assert (report.files_removed, report.spared, report.failed) == (len(here.files), (), ())
    assert report.quarantine_id is not None
    assert (rows_everywhere(graph), every_version(graph)) == (rows, versions)
    assert restore(graph, report.quarantine_id).files == len(here.files)
    assert list_quarantines(graph).quarantines == ()
    purged = apply_orphans(graph, plan_orphans(graph, search=SparkSearch(session, folder_of(new_ulid()))))
    assert (purged.files_removed, purged.failed) == (len(here.files), ())


def test_the_parts_of_old_plans_go_with_the_next_one(templates: Templates, tmp_path: Path) -> None:
    graph = World(templates, 6, tmp_path).graph()
    day = 86_400
    old, recent = (new_ulid(now_us() - days * day * 1_000_000) for days in (9, 7))
    for plan_id in (old, recent):
        graph.storage.write(f"{folder_of(plan_id)}/files-000000-000000.{'0' * 32}.parquet", b"")
    graph.storage.write("__maintenance/plans/other/x", b"")
    sweep_parts(graph.storage, day)
    assert [graph.storage.list(folder_of(plan_id)) != () for plan_id in (old, recent)] == [False, True]
    assert graph.storage.exists("__maintenance/plans/other/x")
