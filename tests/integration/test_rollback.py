"""What engine 0.7 leaves beside other writers: deletes that it never published, and forks of its lineage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.fence import current_lock, unlock
from omnigraph_ops.coordination.freezes import unfreeze
from omnigraph_ops.coordination.state import LEASE_PATH
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR, new_ulid, version_path
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.sidecars import sidecar_path
from omnigraph_ops.graph.stamp3 import Stamp3
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.models.health import CheckStatus, RecoveryOutcome
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize
from omnigraph_ops.stages.recovery import unpublished
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.crash.harness_state import check_lineage
from tests.support.edges import raising, when_asked, when_published
from tests.support.fences import noted
from tests.support.kills import Killed
from tests.support.leases import bury_holders, take_over
from tests.support.rows import rows_everywhere
from tests.support.waits import instead_of_sleep, shorten_waits
from tests.support.writers import Change, copies, drift, entry_of, write

NOW = datetime(2099, 1, 1)
PERSON, KNOWS = "node:Person", "edge:Knows"


def deletes(column: str = "id") -> Change:
    """The delete of one row, as the engine's own goes into the table."""
    return lambda head: head.delete(f"{column} = '{head.to_table(columns=[column])[column][0].as_py()}'")


@pytest.fixture
def graph(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """A graph of stamp 3 whose engine writes with the Lance of these tests."""
    monkeypatch.setattr(Stamp3, "engines_lance", "lance 13.")
    shorten_waits(monkeypatch)
    return demo_graph(stamp=3, node_types=1)


def assert_left_frozen(graph: Graph, what: str = "") -> None:
    """That `recover` does nothing, and says once who froze what."""
    (told,) = recover(open_graph(graph.uri)).outcomes
    assert (told.action, told.table_key) == ("deferred", "")
    assert f"{what}{graph.uri} is frozen by " in told.detail


def test_a_frozen_graph_stays_as_it_is_and_recover_says_so(graph: Graph) -> None:
    drift(graph, PERSON, deletes())
    drift(graph, KNOWS, deletes())
    heads = [graph.open_head(entry).version for entry in graph.state().entries]
    freeze = freeze_graph(graph)
    assert_left_frozen(graph)
    assert [graph.open_head(entry).version for entry in graph.state().entries] == heads
    unfreeze(graph, freeze.freeze_id)
    assert {o.action for o in recover(open_graph(graph.uri)).outcomes} == {"rolled_back"}


def test_beside_a_frozen_table_the_others_are_rolled_back(graph: Graph) -> None:
    drift(graph, PERSON, deletes())
    drift(graph, KNOWS, deletes())
    freeze_graph(graph, tables=(PERSON,))
    frozen, done = recover(open_graph(graph.uri)).outcomes
    assert (frozen.action, done.action, done.table_key) == ("deferred", "rolled_back", KNOWS)
    assert_left_frozen(graph, f"{PERSON} of ")


@pytest.mark.slow
def test_the_published_rows_are_in_place_again(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    drift(graph, PERSON, deletes())
    drift(graph, KNOWS, deletes())
    assert (check(graph).status, {d.recoverable for d in check(graph).drift}) == (CheckStatus.PENDING, {True})
    report = recover(open_graph(graph.uri))
    assert {(o.table_key, o.action) for o in report.outcomes} == {(PERSON, "rolled_back"), (KNOWS, "rolled_back")}
    after = open_graph(graph.uri)
    assert (report.status, check(after).drift, rows_everywhere(after)) == (CheckStatus.CLEAN, (), rows)
    assert current_lock(after) is None
    check_lineage(after, None)
    assert recover(after).outcomes == ()


@pytest.mark.slow
@pytest.mark.parametrize("finish", [unpublished.publish_leftovers, unpublished.roll_back], ids=lambda f: f.__name__)
def test_tables_are_opened_side_by_side(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, finish: Callable[[Graph], Iterator[RecoveryOutcome]]
) -> None:
    """Each of both tables is opened only when the other one is about to be."""
    opened, real, together = set[str](), lance.dataset, threading.Barrier(2, timeout=60)
    kinds = {entry_of(graph, key).path for key in (PERSON, KNOWS)}

    def dataset(uri: str, **options: Any) -> lance.LanceDataset:
        (table,) = [path for path in kinds if uri.endswith(path)] or [MANIFEST_DIR]
        if table in kinds - opened:
            opened.add(table)
            together.wait()
        return real(uri, **options)

    monkeypatch.setattr(lance, "dataset", dataset)
    assert list(finish(open_graph(graph.uri, Settings(concurrency=2)))) == []
    assert (opened, together.broken) == (kinds, False)


@pytest.mark.slow
def test_what_was_deleted_on_a_branch_is_in_place_again(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stamp3, "engines_lance", "lance 13.")
    shorten_waits(monkeypatch)
    graph = demo_graph(stamp=3, loads=2, rows=8, written_branches=1)
    (branch,) = graph.branches()
    rows, entry = rows_everywhere(graph), entry_of(graph, PERSON, branch)
    deletes()(graph.open_newest(entry))
    assert (check(graph).status, [f.recoverable for f in check(graph).branch_findings]) == (CheckStatus.PENDING, [True])
    report = recover(open_graph(graph.uri))
    assert [(o.table_key, o.action) for o in report.outcomes] == [(PERSON, "rolled_back")]
    assert f"on branch {branch!r}" in report.outcomes[0].detail
    after = open_graph(graph.uri)
    assert (report.status, rows_everywhere(after), current_lock(after)) == (CheckStatus.CLEAN, rows, None)
    assert entry_of(after, PERSON) == entry_of(graph, PERSON)
    check_lineage(after, branch)


@pytest.mark.slow
def test_a_restore_that_came_after_our_publish_is_rolled_back(graph: Graph) -> None:
    """An engine that opens the graph while we are armed takes our commits for a crash, and is too late."""
    rows, before = rows_everywhere(graph), entry_of(graph, PERSON).version
    assert optimize_table(graph, PERSON).committed
    drift(graph, PERSON, lambda head: head.checkout_version(before).restore())
    assert [(d.table_key, d.recoverable) for d in check(graph).drift] == [(PERSON, True)]
    report = recover(open_graph(graph.uri))
    assert [(o.table_key, o.action) for o in report.outcomes] == [(PERSON, "rolled_back")]
    after = open_graph(graph.uri)
    assert (report.status, check(after).drift, rows_everywhere(after)) == (CheckStatus.CLEAN, (), rows)
    check_lineage(after, None)
    assert PERSON not in {t.table_key for t in plan_optimize(after).productive()}, "what was optimized stays so"


@pytest.mark.slow
def test_a_killed_rollback_of_a_restore_is_finished(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, before = rows_everywhere(graph), entry_of(graph, PERSON).version
    assert optimize_table(graph, PERSON).committed
    drift(graph, PERSON, lambda head: head.checkout_version(before).restore())

    with monkeypatch.context() as patch, pytest.raises(Killed):
        when_published(patch, raising(Killed()))
        recover(graph)
    assert recover(open_graph(graph.uri)).status is CheckStatus.CLEAN
    after = open_graph(graph.uri)
    assert (check(after).drift, rows_everywhere(after)) == ((), rows)


@pytest.mark.slow
def test_a_restore_on_top_of_a_published_load_is_rolled_back(graph: Graph) -> None:
    before = entry_of(graph, PERSON).version
    write(graph, PERSON, copies("later-"))
    rows = rows_everywhere(graph)
    drift(graph, PERSON, lambda head: head.checkout_version(before).restore())
    assert [(d.table_key, d.recoverable) for d in check(graph).drift] == [(PERSON, True)]
    assert (recover(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


@pytest.mark.slow
def test_a_rollback_that_was_killed_before_its_publish_is_finished(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_everywhere(graph)
    drift(graph, PERSON, deletes())

    with monkeypatch.context() as patch, pytest.raises(Killed):
        when_published(patch, raising(Killed()))
        recover(graph)
    assert [d.recoverable for d in check(open_graph(graph.uri)).drift] == [True]
    assert recover(open_graph(graph.uri)).status is CheckStatus.CLEAN
    after = open_graph(graph.uri)
    assert (check(after).drift, rows_everywhere(after)) == ((), rows)


@pytest.mark.slow
def test_a_delete_that_is_published_meanwhile_stays_deleted(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine was only slow: what it published is what every reader sees afterwards."""
    drift(graph, PERSON, deletes())
    entry = entry_of(graph, PERSON)
    head = graph.open_head(entry)

    def published() -> None:
        publish(graph, (table_update(graph, entry, head),), actor="engine")

    with monkeypatch.context() as patch:
        when_asked(patch, Storage, "create", published, about=f"^{entry.path}/_versions/", after=True)
        assert recover(graph).outcomes == ()
    rows = rows_everywhere(open_graph(graph.uri))
    assert recover(open_graph(graph.uri)).status is CheckStatus.CLEAN
    after = open_graph(graph.uri)
    assert (check(after).drift, rows_everywhere(after)) == ((), rows)


def test_the_fence_of_a_rollback_ends_by_itself(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process may be killed on a machine of which nobody knows what runs there."""
    drift(graph, PERSON, deletes())
    bounds = list[float]()

    def looked() -> None:
        note = noted(graph)
        assert note is not None and note.until is not None
        bounds.append(note.until - note.raised_at)

    when_asked(monkeypatch, Storage, "create", looked, about=f"^{entry_of(graph, PERSON).path}/_versions/")
    assert recover(graph).outcomes
    assert bounds == [pytest.approx(60)]


def test_nothing_is_rolled_back_once_its_fence_was_lifted(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a person, right before the turn of the rollback."""
    drift(graph, PERSON, deletes())
    head = graph.open_head(entry_of(graph, PERSON)).version
    lifted = list[object]()

    def unlocks() -> None:
        lifted.append(unlock(open_graph(graph.uri), force=True))

    when_asked(monkeypatch, Storage, "create", unlocks, about=f"^{LEASE_PATH}-", times=None)
    assert recover(graph).outcomes == ()
    assert any(lifted)
    assert graph.open_head(entry_of(graph, PERSON)).version == head


@pytest.mark.slow
def test_a_table_that_moves_is_left_to_its_writer(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    drift(graph, PERSON, deletes())
    instead_of_sleep(monkeypatch, lambda _seconds: drift(open_graph(graph.uri), PERSON, deletes()))
    assert recover(graph).outcomes == ()
    assert len(check(open_graph(graph.uri)).drift) == 1


@pytest.mark.parametrize("change", [copies("new-"), lambda head: head.update({"name": "'x'"}, where="id = 'p1'")])
def test_rows_that_were_added_or_changed_are_for_a_person(graph: Graph, change: Change) -> None:
    drift(graph, PERSON, deletes())
    drift(graph, PERSON, change)
    assert recover(graph).outcomes == ()
    found = check(graph)
    assert (found.status, [d.recoverable for d in found.drift]) == (CheckStatus.DRIFTED, [False])


@pytest.mark.parametrize("pending", [False, True])
def test_a_forked_lineage_is_one_line_after_recover(
    graph: Graph, pending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an engine does that read the head of the lineage before we appended to it; a killed one may lie beside."""
    commits = graph.lance.open(graph.storage.uri(COMMITS_DIR))
    stale = max(commits.to_table().to_pylist(), key=lambda row: (row["manifest_version"], row["created_at"]))
    ours = publish(graph, (), actor=None)
    late = stale | {"graph_commit_id": new_ulid(), "parent_commit_id": stale["graph_commit_id"], "created_at": NOW}
    graph.lance.append(commits, pa.Table.from_pylist([late], schema=commits.schema))
    with pytest.raises(AssertionError, match="two commits have one parent"):
        check_lineage(open_graph(graph.uri), None)
    freeze = freeze_graph(graph)
    assert_left_frozen(graph)
    unfreeze(graph, freeze.freeze_id)
    with monkeypatch.context() as lost:
        taken_over = partial(take_over, graph.storage)
        looks_again = partial(when_asked, lost, LanceGateway, "open", taken_over, about=f"/{COMMITS_DIR}$")
        when_asked(lost, Storage, "create", looks_again, about=f"^{LEASE_PATH}-", after=True)
        assert recover(open_graph(graph.uri)).outcomes == (), "whoever has the lease now may be at it"
    bury_holders(graph.storage)
    if pending:
        graph.storage.write(sidecar_path(new_ulid()), b"{}")
    *_, outcome = recover(open_graph(graph.uri)).outcomes
    assert (outcome.action, ours.commit_id != outcome.operation_id) == ("relinked", True)
    check_lineage(open_graph(graph.uri), None)
    assert [o.action for o in recover(open_graph(graph.uri)).outcomes] == ["left_to_engine"] * pending


def test_what_cannot_be_put_on_top_is_for_a_person(graph: Graph) -> None:
    entry = entry_of(graph, PERSON)
    drift(graph, PERSON, deletes())
    published = Path(graph.uri, version_path(entry.path, entry.version, None))
    published.write_bytes(published.read_bytes()[:40])
    assert [d.recoverable for d in check(open_graph(graph.uri)).drift] == [False]


@pytest.mark.slow
def test_a_delete_by_somebody_else_is_for_a_person(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, node_types=1)
    drift(graph, PERSON, deletes())
    assert recover(graph).outcomes == ()
    assert [d.recoverable for d in check(graph).drift] == [False]
