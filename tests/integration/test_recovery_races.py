"""Sidecars that change under our feet: recovered twice at once, gone, replaced, of another branch, two on a table."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph_ops.coordination.guards import Operation, note_operation
from omnigraph_ops.coordination.state import LEASE_PATH
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MAINTENANCE_DIR, RECOVERY_DIR
from omnigraph_ops.graph.sidecars import list_sidecars, sidecar_names, sidecar_path
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.beside import Beside
from tests.support.edges import when_asked
from tests.support.leases import take_over
from tests.support.rows import rows_everywhere
from tests.support.sidecars import TABLE, arm, audit_rows, commit_rows, move
from tests.support.writers import entry_of


@pytest.fixture
def graph(demo_graph: Callable[..., Graph], stamp: int) -> Graph:
    """Fragmented tables and nothing pending."""
    return demo_graph(stamp=stamp, loads=3, rows=8, settings=QUICK)


@pytest.fixture
def before_lease(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Runs something after `recover` looked at a sidecar and before it holds the lease."""

    def install(act: Callable[[], object]) -> None:
        when_asked(monkeypatch, Storage, "create", act, about=f"^{LEASE_PATH}-", times=None)

    return install


@pytest.mark.slow
@pytest.mark.parametrize("moved", [True, False], ids=["roll_forward", "roll_back"])
def test_two_recoveries_race_for_one_sidecar(
    graph: Graph, moved: bool, before_lease: Callable[[Callable[[], object]], None]
) -> None:
    rows, commits = rows_everywhere(graph), commit_rows(graph)
    arm(graph)
    head = move(graph) if moved else entry_of(graph, TABLE).version
    both_looked, came = threading.Barrier(2, timeout=300), set[int]()

    def wait_once() -> None:
        # A later turn, for litter, may be taken by one of them alone.
        if threading.get_ident() not in came:
            came.add(threading.get_ident())
            both_looked.wait()

    before_lease(wait_once)
    with ThreadPoolExecutor(2) as pool:
        # The second one waits for the first, however long that takes.
        patient = QUICK.model_copy(update={"lease_wait_seconds": 600})
        runs = [pool.submit(recover, open_graph(graph.uri, patient)) for _ in range(2)]
        reports = [run.result() for run in runs]
    details = sorted(o.detail for r in reports for o in r.outcomes)
    assert [r.status for r in reports] == [CheckStatus.CLEAN, CheckStatus.CLEAN]
    assert details.count("another process finished it") == 1
    assert len(audit_rows(graph)) == 1
    assert len(commit_rows(graph)) == len(commits) + 1
    assert entry_of(graph, TABLE).version == head
    assert rows_everywhere(graph) == rows
    assert not sidecar_names(graph.storage)
    check_lineage(graph, None)


