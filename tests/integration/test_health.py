"""Health: what makes a table bad costs it points, and looking changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph_ops.models.health import TableHealth
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.conftest import DemoGraph
from tests.support.rows import tree_of
from tests.support.shell import Cli, runner
from tests.support.writers import copies, delete_first, drift, entry_of, write

PERSON = "node:Person"


def points(table: TableHealth) -> dict[str, float]:
    return {p.name: p.points for p in table.parts}


@pytest.mark.slow
def test_a_neglected_graph_is_bad_and_maintenance_makes_it_good(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, loads=6, rows=10, deletes=4)
    tree = tree_of(graph.uri)
    before = health(graph)
    assert tree_of(graph.uri) == tree
    assert [t.score for t in before.tables] == sorted(t.score or 0 for t in before.tables)
    assert before.tables[0].unindexed_share > 0.5
    optimize_all(graph)
    after = {t.table_key: t for t in health(graph).tables}
    for table in before.tables:
        good = after[table.table_key]
        assert (good.score or 0) > (table.score or 0)
        assert (good.small_share, good.deleted_share, good.unindexed_share) == (0, 0, 0)
        assert (points(good)["fragments"], points(good)["unindexed"]) == (0, 0)
        assert good.maintained_at_us is not None
        assert table.maintained_at_us is None
        assert good.score == round(100 - sum(p.points for p in good.parts))


@pytest.mark.slow
def test_the_internal_tables_have_their_figures(demo_graph: DemoGraph, stamp: int, cli: Cli) -> None:
    graph = demo_graph(stamp=stamp, written_branches=1, loads=3, rows=5)
    found = {t.table_key: t for t in health(graph).internal}
    assert set(found) == {key for key, _ in graph.format.internal_tables(graph.context)}
    stored = [f for f in (Path(graph.uri) / "__manifest").rglob("*") if f.is_file()]
    manifest = found["__manifest"]
    assert (manifest.files, manifest.stored_bytes) == (len(stored), sum(f.stat().st_size for f in stored))
    assert manifest.versions == len([f for f in stored if f.parent == Path(graph.uri) / "__manifest" / "_versions"]) - 1
    assert manifest.fragments == len(graph.manifest().get_fragments()) > 1
    assert health(graph, tables=(PERSON,)).internal == ()
    assert "__manifest" in cli("health", graph.uri).out


@pytest.mark.parametrize("verb", ["health", "plan"])
def test_a_look_that_could_not_read_a_table_does_not_exit_with_0(demo_graph: DemoGraph, cli: Cli, verb: str) -> None:
    graph = demo_graph(node_types=1, loads=2, rows=8)
    versions = Path(graph.table_uri(entry_of(graph, PERSON)), "_versions")
    for manifest in versions.iterdir():
        manifest.write_bytes(b"")
    seen = cli(f"{verb} --json", graph.uri)
    assert seen.code == 1
    assert {t["table_key"] for t in seen.json["tables"]} == {"edge:Knows", PERSON}
    assert "1 table cannot be read: node:Person; nothing was written; run `omnigraph-ops check`" in seen.err


@pytest.mark.slow
def test_every_fact_is_what_the_table_has(demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=1, loads=2, rows=20)
    optimize_all(graph)
    write(graph, PERSON, delete_first(8))
    write(graph, PERSON, copies("a", 8))
    (found,) = health(graph, tables=(PERSON,)).tables
    head = graph.open_head(entry_of(graph, PERSON))
    folder = Path(graph.table_uri(entry_of(graph, PERSON)))
    assert (found.rows, found.fragments, found.small_fragments) == (40, 2, 2)
    assert found.deleted_share == round(8 / 48, 4)
    assert found.unindexed_share == round(8 / 40, 4)
    assert found.versions == head.version == len(list((folder / "_versions").glob("*.manifest")))
    stored = sum(f.stat().st_size for part in ("data", "_indices") for f in (folder / part).rglob("*") if f.is_file())
    live = sum(i.total_size_bytes for i in head.describe_indices())
    assert found.dead_bytes == stored - found.data_bytes - live > 0


def test_drift_is_noted_and_what_cannot_be_read_comes_first(demo_graph: DemoGraph) -> None:
    graph = demo_graph(loads=2, rows=10)
    drift(graph, PERSON, delete_first(1))
    shutil.rmtree(graph.table_uri(entry_of(graph, "node:Company")))
    report = health(graph)
    assert (report.tables[0].table_key, report.tables[0].score) == ("node:Company", None)
    assert report.tables[0].error
    (person,) = [t for t in report.tables if t.table_key == PERSON]
    assert "omnigraph-ops check" in (person.note or "")


def test_blobs_leave_the_dead_bytes_unknown(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, loads=1, rows=4, blobs=True)
    (photo,) = health(graph, tables=("node:Photo",)).tables
    assert photo.dead_bytes is None


def test_the_shell_shows_it(demo_graph: DemoGraph, capsys: pytest.CaptureFixture[str]) -> None:
    graph, cli = demo_graph(node_types=1, loads=3, rows=10), runner(capsys)
    text = cli("health", graph.uri)
    assert text.code == 0
    assert "2 tables," in text.out
    assert "unindexed -" in text.out
    found = cli("health --json", graph.uri).json
    assert {t["table_key"] for t in found["tables"]} == {PERSON, "edge:Knows"}
    assert all(0 <= t["score"] <= 100 for t in found["tables"])
