"""How many files a graph is known to have, without listing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.orphans.plan import known_files
from omnigraph_ops.stages.orphans.stage import Orphans, OrphansRequest
from omnigraph_ops.storage.inventory import walk
from tests.conftest import DemoGraph
from tests.support.events import items
from tests.support.orphans import PERSON, plant
from tests.support.writers import delete_first, drift, entry_of


def listed(graph: Graph) -> int:
    return sum(not item.is_folder for item in walk(graph.storage))


@pytest.mark.slow
@pytest.mark.parametrize("loads", [3, 12])
def test_most_files_are_known_and_none_is_made_up(demo_graph: DemoGraph, loads: int) -> None:
    graph = demo_graph(node_types=3, loads=loads, rows=10, index_after_load=0)
    assert 0.8 * listed(graph) < known_files(graph) <= listed(graph)


def test_a_version_counts_and_what_nothing_refers_to_does_not(demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=1, loads=3, rows=10)
    before = known_files(graph)
    plant(graph)
    assert known_files(graph) == before
    drift(graph, PERSON, delete_first(1))
    assert known_files(graph) == before + 2


def test_a_table_that_cannot_be_opened_is_known_by_its_versions(demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=1, loads=3, rows=10)
    before = known_files(graph)
    versions = sorted(Path(graph.uri, entry_of(graph, PERSON).path, "_versions").iterdir())
    versions[0].write_bytes(b"damaged")
    assert known_files(open_graph(graph.uri)) == before - 3


def test_files_of_plain_lance_are_known(tmp_path: Path) -> None:
    graph = open_graph(str(items(tmp_path / "data", [1, 2, 60])))
    assert 0 < known_files(graph) <= listed(graph)


@pytest.mark.parametrize(("above", "jobs"), [(1, []), (0, ["orphans"])])
def test_the_known_files_decide_who_plans(demo_graph: DemoGraph, above: int, jobs: list[str]) -> None:
    graph = demo_graph(node_types=1, loads=3, rows=10)
    least, submitted, said = known_files(graph) + above, list[str](), list[str]()

    def submit(job: str, *_: Any) -> Any:
        submitted.append(job)
        return plan

    plan: OrphansPlan = Orphans().plan(graph, OrphansRequest(), Lines(said.append))
    said.clear()
    settings = Settings.from_env({"OMNIGRAPH_OPS_SPARK_STAGES": f"orphans={least}"})
    found = Orphans().plan(graph.with_settings(settings), OrphansRequest(), Lines(said.append), submit)
    assert (submitted, found.listed_files) == (jobs, plan.listed_files)
    here = f"planned in this process: the graph is known to have {least - 1:,} files, Spark is for {least:,} or more"
    assert (here in said) == (not jobs)