def test_a_sidecar_that_vanishes_after_the_listing_is_skipped(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, stays = arm(graph, age_seconds=1000), arm(graph, age_seconds=100)
    path = sidecar_path(gone)
    when_asked(monkeypatch, Storage, "read", lambda: graph.storage.delete(path), about=path, times=None)
    assert {f"{gone}.json", f"{stays}.json"} == sidecar_names(graph.storage)
    assert [f.path for f in list_sidecars(graph.storage, 9)] == [sidecar_path(stays)]
    assert [o.operation_id for o in recover(graph).outcomes] == [stays]
    assert len(audit_rows(graph)) == 1


def test_a_sidecar_of_ours_that_another_host_settles_meanwhile_is_not_taken_for_a_writer_at_work(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Operation(
        operation_id=arm(graph, age_seconds=100), table_key=TABLE, unit="data", owner="a:1", started_at_us=1
    )
    note_operation(graph.storage, dead)

    def settled() -> None:
        assert [o.action for o in recover(open_graph(graph.uri)).outcomes] == ["rolled_back"]

    when_asked(monkeypatch, Storage, "read", settled, about=sidecar_path(dead.operation_id), after=True)
    report = recover(graph, grace_seconds=900)
    assert [(o.action, o.detail) for o in report.outcomes] == [("stale", "another process finished it")]
    assert report.status is CheckStatus.CLEAN


def test_a_sidecar_replaced_before_the_lease_is_judged_as_it_is_now(
    graph: Graph, before_lease: Callable[[Callable[[], object]], None]
) -> None:
    operation_id = arm(graph)
    move(graph)
    path, pinned = sidecar_path(operation_id), entry_of(graph, TABLE)

    def replace() -> None:
        text = graph.storage.read(path).decode()
        graph.storage.write(path, text.replace('"Optimize"', '"SchemaApply"').encode())

    before_lease(replace)
    report = recover(graph)
    assert [o.action for o in report.outcomes] == ["left_to_engine"]
    assert report.status is CheckStatus.NEEDS_PERSON
    assert graph.storage.exists(path)
    assert entry_of(graph, TABLE) == pinned
    assert audit_rows(graph) == []


def test_a_recovery_that_lost_the_lease_before_its_effect_has_none(graph: Graph) -> None:
    operation_id = arm(graph)
    move(graph)
    pinned = entry_of(graph, TABLE)
    (outcome,) = recover(graph.with_run(Beside(lambda: take_over(graph.storage)))).outcomes
    assert "was taken over by another run" in outcome.detail
    assert entry_of(graph, TABLE) == pinned
    assert graph.storage.exists(sidecar_path(operation_id))
    assert audit_rows(graph) == []


def test_a_sidecar_damaged_before_the_lease_is_left(
    graph: Graph, before_lease: Callable[[Callable[[], object]], None]
) -> None:
    operation_id = arm(graph)
    move(graph)
    before_lease(lambda: graph.storage.write(sidecar_path(operation_id), b"{"))
    assert [o.action for o in recover(graph).outcomes] == ["left_to_engine"]
    assert audit_rows(graph) == []


def test_two_sidecars_on_one_table_are_judged_one_after_the_other(graph: Graph) -> None:
    rows, pin = rows_everywhere(graph), entry_of(graph, TABLE).version
    old, young = arm(graph, age_seconds=1000), arm(graph, age_seconds=100)
    head = move(graph)
    outcomes = recover(graph).outcomes
    # The second was judged a roll-forward too until the first was finished.
    assert [(o.operation_id, o.action) for o in outcomes] == [(old, "rolled_forward"), (young, "stale")]
    assert [(o.from_version, o.to_version) for o in outcomes] == [(pin, head), (pin, head)]
    assert [(r["operation_id"], r["recovery_kind"]) for r in audit_rows(graph)] == [
        (old, "RolledForward"),
        (young, "RolledForward"),
    ]
    assert entry_of(graph, TABLE).version == head
    assert rows_everywhere(graph) == rows
    assert check(graph).status is CheckStatus.CLEAN
    check_lineage(graph, None)


@pytest.mark.parametrize("moved", [True, False], ids=["roll_forward", "roll_back"])
def test_the_audit_keeps_whom_the_sidecar_worked_for(graph: Graph, moved: bool) -> None:
    arm(graph, change=lambda document: document.update(actor_id="act-alice"))
    if moved:
        move(graph)
    recover(graph)
    (audit,) = audit_rows(graph)
    assert audit["recovery_for_actor"] == "act-alice"
    assert commit_rows(graph)[-1]["actor_id"] == "omnigraph:recovery"


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["review/hires-1", None])
def test_only_a_sidecar_of_main_covers_drift_of_main(
    demo_graph: Callable[..., Graph], stamp: int, branch: str | None
) -> None:
    graph = demo_graph(stamp=stamp, loads=3, rows=6, node_types=1, written_branches=1, settings=QUICK)
    arm(graph, change=lambda document: document.update(branch=branch))
    move(graph)
    report = check(graph)
    assert [(d.table_key, d.covered) for d in report.drift] == [(TABLE, branch is None)]
    advised = any("omnigraph-ops repair" in line for line in report.advice)
    assert advised is (branch is not None)


def test_a_temporary_file_is_swept_only_when_nobody_can_be_writing_it(graph: Graph) -> None:
    """Without a grace period too: a run beside us writes its lease and its sidecar through such files."""
    for folder in (RECOVERY_DIR, MAINTENANCE_DIR):
        for name, age in (("young", 5), ("old", 120)):
            path = Path(graph.uri, folder, f"{name}.json.0123.tmp")
            path.parent.mkdir(exist_ok=True)
            path.write_text("{")
            os.utime(path, (time.time() - age,) * 2)
    assert recover(graph, grace_seconds=0).status is CheckStatus.CLEAN
    left = {path.name for folder in (RECOVERY_DIR, MAINTENANCE_DIR) for path in Path(graph.uri, folder).glob("*.tmp")}
    assert left == {"young.json.0123.tmp"}
