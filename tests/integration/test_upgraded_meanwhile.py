"""Another release upgrades the graph in the middle of a run: nothing more is published or removed by the old rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import UnsupportedStamp
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import STAMP_KEY
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.conftest import DemoGraph
from tests.support.rows import tree_of

SMALL = {"node_types": 2, "loads": 3, "rows": 10}
PERSON = "node:Person"
UPGRADED = "became a graph of internal schema v8 while it was maintained as"


def upgrade(graph: Graph) -> None:
    lance.dataset(f"{graph.uri}/__manifest").update_schema_metadata({STAMP_KEY: "8"})


def of_the_graph(graph: Graph) -> dict[str, str]:
    """Everything but our own records, which a run may go on to write."""
    return {name: content for name, content in tree_of(graph.uri).items() if not name.startswith("__maintenance")}


def cleanup(graph: Graph) -> Callable[[], object]:
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    assert any(table.versions for table in plan.tables)
    return lambda: cleanup_all(graph, plan)


def orphans(graph: Graph) -> Callable[[], object]:
    path = Path(graph.uri, graph.state().entries[0].path, "data", "01234567890123456789012345678901.lance")
    path.write_bytes(b"left")
    os.utime(path, (1, 1))
    plan = plan_orphans(graph)
    assert plan.files
    return lambda: apply_orphans(graph, plan)


def repair(graph: Graph) -> Callable[[], object]:
    preview = preview_repair(graph)
    assert preview.drifted
    return lambda: apply_repair(graph, preview)


VERBS: dict[str, Callable[[Graph], Callable[[], object]]] = {
    "optimize": lambda graph: lambda: optimize_all(graph),
    "recover": lambda graph: lambda: recover(graph),
    "freeze": lambda graph: lambda: freeze_graph(graph),
    "backup": lambda graph: lambda: backup_graph(graph, f"{graph.uri}.backups"),
    "cleanup": cleanup,
    "orphans": orphans,
    "repair": repair,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_that_began_before_ends_without_a_change(demo_graph: DemoGraph, stamp: int, verb: str) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON,) if verb == "repair" else ())
    go_on = VERBS[verb](graph)
    upgrade(graph)
    before = of_the_graph(graph)
    with pytest.raises(UnsupportedStamp, match=UPGRADED):
        go_on()
    assert of_the_graph(graph) == before


@pytest.mark.parametrize("small", [1 << 30, 0], ids=["at_once", "in_rounds"])
def test_a_table_that_is_being_rewritten_then_is_not_published(demo_graph: DemoGraph, stamp: int, small: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, settings=Settings(small_table_bytes=small, concurrency=1))
    versions: list[int] = []

    def hear(line: str) -> None:
        if not versions and "rewr" in line:
            upgrade(graph)
            versions.append(int(lance.dataset(f"{graph.uri}/__manifest").version))

    report = optimize_all(graph, progress=Lines(hear))
    assert [int(lance.dataset(f"{graph.uri}/__manifest").version)] == versions
    assert all(UPGRADED in str(table.error) for table in report.failed)
    assert len(report.failed) == len(graph.catalog.tables)
