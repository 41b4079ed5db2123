"""What killed runs leave below `__maintenance/` is swept by the next run, and nothing that a live run needs."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination.environment import this_machine
from omnigraph_ops.coordination.guards import Operation, note_operation, operation_of
from omnigraph_ops.coordination.holds import Hold, HoldKind, Removal, hold_path, write_hold
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.coordination.litter import sweep_beside, sweep_litter
from omnigraph_ops.coordination.state import CLONES_DIR, HOLDS_DIR, REMOVALS_DIR
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.graph.sidecars import sidecar_path
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.optimize.index_work import clone_path
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.kills import AFTER, kill_at
from tests.support.leases import dead_pid
from tests.support.rewrites import clones

A_DAY = 86_400.0
PERSON = "node:Person"


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(stamp=6, node_types=1, loads=3, rows=10)


def die_in_index_work(graph: Graph) -> None:
    """Leave what an optimize of one table leaves that dies beside its clone: two would clone at a time. Writes."""
    kill_at(graph, lambda g: optimize_all(g, tables=[PERSON]), f"shallow_clone {CLONES_DIR}", AFTER)


def held_elsewhere(graph: Graph, *, since: float = 0.0) -> Hold:
    """The hold and the clone of a run that is at work on another machine, and began so many seconds ago. Writes."""
    hold = Hold(
        hold_id=new_ulid(),
        kind=HoldKind.PLAN,
        owner="far:1",
        reason="rewrite of node:Person",
        created_at=time.time() - since,
        expires_at=time.time() - since + A_DAY,
        versions=(),
        pid=1,
        machine="far",
    )
    write_hold(graph.storage, hold)
    graph.storage.write(f"{clone_path(hold.hold_id)}/_indices/x/part.idx", b"of a live run")
    return hold


def removal_elsewhere(graph: Graph, *, since: float = 0.0) -> str:
    removal = Removal(
        table_path="nodes/x",
        branch=None,
        versions=(1,),
        owner="far:1",
        pid=1,
        machine="far",
        announced_at=time.time() - since,
    )
    path = f"{REMOVALS_DIR}/{new_ulid()}.json"
    graph.storage.write(path, serde.dumps(removal).encode())
    return path


def test_an_optimize_sweeps_what_killed_ones_left(graph: Graph) -> None:
    for _ in range(2):
        die_in_index_work(graph)
    removal = removal_elsewhere(graph)
    mine = replace(serde.from_json(Removal, graph.storage.read(removal)), pid=dead_pid(), machine=this_machine())
    graph.storage.write(removal, serde.dumps(mine).encode())
    assert clones(graph)
    optimize_all(graph)
    assert not clones(graph)
    assert not graph.storage.list(HOLDS_DIR)
    assert not graph.storage.list(REMOVALS_DIR)


@pytest.mark.parametrize(("since", "stays"), [(0.0, True), (A_DAY - 60, True), (A_DAY + 1, False)])
def test_a_run_on_another_machine_keeps_its_clone_until_its_hold_expires(
    graph: Graph, since: float, *, stays: bool
) -> None:
    hold, removal = held_elsewhere(graph, since=since), removal_elsewhere(graph, since=since)
    sweep_beside(graph)
    optimize_all(graph)
    assert bool(clones(graph)) is stays
    assert (f"{hold.hold_id}.json" in graph.storage.list(HOLDS_DIR)) is stays
    assert (removal.rpartition("/")[2] in graph.storage.list(REMOVALS_DIR)) is stays


def test_a_run_that_begins_elsewhere_during_the_sweep_keeps_its_clone(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever the sweep has listed the holds, another machine places one more, and makes its clone."""
    die_in_index_work(graph)
    dead, kept, begun = clones(graph), Storage.list, list[Hold]()

    def listed(storage: Storage, folder: str) -> tuple[str, ...]:
        names = kept(storage, folder)
        if folder == HOLDS_DIR:
            begun.append(held_elsewhere(graph))
        return names

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "list", listed)
        sweep_beside(graph)
    assert begun
    assert clones(graph) == {f"{hold.hold_id}.lance" for hold in begun}
    assert dead.isdisjoint(clones(graph))
    assert all(graph.storage.read(hold_path(hold.hold_id)) for hold in begun)


def test_the_note_of_an_operation_stays_as_long_as_its_sidecar(graph: Graph) -> None:
    """Without it our own sidecar is one of somebody else, and waits for the grace period."""
    armed, over = new_ulid(), new_ulid()
    for made in (armed, over):
        note = Operation(operation_id=made, table_key=PERSON, unit="rewrite", owner="far:1", started_at_us=1)
        note_operation(graph.storage, note)
    graph.storage.write(sidecar_path(armed), b"{}")
    sweep_litter(graph, 0)
    assert operation_of(graph.storage, armed) is not None
    assert operation_of(graph.storage, over) is None


def test_nothing_is_swept_while_another_run_commits(graph: Graph) -> None:
    die_in_index_work(graph)
    left = clones(graph)
    with committer_turn(graph, "commit"):
        sweep_beside(graph)
    assert clones(graph) == left


def test_nothing_of_a_frozen_graph_is_swept(graph: Graph) -> None:
    die_in_index_work(graph)
    left = clones(graph)
    freeze_graph(graph, ttl_seconds=600)
    sweep_beside(graph)
    assert clones(graph) == left


def test_a_sweep_that_fails_stops_no_run(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    die_in_index_work(graph)
    kept = Storage.delete_tree

    def refused(storage: Storage, folder: str) -> None:
        if folder.rpartition("/")[2] in left:
            raise StorageError(f"cannot delete {folder}: access denied")
        kept(storage, folder)

    left = clones(graph)
    monkeypatch.setattr(Storage, "delete_tree", refused)
    with caplog.at_level(logging.WARNING):
        report = optimize_all(graph)
    assert not report.failed
    assert any(row.committed for row in report.tables)
    assert "what killed runs left behind stays: cannot delete" in caplog.text


def test_an_account_that_may_not_write_sweeps_nothing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    die_in_index_work(graph)
    before = {path: path.stat().st_mtime_ns for path in Path(graph.uri).rglob("*")}

    def refused(_storage: Storage, path: str, _data: bytes) -> bool:
        raise StorageError(f"cannot write {path}: access denied")

    monkeypatch.setattr(Storage, "write", refused)
    monkeypatch.setattr(Storage, "create", refused)
    sweep_beside(graph)
    assert {path: path.stat().st_mtime_ns for path in Path(graph.uri).rglob("*")} == before
    assert "what killed runs left behind stays" in caplog.text
