"""Windows that wait for the committer lease at the same time share its turn: one graph commit, and each on its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import landing
from omnigraph_ops.coordination.holds import FreezeTerms, HoldKind, place_hold
from omnigraph_ops.coordination.landing import LandedUnit, land
from omnigraph_ops.coordination.lease import committer_lease
from omnigraph_ops.errors import (
    DriftFound,
    GraphFrozen,
    LeaseHeld,
    OutcomeUnknown,
    RecoveryPending,
    StorageError,
)
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR, RECOVERY_DIR
from omnigraph_ops.graph.sidecars import sidecar_names, sidecar_path
from omnigraph_ops.lance.commits import ConfigRemoval
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.optimize import SkipReason
from omnigraph_ops.progress import Run, Stopped
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.crash.harness_state import check_lineage
from tests.support.converged import assert_pins_are_heads
from tests.support.edges import (
    Act,
    contention,
    nothing,
    one_after_the_other,
    raising,
    when_asked,
    when_committed,
    when_published,
    when_rewritten,
)
from tests.support.leases import is_free, refuse_releases
from tests.support.rows import rows_of
from tests.support.waits import Hurried
from tests.support.writers import delete_first, drift, entry_of

pytestmark = pytest.mark.slow

PERSON, KNOWS, DOC = KEYS = ("node:Person", "edge:Knows", "node:Doc")
NOTHING = ConfigRemoval(keys=("none",))
FOREIGN = "01ARYZ6S410000000000000000"
Came = dict[str, LandedUnit | BaseException]
"""What came of each table."""


@contextlib.contextmanager
def all_waiting(graph: Graph) -> Iterator[Came]:
    """For the block, a thread for every table waits for its turn with a drafted commit; after it they had it."""
    came: Came = {}

    def one(key: str) -> None:
        try:
            came[key] = land(graph, entry_of(graph, key), [NOTHING], unit="config")
        except BaseException as error:
            came[key] = error

    threads, queue = [threading.Thread(target=one, args=(key,)) for key in KEYS], landing._QUEUES.of(graph)
    with committer_lease(graph.storage, purpose="somebody else", ttl_seconds=600, wait_seconds=0):
        for thread in threads:
            thread.start()
        while len(queue._waiting) + len(came) < len(KEYS):
            time.sleep(0.02)
        yield came
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(came) == sorted(KEYS)


def landed(came: Came, *keys: str) -> bool:
    """Whether precisely these tables were committed to."""
    return {key for key, what in came.items() if isinstance(what, LandedUnit) and what.landed == 1} == set(keys)


def version_of(graph: Graph) -> int:
    return int(graph.manifest().version)


def place_freeze(graph: Graph) -> None:
    """Somebody announces a freeze of the graph, and waits for the lease. Writes."""
    place_hold(
        graph.storage,
        (),
        kind=HoldKind.FREEZE,
        reason="backup",
        ttl_seconds=60.0,
        bound_to_process=True,
        owner="somebody",
        freeze=FreezeTerms(tables=()),
    )


def test_all_that_wait_are_one_graph_commit(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp)
    before, rows = version_of(graph), rows_of(graph)
    pins = {key: entry_of(graph, key).version for key in KEYS}
    with all_waiting(graph) as came:
        pass
    assert landed(came, *KEYS), came
    assert version_of(graph) == before + 1
    assert {key: entry_of(graph, key).version - pin for key, pin in pins.items()} == dict.fromkeys(KEYS, 1)
    assert len({what.window.seconds for what in came.values() if isinstance(what, LandedUnit) and what.window}) == 1
    assert_pins_are_heads(graph)
    assert (sidecar_names(graph.storage), is_free(graph.storage), rows_of(graph)) == (frozenset(), True, rows)


def test_all_arm_before_they_wait_once_for_writers_that_are_arming(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, armed, real = demo_graph(stamp=6), list[int](), time.sleep

    def sleep(seconds: float) -> None:
        if sidecars := sidecar_names(graph.storage):
            armed.append(len(sidecars))
        real(seconds)

    monkeypatch.setattr("time.sleep", sleep)
    with all_waiting(graph) as came:
        pass
    assert (landed(came, *KEYS), armed) == (True, [3])


def test_tables_that_wait_leave_their_slots_to_others(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, node_types=3, loads=2)
    graph, before, rows = graph.with_settings(Settings(concurrency=2)), version_of(graph), rows_of(graph)
    monkeypatch.setattr(landing, "_GATHER_SECONDS", 60.0)
    report = optimize_all(graph)
    done = [t.table_key for t in report.tables if t.committed]
    assert (len(done) > 4, report.failed, version_of(graph)) == (True, (), before + 1)
    assert_pins_are_heads(graph)
    assert (sidecar_names(graph.storage), is_free(graph.storage), rows_of(graph)) == (frozenset(), True, rows)


def test_a_table_that_drifted_meanwhile_keeps_no_other_away(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp)
    with all_waiting(graph) as came:
        drift(graph, KNOWS, delete_first())
    assert landed(came, PERSON, DOC)
    assert isinstance(came[KNOWS], DriftFound)
    assert not sidecar_names(graph.storage)


def test_a_table_that_is_frozen_keeps_no_other_away(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp)
    freeze_graph(graph, tables=[DOC], ttl_seconds=600, reason="a copy")
    with all_waiting(graph) as came:
        pass
    assert landed(came, PERSON, KNOWS)
    assert isinstance(came[DOC], GraphFrozen)


def test_a_graph_that_is_pending_stops_all_of_them(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp).with_run(Hurried())
    before = version_of(graph)
    with all_waiting(graph) as came:
        graph.storage.write(sidecar_path(FOREIGN), b"{}")
    assert [type(what) for what in came.values()] == [RecoveryPending] * 3
    assert (version_of(graph), sidecar_names(graph.storage)) == (before, {f"{FOREIGN}.json"})


def once_armed(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> None:
    """Something happens right after our sidecar of that number was written."""
    about = f"^{RECOVERY_DIR}/"
    when_asked(monkeypatch, Storage, "write", act, about=about, skip=number - 1, after=True)


def test_whoever_arms_between_two_of_them_stops_those_that_were_not_committed(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp).with_run(Hurried())
    before = version_of(graph)
    once_armed(monkeypatch, 2, lambda: graph.storage.write(sidecar_path(FOREIGN), b"{}"))
    with all_waiting(graph) as came:
        pass
    done = [key for key, what in came.items() if isinstance(what, LandedUnit)]
    assert (len(done) < 3, landed(came, *done)) == (True, True), "what was committed is published"
    assert sum(isinstance(what, RecoveryPending) for what in came.values()) == 3 - len(done)
    assert version_of(graph) == before + bool(done)
    assert sidecar_names(graph.storage) == {f"{FOREIGN}.json"}


def test_an_engine_that_withdraws_every_sidecar_costs_an_attempt(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)

    def withdraw() -> None:
        for name in sidecar_names(graph.storage):
            graph.storage.delete(sidecar_path(name.removesuffix(".json")))

    once_armed(monkeypatch, 2, withdraw)
    with all_waiting(graph) as came:
        pass
    assert landed(came, *KEYS), came
    assert_pins_are_heads(graph)
    assert not sidecar_names(graph.storage)


@pytest.mark.parametrize(
    ("fault", "times"),
    [(contention(), Settings().publish_attempts), (raising(OSError("no answer")), 1)],
    ids=["lost", "no answer"],
)
def test_where_the_publish_of_all_fails_each_is_published(
    demo_graph: DemoGraph, stamp: int, fault: Act, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    before = version_of(graph)
    when_published(monkeypatch, fault, times=times)
    with all_waiting(graph) as came:
        pass
    assert landed(came, *KEYS)
    assert version_of(graph) == before + 3
    assert_pins_are_heads(graph)
    assert check(graph).status is CheckStatus.CLEAN


def test_a_publish_without_its_commit_row_is_left_to_recover(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stamp 3 keeps the lineage in datasets of its own."""
    graph = demo_graph(stamp=3)
    before, rows = version_of(graph), rows_of(graph)
    with monkeypatch.context() as patch:
        when_committed(patch, raising(StorageError("no answer")), about=f"^{COMMITS_DIR}/", times=None)
        with all_waiting(graph) as came:
            pass
    assert [type(what) for what in came.values()] == [OutcomeUnknown] * 3
    assert all("run `omnigraph-ops recover`" in str(what) for what in came.values())
    assert (version_of(graph), len(sidecar_names(graph.storage))) == (before + 1, 3)
    recover(graph, grace_seconds=0)
    assert (check(graph).status, rows_of(graph)) == (CheckStatus.CLEAN, rows)
    check_lineage(graph, None)


