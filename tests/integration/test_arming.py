"""The armed window where the store fails, or where somebody else shows up at any moment of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.landing import land
from omnigraph_ops.coordination.state import LEASE_PATH
from omnigraph_ops.errors import (
    CorruptGraph,
    DriftFound,
    LeaseHeld,
    OutcomeUnknown,
    RecoveryPending,
    StalePlan,
    StorageError,
)
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.lance_manifest import history
from omnigraph_ops.graph.layout import MAINTENANCE_DIR, RECOVERY_DIR, SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.sidecars import list_sidecars, sidecar_names, sidecar_path
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.commits import ConfigRemoval, RewriteChange
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.lance.tables import execute_task, plan_tasks
from omnigraph_ops.models.health import CheckStatus, RecoverReport
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Lines, Run, Stopped
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged, assert_no_leftovers, assert_pins_are_heads
from tests.support.edges import nothing, raising, when_asked, when_committed, when_published
from tests.support.kills import AFTER, kill_at
from tests.support.leases import bury_holders, is_free, take_over
from tests.support.losses import lossy_result
from tests.support.orphans import drop
from tests.support.rewrites import unreferenced_files
from tests.support.rows import rows_of, tree_of
from tests.support.sidecars import arm, audit_rows
from tests.support.waits import instead_of_sleep
from tests.support.writers import delete_first, drift, entry_of

pytestmark = pytest.mark.slow

NOTHING = ConfigRemoval(keys=("none",))
"""A change that leaves everything as it is."""
PEOPLE = {"node_types": 1, "loads": 3, "rows": 12}
PERSON, KNOWS = "node:Person", "edge:Knows"
FOREIGN = "01ARYZ6S410000000000000000"


def refuse(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Every `call` of the storage below `__recovery/` fails."""
    fails = raising(StorageError(f"cannot {call} {RECOVERY_DIR}/: 503 Slow Down"))
    when_asked(monkeypatch, Storage, call, fails, about=f"^{RECOVERY_DIR}/", times=None)


def graph_files(graph: Graph) -> dict[str, str]:
    """What is on disk but for our own folder, and the one the sidecars were in."""
    return {k: v for k, v in tree_of(graph.uri).items() if not k.startswith(MAINTENANCE_DIR) and k != RECOVERY_DIR}


