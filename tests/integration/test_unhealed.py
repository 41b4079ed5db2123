"""What no recovery heals is found and named, and a night goes on beside it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from omnigraph_ops.errors import CorruptGraph, InvalidInput, OpsError, TransientError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import version_path
from omnigraph_ops.graph.sidecars import write_sidecar
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.health import BranchFinding, CheckStatus
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.health.stage import Health
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.recovery.unhealed import branch_findings
from tests.conftest import DemoGraph
from tests.support.edges import when_asked
from tests.support.orphans import KNOWS, PERSON, drop
from tests.support.rows import rows_everywhere
from tests.support.waits import instead_of_sleep
from tests.support.writers import copies, delete_first, entry_of, write


def on_branch(graph: Graph) -> tuple[str, str]:
    """A named branch and a table that it owns. Reads."""
    return next((b, e.table_key) for b in graph.branches() for e in graph.state(b).entries if e.branch == b)


@pytest.mark.slow
def test_writes_on_a_branch_that_were_never_published_are_found(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, loads=1, rows=6, written_branches=1)
    branch, key = on_branch(graph)
    entry = entry_of(graph, key, branch)
    assert check(graph).status is CheckStatus.CLEAN
    delete_first()(graph.lance.open(graph.table_uri(entry), branch=branch))
    found = check(graph)
    assert (found.status, found.branch_findings) == (
        CheckStatus.DRIFTED,
        (
            BranchFinding(
                branch=branch,
                table_key=key,
                manifest_version=entry.version,
                lance_head_version=entry.version + 1,
            ),
        ),
    )
    assert found.advice[0].startswith(f"branch {branch!r} has writes that were never published, of {key}: ")
    assert recover(graph).status is CheckStatus.DRIFTED
    assert not optimize_all(graph).failed


def test_a_branch_that_only_this_tool_cannot_open_is_not_called_gone(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, name="a?b.omni", node_types=1, loads=1, rows=6)
    assert check(graph).status is CheckStatus.CLEAN
    # As 0.7.2 makes it: Lance 9 and later would make it outside of the graph.
    made = demo_graph(stamp=stamp, node_types=1, loads=1, rows=6, written_branches=1)
    shutil.copytree(made.uri, graph.uri, dirs_exist_ok=True)
    told = r"there is a '\?' in the path; .* the branch may be whole"
    with pytest.raises(InvalidInput, match=told):
        check(graph)
    for refused in (freeze_graph, plan_orphans):
        with pytest.raises(OpsError, match=told):
            refused(graph)
    assert all(
        re.search(told, row.refused or "") for row in plan_cleanup(graph, RetentionPolicy(keep_versions=1)).tables
    )


def test_a_writer_at_work_on_a_branch_is_no_finding(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = demo_graph(node_types=1, loads=1, rows=6, written_branches=1)
    branch, key = on_branch(graph)
    uri = graph.table_uri(entry_of(graph, key, branch))
    delete_first()(graph.lance.open(uri, branch=branch))
    instead_of_sleep(monkeypatch, lambda _: delete_first()(graph.lance.open(uri, branch=branch)))
    found = check(graph)
    assert (found.status, found.branch_findings) == (CheckStatus.CLEAN, ())


def test_a_version_that_only_a_branch_publishes_is_missed(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, loads=1, rows=6, lazy_branches=1)
    pinned = entry_of(graph, PERSON, "lazy-1")
    write(graph, PERSON, copies("later-"))
    assert check(graph).status is CheckStatus.CLEAN
    Path(graph.uri, version_path(pinned.path, pinned.version, None)).unlink()
    found = check(graph)
    assert [(f.branch, f.table_key, f.lance_head_version) for f in found.branch_findings] == [("lazy-1", PERSON, None)]
    assert found.status is CheckStatus.DRIFTED
    assert f"branch 'lazy-1' publishes versions that are gone, of {PERSON}: " in found.advice[0]
    with pytest.raises(CorruptGraph, match=f"branch 'lazy-1' publishes version {pinned.version} of {PERSON}, which is"):
        freeze_graph(graph)


def test_branches_of_a_graph_that_was_moved_are_not_called_gone(
    demo_graph: DemoGraph, stamp: int, tmp_path: Path
) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, loads=1, rows=6, lazy_branches=1, written_branches=1)
    moved = shutil.move(graph.uri, tmp_path / "moved.omni")
    found = check(open_graph(str(moved)))
    assert found.status is CheckStatus.DRIFTED
    assert len(found.advice) == 1
    assert f"because the graph was at '{graph.uri}' when these branches were made" in found.advice[0]
    assert found.advice[0].endswith("delete no branch for this")
    report = health(open_graph(str(moved)), files=True)
    assert "the graph may only have been moved" in Health().problem(report)
    with pytest.raises(OpsError, match="`omnigraph-ops check` says what to do about branch"):
        freeze_graph(open_graph(str(moved)))
    Path(graph.uri).symlink_to(moved)
    assert check(open_graph(str(moved))).status is CheckStatus.CLEAN


def test_a_branch_that_cannot_be_read_is_found(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, loads=1, rows=6, lazy_branches=2)
    for manifest in Path(graph.uri, "__manifest/tree/lazy-1/_versions").glob("*.manifest"):
        manifest.write_bytes(b"junk")
    found = check(graph)
    assert [(f.branch, f.table_key) for f in found.branch_findings] == [("lazy-1", "__manifest")]
    assert found.status is CheckStatus.DRIFTED
    assert not optimize_all(graph).failed


def test_a_branch_that_is_deleted_during_the_look_is_no_finding(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(node_types=1, loads=1, rows=6, lazy_branches=1)
    deleted = partial(graph.manifest().branches.delete, "lazy-1")
    listed = when_asked(monkeypatch, LanceGateway, "branches", deleted, about="/__manifest$", after=True)
    assert branch_findings(graph, covered=()) == ()
    assert listed


def test_a_table_without_a_type_is_found(demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=3, node_types=1, loads=1, rows=6)
    drop(graph, KNOWS)
    rows, found = rows_everywhere(graph), check(graph)
    assert (found.status, found.schema_mismatch) == (CheckStatus.DRIFTED, (KNOWS,))
    assert f"the accepted schema and __manifest disagree about {KNOWS}: " in found.advice[0]
    assert not optimize_all(graph).failed
    assert rows_everywhere(graph) == rows


def test_a_sidecar_that_the_engine_decides_is_named_with_the_root_that_it_spells(demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=6, node_types=1, loads=1, rows=6)
    entry = entry_of(graph, PERSON)
    name = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    write_sidecar(graph, entry, name, "g/kb.omni")
    path = Path(graph.uri, f"__recovery/{name}.json")
    path.write_text(path.read_text().replace("Optimize", "Load"))
    (advice,) = check(graph).advice
    assert advice.startswith(f"open the graph read-write once with omnigraph, for __recovery/{name}.json ({PERSON}): ")
    assert "open it as 'g/kb.omni', as it spells a table" in advice


@pytest.mark.parametrize("change", [{"schema_version": 99}, {"writer_kind": "Dream"}, None], ids=str)
def test_nobody_is_told_to_open_what_is_refused(demo_graph: DemoGraph, change: dict[str, object] | None) -> None:
    graph = demo_graph(stamp=6, node_types=1, loads=1, rows=6)
    name = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    write_sidecar(graph, entry_of(graph, PERSON), name, graph.uri)
    path = Path(graph.uri, f"__recovery/{name}.json")
    path.write_text("{" if change is None else json.dumps(json.loads(path.read_text()) | change))
    (advice,) = check(graph).advice
    assert advice.startswith(
        f"do not open the graph with this omnigraph, for __recovery/{name}.json (tables unknown): "
    )
    assert advice.endswith("keep writers away, and restore the graph from a backup if nothing else helps")


@pytest.fixture
def stale(demo_graph: DemoGraph) -> Graph:
    """A graph that was opened before a schema apply added a table."""
    graph = demo_graph(stamp=6, node_types=1, loads=1, rows=6)
    earlier = replace(graph.catalog, tables=tuple(t for t in graph.catalog.tables if t.table_key != KNOWS))
    return replace(graph, catalog=earlier)


def test_a_schema_that_changed_meanwhile_is_said_and_may_be_tried_again(stale: Graph) -> None:
    with pytest.raises(TransientError, match=r"the schema of .* was changed since it was read; nothing was written"):
        plan_optimize(stale)
    assert check(stale).status is CheckStatus.CLEAN
    assert KNOWS in {table.table_key for table in optimize_all(stale).tables}


def test_a_schema_apply_at_work_is_said(stale: Graph) -> None:
    stale.storage.write("_schema.pg.staging", b"")
    with pytest.raises(TransientError, match=r"a schema apply of .* is in progress, or ended half way"):
        plan_optimize(stale)
    found = check(stale)
    assert (found.status, found.staging_files) == (CheckStatus.NEEDS_PERSON, ("_schema.pg.staging",))
    drop(stale, KNOWS)
    assert check(stale).schema_mismatch == (), "the engine may finish it, nothing is to be restored"


def test_a_schema_that_stays_apart_from_the_manifest_is_no_schema_apply(demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=6, node_types=1, loads=1, rows=6)
    drop(graph, KNOWS)
    for verb in (plan_optimize, check):
        with pytest.raises(CorruptGraph, match=f"the accepted schema and __manifest disagree about {KNOWS!r}"):
            verb(graph)


def test_a_load_meanwhile_does_not_explain_a_schema_that_stays_apart(demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=6, node_types=1, loads=1, rows=6)
    drop(graph, KNOWS)
    before = graph.state()
    write(graph, PERSON, copies("more-"))
    assert graph.state().entries != before.entries
    with pytest.raises(CorruptGraph, match="the accepted schema and __manifest disagree"):
        graph.maintained(before)