def test_the_publish_of_one_table_without_its_commit_row_is_left_to_recover(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=3)
    before, rows = version_of(graph), rows_of(graph)
    with monkeypatch.context() as patch:
        when_committed(patch, raising(StorageError("no answer")), about=f"^{COMMITS_DIR}/", times=None)
        with pytest.raises(OutcomeUnknown, match="run `omnigraph-ops recover`"):
            land(graph, entry_of(graph, PERSON), [NOTHING], unit="config")
    assert (version_of(graph), len(sidecar_names(graph.storage))) == (before + 1, 1)
    recover(graph, grace_seconds=0)
    assert (check(graph).status, rows_of(graph)) == (CheckStatus.CLEAN, rows)
    assert before + 1 in {commit.manifest_version for commit in graph.format.commits(graph.context, None)}
    check_lineage(graph, None)


def test_a_publish_that_landed_and_failed_is_seen(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    before, lost = version_of(graph), list[str]()

    def fails() -> None:
        lost.append("the answer")
        raise OSError("the answer was lost")

    def reads_nothing_back() -> None:
        when_asked(monkeypatch, lance.LanceDataset, "scanner", fails, about=f"/{MANIFEST_DIR}$")

    when_published(monkeypatch, reads_nothing_back, after=True)
    with all_waiting(graph) as came:
        pass
    assert landed(came, *KEYS)
    assert (version_of(graph), len(lost)) == (before + 1, 1)
    assert check(graph).status is CheckStatus.CLEAN


def test_a_store_that_fails_for_one_of_them_fails_for_no_other(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    full = raising(StorageError("no space left"))
    when_asked(monkeypatch, Storage, "prepared", full, about=f"^{entry_of(graph, KNOWS).path}/", times=None)
    with all_waiting(graph) as came:
        pass
    assert landed(came, PERSON, DOC)
    assert isinstance(came[KNOWS], StorageError)
    assert not sidecar_names(graph.storage)


def test_publishes_that_fail_leave_every_table_to_recover(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    rows = rows_of(graph)
    with monkeypatch.context() as patch:
        when_published(patch, raising(OSError("the store is gone")), times=None)
        with all_waiting(graph) as came:
            pass
    assert all("run `omnigraph-ops recover`" in str(what) for what in came.values())
    assert len(sidecar_names(graph.storage)) == 3
    report = recover(graph, grace_seconds=0)
    assert sorted(o.table_key for o in report.outcomes if o.action == "rolled_forward") == sorted(KEYS)
    assert (check(graph).status, rows_of(graph)) == (CheckStatus.CLEAN, rows)


def test_a_lease_that_somebody_keeps_is_waited_for_once(demo_graph: DemoGraph) -> None:
    graph = demo_graph(settings=Settings(lease_wait_seconds=3))
    with all_waiting(graph) as came:
        deadline = time.monotonic() + 8
        while len(came) < len(KEYS) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sorted(came) == sorted(KEYS), "not one after the other"
        assert [type(what) for what in came.values()] == [LeaseHeld] * 3


class Stopping(Run):
    """A run that stops as soon as it is told to."""

    stopped = False

    def pause(self, seconds: float) -> None:
        if self.stopped:
            raise Stopped
        super().pause(seconds)


def test_a_run_that_stops_leaves_the_queue(demo_graph: DemoGraph) -> None:
    run = Stopping()
    graph = demo_graph().with_run(run)
    before = version_of(graph)
    with all_waiting(graph) as came:
        run.stopped = True
        deadline = time.monotonic() + 30
        while len(came) < len(KEYS) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [type(what) for what in came.values()] == [Stopped] * 3
    assert version_of(graph) == before


def test_what_a_run_has_prepared_lands_although_it_stops(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Stopping()
    graph = demo_graph().with_run(run)
    monkeypatch.setattr(landing, "WAITING", 1)  # a turn for each
    when_committed(monkeypatch, lambda: setattr(run, "stopped", True))
    with all_waiting(graph) as came:
        pass
    assert landed(came, *KEYS)
    assert sidecar_names(graph.storage) == set()


def test_tables_that_somebody_freezes_beside_a_run_are_skipped(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    when_rewritten(monkeypatch, lambda: place_freeze(graph))
    report = optimize_all(graph)
    assert {t.skipped for t in report.tables if t.table_key in KEYS} == {SkipReason.FROZEN}
    assert not any(t.error or t.committed for t in report.tables)


def test_a_table_that_somebody_freezes_beside_its_task_is_skipped(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    when_rewritten(monkeypatch, lambda: place_freeze(graph))
    stats = optimize_table(graph, PERSON)
    assert (stats.skipped, stats.committed, stats.published_version) == (
        SkipReason.FROZEN,
        False,
        entry_of(graph, PERSON).version,
    )


def test_a_file_that_is_missing_for_one_of_them_is_about_no_other(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    rows, path = rows_of(graph), entry_of(graph, KNOWS).path
    with monkeypatch.context() as patch:
        gone = raising(FileNotFoundError(path))
        when_asked(patch, Storage, "stat", gone, about=f"^{path}/_versions/", times=None)
        with all_waiting(graph) as came:
            pass
    assert landed(came, PERSON, DOC), came
    assert isinstance(came[KNOWS], FileNotFoundError)
    assert len(sidecar_names(graph.storage)) == 1
    assert [o.action for o in recover(graph, grace_seconds=0).outcomes] == ["rolled_forward"]
    assert (check(graph).status, rows_of(graph)) == (CheckStatus.CLEAN, rows)


def test_a_sidecar_whose_write_fails_late_stops_no_later_window(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    once_armed(monkeypatch, 2, raising(StorageError("the answer was lost")))
    with all_waiting(graph) as came:
        pass
    assert sorted(type(what).__name__ for what in came.values()) == ["LandedUnit", "LandedUnit", "StorageError"]
    assert not sidecar_names(graph.storage)
    assert_pins_are_heads(graph)


class Broken(BaseException):
    """Ends a thread: no error that anything handles."""


def test_a_turn_that_is_broken_off_leaves_what_was_committed_to_recover(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    rows, pins = rows_of(graph), {key: entry_of(graph, key) for key in KEYS}
    with monkeypatch.context() as patch:
        when_published(patch, raising(Broken()))
        with all_waiting(graph) as came:
            pass
    assert sorted(type(what).__name__ for what in came.values()) == ["Broken", "OutcomeUnknown", "OutcomeUnknown"]
    for pin in pins.values():
        made = lance.dataset(graph.table_uri(pin)).read_transaction(pin.version + 1)
        assert len(list(Path(graph.table_uri(pin), "_transactions").glob(f"*{made.uuid}*"))) == 1
    recover(graph, grace_seconds=0)
    assert_pins_are_heads(graph)
    assert (check(graph).status, rows_of(graph)) == (CheckStatus.CLEAN, rows)


def test_who_waits_on_after_a_turn_that_was_broken_off_forgets_what_it_met_there(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    tables = "|".join(entry_of(graph, key).path for key in KEYS)
    faults = one_after_the_other(nothing, raising(StorageError("no answer")), raising(Broken()))
    with all_waiting(graph) as came:
        looks = when_asked(monkeypatch, LanceGateway, "open", faults, about=f"({tables})$", times=3)
    assert len(set(looks[:3])) == 3, "one of each table"
    done = [key for key, what in came.items() if isinstance(what, LandedUnit)]
    assert len(done) == 2, came
    assert landed(came, *done)
    assert_pins_are_heads(graph)


def test_a_lease_that_cannot_be_released_takes_no_commit_back(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp)
    refuse_releases(monkeypatch)
    with all_waiting(graph) as came:
        pass
    assert landed(came, *KEYS), came
    assert_pins_are_heads(graph)