def test_a_sidecar_that_cannot_be_written_moves_nothing(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    tree = graph_files(graph)
    with monkeypatch.context() as failing:
        refuse(failing, "write")
        with pytest.raises(StorageError, match=f"cannot write {RECOVERY_DIR}/.*Slow Down"):
            optimize_table(graph, PERSON)
        report = optimize_all(graph)
    assert [(t.table_key, "Slow Down" in (t.error or "")) for t in report.failed] == [
        ("edge:Knows", True),
        (PERSON, True),
    ]
    assert graph_files(graph) == tree
    assert is_free(graph.storage)
    # Whether such a put landed is unknown, so our record of it stays until the next recover.
    assert recover(graph).status is CheckStatus.CLEAN
    assert_no_leftovers(graph)
    assert not optimize_all(graph).failed
    assert_converged(graph)


def test_a_sidecar_that_cannot_be_deleted_leaves_the_write_published(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    rows, before = rows_of(graph), entry_of(graph, PERSON)
    with monkeypatch.context() as failing:
        refuse(failing, "delete")
        with pytest.raises(StorageError, match=r"no row is lost.*run `omnigraph-ops recover`"):
            optimize_table(graph, PERSON)
    after = entry_of(graph, PERSON)
    assert after.version > before.version
    assert rows_of(graph) == rows
    assert_pins_are_heads(graph)
    assert check(graph).status is CheckStatus.PENDING
    # Not deferred: our record of it is still there, and its run is over.
    (outcome,) = recover(graph, grace_seconds=3600).outcomes
    assert (outcome.action, outcome.from_version, outcome.to_version) == ("stale", before.version, after.version)
    assert [r["recovery_kind"] for r in audit_rows(graph)] == ["RolledForward"]
    assert entry_of(graph, PERSON) == after
    assert_no_leftovers(graph)


def sidecar(graph: Graph) -> None:
    graph.storage.write(sidecar_path(FOREIGN), b"{}")


def disarm(graph: Graph) -> None:
    graph.storage.delete(sidecar_path(FOREIGN))


def lock(graph: Graph) -> None:
    graph.manifest().create_branch(SCHEMA_APPLY_LOCK)


def unlock(graph: Graph) -> None:
    graph.lance.delete_branch(graph.manifest(), SCHEMA_APPLY_LOCK)


@pytest.mark.parametrize(
    ("comes_and_goes", "words"),
    [((sidecar, disarm), f"sidecar {FOREIGN}"), ((lock, unlock), "the schema-apply lock")],
)
def test_whoever_appears_while_arming_has_the_right_of_way(
    demo_graph: DemoGraph,
    stamp: int,
    comes_and_goes: tuple[Callable[[Graph], None], Callable[[Graph], None]],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Again and again, until the patience with it is over."""
    graph = demo_graph(stamp=stamp, **PEOPLE)
    entry, rows, (appears, ends) = entry_of(graph, PERSON), rows_of(graph), comes_and_goes
    while_arming(monkeypatch, graph, lambda: appears(graph), otherwise=lambda _seconds: ends(graph))
    with pytest.raises(RecoveryPending, match=f"{words}.* appeared on .* while arming; nothing was written"):
        land(graph, entry, [NOTHING], unit="config")
    assert sidecar_names(graph.storage) == ({f"{FOREIGN}.json"} if appears is sidecar else set())
    assert graph.storage.list(f"{MAINTENANCE_DIR}/operations") == ()
    assert is_free(graph.storage)
    assert (entry_of(graph, PERSON), graph.open_head(entry).version) == (entry, entry.version)
    assert rows_of(graph) == rows


@pytest.mark.parametrize("small", [True, False])
def test_an_optimize_plans_again_beside_a_writer_that_armed_and_gives_up_in_the_end(
    demo_graph: DemoGraph, stamp: int, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, settings=Settings(small_table_bytes=10**9 if small else 0), **PEOPLE)
    before, rows, said = entry_of(graph, PERSON), rows_of(graph), list[str]()
    patience = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]

    def waits(seconds: float) -> None:
        if patience and patience.pop(0) == seconds:
            disarm(graph)

    while_arming(monkeypatch, graph, lambda: sidecar(graph), otherwise=waits)
    with pytest.raises(RecoveryPending, match=f"pending recovery sidecar.*{FOREIGN}"):
        optimize_table(graph, PERSON, progress=Lines(said.append))
    assert any(f"preempted, planning again: sidecar {FOREIGN}" in text and "while arming" in text for text in said)
    assert sidecar_names(graph.storage) == {f"{FOREIGN}.json"}
    assert (entry_of(graph, PERSON), graph.open_head(before).version) == (before, before.version)
    assert rows_of(graph) == rows
    assert unreferenced_files(graph, before) == [], "what was built is of no use: it went at once"


@pytest.mark.parametrize("small", [True, False])
def test_a_writer_in_its_own_window_costs_a_moment_and_no_work(
    demo_graph: DemoGraph, stamp: int, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, settings=Settings(small_table_bytes=10**9 if small else 0), **PEOPLE)
    built = when_asked(monkeypatch, LanceGateway, "clone")
    waits: list[float] = []

    def appears() -> None:
        if not waits:
            sidecar(graph)

    def ends(seconds: float) -> None:
        waits.append(seconds)
        disarm(graph)

    while_arming(monkeypatch, graph, appears, otherwise=ends)
    optimize_table(graph, PERSON)
    assert (len(built), waits) == (1, [0.1])
    assert_pins_are_heads(graph)


@pytest.mark.parametrize(("stamp", "is_alone", "waits_at_all"), [(3, False, False), (6, False, True), (6, True, False)])
def test_only_beside_writers_that_compare_heads_it_waits_for_those_that_are_arming(
    demo_graph: DemoGraph, stamp: int, is_alone: bool, waits_at_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, settings=Settings(exclusive=is_alone), **PEOPLE)
    waits: list[float] = []
    instead_of_sleep(monkeypatch, waits.append)
    optimize_table(graph, PERSON)
    assert bool(waits) == waits_at_all
    assert all(0.05 <= seconds <= 2 for seconds in waits)
    assert_pins_are_heads(graph)


def test_a_commit_of_another_writer_is_never_buried(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lands between our last look and our commit, and its writer dies before it publishes."""
    graph = demo_graph(stamp=stamp, **PEOPLE)
    before = entry_of(graph, PERSON)
    once_armed(monkeypatch, lambda: drift(graph, PERSON, delete_first()))
    with pytest.raises(DriftFound, match="ahead of manifest version"):
        land(graph, before, [NOTHING], unit="config")
    assert graph.open_head(before).version == before.version + 1
    chain = history(graph.storage, before.path, after=before.version, upto=before.version + 1)
    assert chain.operations == ("Delete",), "only its own commit is ahead of the pin"
    assert entry_of(graph, PERSON) == before
    assert not sidecar_names(graph.storage)


def test_an_engine_that_withdraws_our_sidecar_before_the_commit_costs_an_attempt(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    before, covered = entry_of(graph, PERSON), list[frozenset[str]]()
    armed = once_armed(monkeypatch, lambda: withdraw(graph), times=1)
    when_committed(
        monkeypatch, lambda: covered.append(sidecar_names(graph.storage)), about=f"^{before.path}/", times=None
    )
    result = land(graph, before, [NOTHING], unit="config")
    assert len(set(armed)) == 2
    assert covered == [name_of(armed[1])], "nothing is committed that no sidecar covers"
    assert (result.entry.version, graph.open_head(before).version) == (before.version + 1, before.version + 1)
    assert_no_leftovers(graph)


def test_an_engine_that_withdraws_our_sidecar_after_the_commit_leaves_it_published(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its open looked at the table before our commit landed: it rolled back nothing and removed the sidecar."""
    graph = demo_graph(stamp=stamp, **PEOPLE)
    before, during_publish = entry_of(graph, PERSON), list[frozenset[str]]()
    after_commit(monkeypatch, lambda: withdraw(graph))
    armed = once_armed(monkeypatch, nothing)
    when_published(monkeypatch, lambda: during_publish.append(sidecar_names(graph.storage)), times=None)
    result = land(graph, before, [NOTHING], unit="config")
    assert during_publish == [name_of(armed[1])], "it is covered again when it is published"
    assert result.entry.version == before.version + 1
    assert_no_leftovers(graph)


def test_an_engine_that_publishes_our_commit_first_is_no_error(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    before = entry_of(graph, PERSON)
    after_commit(monkeypatch, lambda: recover_as_engine(graph))
    result = land(graph, before, [NOTHING], unit="config")
    assert result.entry.version == before.version + 1
    assert_pins_are_heads(graph)
    assert_no_leftovers(graph)


def test_a_lease_that_is_lost_before_the_commit_stops_it(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    before = entry_of(graph, PERSON)
    once_armed(monkeypatch, lambda: take_over(graph.storage))
    with pytest.raises(LeaseHeld, match="taken over"):
        land(graph, before, [NOTHING], unit="config")
    assert graph.open_head(before).version == before.version
    assert not sidecar_names(graph.storage)


def test_a_lease_that_is_lost_after_the_commit_leaves_the_publish_to_recover(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    before = entry_of(graph, PERSON)
    with monkeypatch.context() as patch:
        after_commit(patch, lambda: take_over(graph.storage))
        with pytest.raises(OutcomeUnknown, match=r"is complete and not published.*run `omnigraph-ops recover`"):
            land(graph, before, [NOTHING], unit="config")
    assert entry_of(graph, PERSON) == before
    bury_holders(graph.storage)
    assert recover(graph, grace_seconds=3600).status is CheckStatus.CLEAN
    assert entry_of(graph, PERSON).version == before.version + 1


def test_whoever_takes_the_lease_over_may_publish_the_commit(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    before = entry_of(graph, PERSON)

    def other_run() -> None:
        take_over(graph.storage)
        recover_as_engine(graph)

    after_commit(monkeypatch, other_run)
    assert land(graph, before, [NOTHING], unit="config").entry.version == before.version + 1
    assert_pins_are_heads(graph)
    assert not sidecar_names(graph.storage)


@pytest.mark.parametrize("files_gone", [False, True])
def test_a_table_that_is_dropped_before_its_turn_is_left_as_it_is(demo_graph: DemoGraph, *, files_gone: bool) -> None:
    """Its HEAD still is what was planned with: the look under the lease is what tells."""
    graph = demo_graph(stamp=6, **PEOPLE)
    before = entry_of(graph, PERSON)
    drop(graph, PERSON)
    if files_gone:
        graph.storage.delete_tree(before.path)
    tree = graph_files(graph)
    with pytest.raises(StalePlan, match=r"was dropped or replaced while it was maintained; nothing was written"):
        land(graph, before, [NOTHING], unit="config")
    assert graph_files(graph) == tree
    assert not sidecar_names(graph.storage)


def test_what_is_landed_is_told_as_it_is_published(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    for _ in range(2):
        before = entry_of(graph, PERSON)
        landed = land(graph, before, [NOTHING], unit="config")
        assert landed.entry == entry_of(graph, PERSON)
        assert landed.entry.version == before.version + 1


def test_a_table_that_is_dropped_after_the_commit_is_not_published_again(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=6, **PEOPLE)
    before = entry_of(graph, PERSON)
    after_commit(monkeypatch, lambda: drop(graph, PERSON))
    with pytest.raises(OutcomeUnknown, match=r"was dropped or replaced while it was maintained.*run `omnigraph-ops"):
        land(graph, before, [NOTHING], unit="config")
    assert graph.state().get(PERSON) is None
    assert len(sidecar_names(graph.storage)) == 1, "recover, or the engine's next open, settles it"


def test_a_commit_whose_sidecar_was_withdrawn_and_whose_process_died_is_published_by_its_mark(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    before, rows = entry_of(graph, PERSON), rows_of(graph)
    kill_at(graph, lambda killed: land(killed, before, [NOTHING], unit="config"), "put", AFTER)
    withdraw(graph)
    (found,) = check(graph).drift
    assert (found.covered, found.recoverable, check(graph).status) == (False, True, CheckStatus.PENDING)
    of_a_load = arm(graph, PERSON, change=lambda document: document.update(writer_kind="Load"))
    assert [o.action for o in recover(graph).outcomes] == ["left_to_engine"]
    assert entry_of(graph, PERSON) == before, "what the load committed may be below"
    graph.storage.delete(sidecar_path(of_a_load))
    reports = list[RecoverReport]()

    def another_run() -> None:
        reports.append(recover(open_graph(graph.uri), grace_seconds=3600))

    with monkeypatch.context() as patch:
        when_asked(patch, Storage, "create", another_run, about=f"^{LEASE_PATH}-")
        assert recover(graph, grace_seconds=3600).outcomes == (), "another run was faster"
    (report,) = reports
    assert [(o.table_key, o.action) for o in report.outcomes] == [(PERSON, "rolled_forward")]
    assert report.status is CheckStatus.CLEAN
    assert rows_of(graph) == rows
    assert_pins_are_heads(graph)


def test_indexes_that_landed_before_another_writer_came_are_counted(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget of a run counts by the same figures."""
    alone = optimize_table(demo_graph(stamp=stamp, name="alone.omni", **PEOPLE), PERSON)
    graph = demo_graph(stamp=stamp, **PEOPLE)
    when_committed(monkeypatch, lambda: sidecar(graph), after=True)
    when_published(monkeypatch, lambda: disarm(graph))
    stats = optimize_table(graph, PERSON)
    assert (stats.preempted, len(stats.windows)) == (1, 2)
    assert (stats.indexes_folded, stats.indexes_built) == (alone.indexes_folded, alone.indexes_built) != ((), ())
    assert stats.index_bytes_rewritten > 0


class _StoppedLater(Run):
    """A run that is asked to stop after its first unit, or loses its turn."""

    def __init__(self, why: BaseException) -> None:
        self._why, self._begun = why, list[Unit]()

    def begins(self, unit: Unit) -> None:
        self._begun.append(unit)
        if len(self._begun) > 1:
            raise self._why


@pytest.mark.parametrize("why", [Stopped(), LeaseHeld("another run is at work"), RecoveryPending("a writer armed")])
def test_what_was_published_by_its_mark_is_reported_whatever_ends_the_run_after_it(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, why: BaseException
) -> None:
    graph = demo_graph(**PEOPLE)
    with monkeypatch.context() as patch:
        when_published(patch, raising(OSError("the store is away")), times=None)
        for table_key in (PERSON, KNOWS):
            with pytest.raises(OutcomeUnknown):
                land(graph, entry_of(graph, table_key), [NOTHING], unit="config")
            withdraw(graph)
    report = recover(graph.with_run(_StoppedLater(why)))
    (published,) = (o.table_key for o in report.outcomes if o.action == "rolled_forward")
    assert {f.table_key for f in check(graph).drift} == {PERSON, KNOWS} - {published}


def test_drift_of_others_is_not_published_by_a_mark(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    drift(graph, PERSON, delete_first())
    (found,) = check(graph).drift
    assert not found.recoverable
    assert recover(graph, grace_seconds=0).outcomes == ()
    assert entry_of(graph, PERSON).version == found.manifest_version


@pytest.mark.parametrize("lost", ["rows", "file"])
def test_a_rewrite_that_lost_something_is_not_committed(
    demo_graph: DemoGraph, stamp: int, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    before, rows = entry_of(graph, PERSON), rows_of(graph)
    if lost == "rows":
        result = lossy_result(graph, PERSON)
    else:
        pinned = graph.open_pinned(before)
        result = execute_task(pinned, plan_tasks(pinned, 1 << 20)[0].payload)
        (graph_path(graph, before) / "data" / json.loads(result)["new_fragments"][0]["files"][0]["path"]).unlink()
    kind, words = (CorruptGraph, "rows instead of") if lost == "rows" else (StorageError, "is not there as it was")
    with pytest.raises(kind, match=f"{words}.*nothing was committed"):
        land(graph, before, [RewriteChange(results=(result,))], unit="rewrite")
    assert graph.open_head(before).version == before.version
    assert rows_of(graph) == rows
    assert not sidecar_names(graph.storage)


_STOPPED = """
import sys
import pytest
from omnigraph_ops.coordination import landing
from omnigraph_ops.lance.commits import ConfigRemoval
from omnigraph_ops.graph import open_graph
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.storage.store import Storage
from tests.support.edges import when_asked
def armed():
    print("armed", flush=True)
    sys.stdin.readline()
when_asked(pytest.MonkeyPatch(), Storage, "write", armed, about="^__recovery/", after=True)
graph = open_graph(sys.argv[1], Settings(lease_ttl_seconds=1))
try:
    landing.land(graph, graph.published(sys.argv[2]), [ConfigRemoval(keys=("none",))], unit="config")
    print("landed", flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
"""


def test_a_process_that_was_stopped_while_armed_does_not_commit_after_another_recovered(
    demo_graph: DemoGraph, stamp: int
) -> None:
    graph = demo_graph(stamp=stamp, settings=Settings(lease_ttl_seconds=1), **PEOPLE)
    before = entry_of(graph, PERSON)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", _STOPPED, graph.uri, PERSON],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "armed\n"
        process.send_signal(signal.SIGSTOP)
        report = recover(graph, grace_seconds=0)
        assert [o.action for o in report.outcomes] == ["rolled_back"]
        process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "LeaseHeld\n"
    assert graph.open_head(before).version == before.version
    assert check(graph).status is CheckStatus.CLEAN


def once_armed(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, times: int | None = None) -> list[str]:
    """Right after our sidecar was written something happens, so many times; the sidecars."""
    return when_asked(monkeypatch, Storage, "write", act, about=f"^{RECOVERY_DIR}/", times=times, after=True)


def while_arming(
    monkeypatch: pytest.MonkeyPatch, graph: Graph, act: Callable[[], object], *, otherwise: Callable[[float], object]
) -> None:
    """Something happens in the wait for writers that looked before our sidecar was there, and in any other wait.

    On stamp 3, without such a wait, right after our sidecar was written.
    """
    if not graph.format.compares_heads:
        once_armed(monkeypatch, act)

    def wait(seconds: float) -> None:
        is_armed = sidecar_names(graph.storage) - {f"{FOREIGN}.json"}
        act() if is_armed else otherwise(seconds)

    instead_of_sleep(monkeypatch, wait)


def name_of(path: str) -> frozenset[str]:
    """What is listed where that sidecar is the only one."""
    return frozenset({path.removeprefix(f"{RECOVERY_DIR}/")})


def after_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Right after the first commit of a table something happens, once."""
    when_committed(monkeypatch, act, after=True)


def withdraw(graph: Graph) -> None:
    """What the open of an engine does with the sidecar of a table that has not moved, but for its lineage."""
    for name in sidecar_names(graph.storage):
        graph.storage.delete(f"{RECOVERY_DIR}/{name}")


def recover_as_engine(graph: Graph) -> None:
    """Another process, without our lease, finishes what is pending."""
    for file in list_sidecars(graph.storage, graph.format.sidecar_version):
        assert file.sidecar is not None
        entry = entry_of(graph, file.sidecar.tables[0].table_key)
        publish(graph, (table_update(graph, entry, graph.open_head(entry)),), actor="omnigraph:recovery")
    withdraw(graph)


def graph_path(graph: Graph, entry: TableEntry) -> Path:
    return Path(graph.uri) / entry.path
