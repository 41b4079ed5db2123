"""The fence: the schema-apply lock held by us, recognised by its identifier, released in every outcome."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.cli import main
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import fence
from omnigraph_ops.coordination.environment import process_name
from omnigraph_ops.coordination.fence import (
    INTERNAL_COMPACTION,
    current_lock,
    drop_stale_fence,
    fenced,
    notes,
    stale_fence,
    unlock,
)
from omnigraph_ops.coordination.guards import quiet_state
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.coordination.state import FENCE_PATH
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import ApprovalMissing, RecoveryPending, StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.sidecars import write_sidecar
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.optimize import SkipReason
from omnigraph_ops.models.outcomes import StageReport
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Lines, Run
from omnigraph_ops.stages.optimize import units
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.support.edges import when_asked, when_rewritten
from tests.support.fences import TimerOf, fenced_until_told, killed_behind_its_fence, note_changed, noted
from tests.support.kills import Killed
from tests.support.shell import Cli, assert_refused


@pytest.fixture(params=[3, 6])
def graph(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Graph]:
    root = str(tmp_path / "g.omni")
    write_demo_graph(root, DemoSpec(stamp=request.param, node_types=1, loads=2, rows=5))
    yield open_graph(root, Settings(exclusive=True))


@pytest.mark.slow
def test_we_go_on_behind_our_own_fence(graph: Graph) -> None:
    with fenced(graph) as behind_fence:
        assert current_lock(graph) is not None
        assert not optimize_all(behind_fence).failed
        with pytest.raises(
            RecoveryPending, match="keeps writers away with --fence, and is at work; nothing was written; wait"
        ):
            optimize_all(open_graph(graph.uri))
    assert current_lock(graph) is None
    assert noted(graph) is None


def test_released_when_the_work_fails(graph: Graph) -> None:
    with pytest.raises(ZeroDivisionError), fenced(graph):
        raise ZeroDivisionError
    assert current_lock(graph) is None


def test_a_lock_is_seen_among_branches_and_without_one_no_dataset_is_opened_to_look_for_it(graph: Graph) -> None:
    class Closed(LanceGateway):
        def open(self, uri: str, *, branch: str | None = None, version: int | None = None) -> Dataset:
            raise AssertionError(f"{uri} was opened")

    graph.manifest().create_branch("review/a")
    unopened = replace(graph, context=replace(graph.context, lance=Closed(None)))
    assert not unopened.is_locked()
    graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
    assert graph.is_locked()


def test_a_foreign_lock_is_neither_passed_nor_removed(graph: Graph) -> None:
    graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
    with pytest.raises(RecoveryPending, match="lock is held"), fenced(graph):
        pass
    with pytest.raises(ApprovalMissing):
        unlock(graph, force=False)
    assert current_lock(graph) is not None
    found = check(graph)
    assert (found.status, found.schema_apply_lock) == (CheckStatus.NEEDS_PERSON, True)
    assert "`omnigraph-ops unlock` with --confirm --force" in found.advice[0]


def test_a_fence_at_work_is_told_from_a_schema_apply(graph: Graph) -> None:
    with fenced(graph):
        found = check(open_graph(graph.uri))
    assert found.status is CheckStatus.NEEDS_PERSON
    assert found.advice[0].startswith(f"{process_name()} keeps writers away with --fence: wait")


def test_a_lock_replaced_meanwhile_is_left_alone(graph: Graph) -> None:
    """Same name, another lifetime: the identifier decides."""
    with fenced(graph):
        graph.lance.delete_branch(graph.manifest(), SCHEMA_APPLY_LOCK)
        graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
    assert current_lock(graph) is not None


def test_a_writer_that_does_not_drain_is_given_its_way(graph: Graph) -> None:
    entry = graph.state().entries[0]
    write_sidecar(graph, entry, "01ARZ3NDEKTSV4RRFFQ69G5FAV", graph.uri)
    with pytest.raises(RecoveryPending, match="did not finish"), fenced(graph, drain_seconds=0.3):
        pass
    assert current_lock(graph) is None


def test_a_schema_apply_that_takes_the_place_of_the_fence_is_given_its_way(graph: Graph) -> None:
    """The engine looks for the lock, and then writes its own without a look."""
    sidecar = write_sidecar(graph, graph.state().entries[0], "01ARZ3NDEKTSV4RRFFQ69G5FAV", graph.uri)

    class Waits(Run):
        def pause(self, seconds: float) -> None:
            ours = current_lock(graph)
            assert ours is not None
            graph.lance.delete_branch(graph.manifest(), ours.name)
            graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
            graph.storage.delete(sidecar)

    with pytest.raises(RecoveryPending, match="took the place of the fence"), fenced(graph.with_run(Waits())):
        pytest.fail("it began beside a schema apply")
    assert current_lock(graph) is not None
    assert noted(graph) is None


def test_unlock_from_the_shell(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
    assert main(["unlock", graph.uri]) == 0
    assert "rerun with --confirm" in capsys.readouterr().out
    assert main(["unlock", graph.uri, "--confirm"]) == 1
    assert "--force" in capsys.readouterr().err
    assert main(["unlock", graph.uri, "--force"]) == 2
    assert current_lock(graph) is not None
    assert main(["unlock", graph.uri, "--confirm", "--force"]) == 0
    assert current_lock(graph) is None


def test_unlock_writes_nothing_where_nothing_is_locked(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_right(_: Storage, path: str) -> None:
        raise StorageError(f"cannot delete {path}: Access Denied")

    monkeypatch.setattr(Storage, "delete", no_right)
    assert main(["unlock", graph.uri, "--confirm", "--force"]) == 0


def test_a_fence_left_by_a_crash_elsewhere_is_ours_to_unlock(graph: Graph) -> None:
    left = fenced(graph)
    left.__enter__()
    note_changed(graph, machine="elsewhere")
    crashed = open_graph(graph.uri)
    assert unlock(crashed, force=False) is not None
    assert current_lock(crashed) is None


@pytest.mark.slow
def test_the_fence_of_a_run_at_work_is_removed_by_force_alone_and_that_run_knows(
    graph: Graph, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    graph = graph.with_settings(Settings())
    with fenced(graph) as behind_fence:
        assert main(["unlock", graph.uri]) == 0
        assert f"{process_name()} keeps writers away with --fence, and is at work" in capsys.readouterr().out
        assert main(["unlock", graph.uri, "--confirm"]) == 1
        assert "is at work on" in capsys.readouterr().err
        assert behind_fence.is_alone()
        assert main(["unlock", graph.uri, "--confirm", "--force"]) == 0
        stats = {t.table_key: t for t in optimize_all(behind_fence).tables}
    assert stats["node:Person"].committed
    assert stats["__manifest"].skipped is SkipReason.NOT_EXCLUSIVE
    assert "somebody removed the fence" in caplog.text


@pytest.mark.slow
def test_a_bounded_fence_is_lifted_in_time_and_the_run_goes_on_no_longer_alone(tmp_path: Path) -> None:
    write_demo_graph(str(tmp_path / "g.omni"), DemoSpec(node_types=1, loads=2, rows=5))
    graph, lifted = open_graph(str(tmp_path / "g.omni"), Settings()), threading.Event()
    with fenced_until_told(graph, lifted) as (behind_fence, lift_now):
        lift_now.set()
        assert lifted.wait(300)
        assert not behind_fence.is_alone()
        assert current_lock(graph) is None
        stats = {t.table_key: t for t in optimize_all(behind_fence).tables}
        assert stats["node:Person"].committed
        assert stats["__manifest"].skipped is SkipReason.NOT_EXCLUSIVE


@pytest.mark.slow
def test_a_fence_that_is_lifted_in_the_middle_of_a_run_takes_its_exclusivity_away(graph: Graph) -> None:
    graph, lifted = graph.with_settings(Settings()), threading.Event()
    alone = list[bool]()

    class Lifts(Run):
        def ended(self, unit: Unit, did: StageReport | None) -> None:
            if unit.table_key == "node:Person" and not alone:
                alone.append(behind_fence.is_alone())
                lift_now.set()
                assert lifted.wait(300)

    with fenced_until_told(graph, lifted) as (behind_fence, lift_now):
        stats = {t.table_key: t for t in optimize_all(behind_fence.with_run(Lifts())).tables}
    assert alone == [True]
    assert stats["node:Person"].committed
    assert stats["__manifest"].skipped is SkipReason.NOT_EXCLUSIVE


def test_a_graph_is_not_alone_any_more_once_its_fence_ended(graph: Graph) -> None:
    with fenced(graph.with_settings(Settings())) as behind_fence:
        assert behind_fence.is_alone()
    assert not behind_fence.is_alone()


def test_a_fence_is_not_lifted_while_the_internal_tables_are_compacted(graph: Graph) -> None:
    lifted = threading.Event()
    with contextlib.ExitStack() as compaction:
        # Before the fence is raised, or a busy machine lets its time run out first.
        compaction.enter_context(committer_turn(graph, INTERNAL_COMPACTION))
        with fenced(graph, at_most_seconds=0.05, on_lift=lifted.set):
            assert not lifted.wait(0.6)
            assert current_lock(graph) is not None
            compaction.close()
            assert lifted.wait(300)


def test_what_was_compacted_is_not_committed_once_the_fence_is_gone(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes long with many versions, and a publish that meets this commit records a wrong version of the graph."""
    graph = graph.with_settings(Settings())
    when_rewritten(monkeypatch, lambda: unlock(open_graph(graph.uri), force=True), times=None)
    with fenced(graph) as behind_fence:
        before = graph.manifest().version
        stats = units.optimize_internal(behind_fence)
    assert (stats[0].skipped, {t.committed for t in stats}) == (SkipReason.NOT_EXCLUSIVE, {False})
    assert graph.manifest().version == before


@pytest.mark.slow
def test_behind_its_fence_a_run_is_alone(graph: Graph) -> None:
    graph = graph.with_settings(Settings())
    with fenced(graph, at_most_seconds=60) as behind_fence:
        stats = {t.table_key: t for t in optimize_all(behind_fence).tables}
    assert stats["__manifest"].skipped is None
    assert not graph.is_alone()


@pytest.mark.slow
def test_the_fence_of_a_killed_process_is_removed_by_the_next_recover(graph: Graph) -> None:
    killed_behind_its_fence(graph.uri)
    assert current_lock(graph) is not None
    found = check(graph)
    assert (found.status, found.schema_apply_lock) == (CheckStatus.PENDING, True)
    assert "run `omnigraph-ops recover`" in found.advice[0]
    assert recover(graph).status is CheckStatus.CLEAN
    assert current_lock(graph) is None
    assert noted(graph) is None
    assert not optimize_all(graph).failed


@pytest.mark.slow
def test_a_schema_apply_after_a_killed_fence_is_not_taken_for_it(graph: Graph) -> None:
    """The note of the fence stayed; the lock is not the one that it names."""
    killed_behind_its_fence(graph.uri)
    graph.lance.delete_branch(graph.manifest(), SCHEMA_APPLY_LOCK)
    graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
    assert noted(graph) is not None
    assert (stale_fence(graph), drop_stale_fence(graph)) == (None, False)
    assert recover(graph).outcomes == ()
    assert quiet_state(graph, 0) == (False, "a schema apply is in progress")
    assert graph.is_locked()


@pytest.mark.slow
def test_the_fence_of_a_killed_process_is_removed_by_the_next_optimize(graph: Graph) -> None:
    killed_behind_its_fence(graph.uri)
    told: list[str] = []
    assert not optimize_all(graph, progress=Lines(told.append)).failed
    assert (current_lock(graph), noted(graph)) == (None, None)
    assert "lifted the fence of a run that was killed" in told


@pytest.mark.slow
def test_what_does_not_lift_the_fence_of_a_killed_process_says_what_does(graph: Graph, cli: Cli) -> None:
    killed_behind_its_fence(graph.uri)
    for words in ("cleanup --keep 1", "repair --confirm"):
        assert_refused(cli(words, graph.uri), "left it; nothing was written; `omnigraph-ops recover` removes it")
    assert cli("recover", graph.uri).code == 0
    assert cli("cleanup --keep 1 --confirm", graph.uri).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("words", ["cleanup --keep 1", "orphans --older-than 7d"])
def test_the_fence_of_a_killed_process_is_removed_by_the_next_verb_that_deletes(
    graph: Graph, cli: Cli, words: str
) -> None:
    killed_behind_its_fence(graph.uri)
    done = cli(f"{words} --confirm", graph.uri)
    assert (done.code, current_lock(graph), noted(graph)) == (0, None, None)
    assert "lifted the fence of a run that was killed" in done.err


def test_the_fence_of_a_run_at_work_stops_a_cleanup(graph: Graph, cli: Cli) -> None:
    with fenced(graph):
        assert_refused(cli("cleanup --keep 1 --confirm", graph.uri), "keeps writers away with --fence, and is at work")
        assert current_lock(graph) is not None


@pytest.mark.slow
def test_the_fence_of_a_killed_process_does_not_stop_the_next_fence(graph: Graph) -> None:
    killed_behind_its_fence(graph.uri)
    with fenced(graph) as behind_fence:
        assert not optimize_all(behind_fence).failed
    assert current_lock(graph) is None


def test_a_live_fence_of_ours_is_left_alone_until_it_is_overdue(graph: Graph) -> None:
    other = open_graph(graph.uri)
    with fenced(graph, at_most_seconds=600):
        assert not drop_stale_fence(other)
        assert check(other).status is CheckStatus.NEEDS_PERSON
        note_changed(graph, until=time.time() - 3600)
        # Also where its process runs on, or did on another machine.
        assert check(other).status is CheckStatus.PENDING
        assert drop_stale_fence(other)
    assert current_lock(graph) is None


def test_an_overdue_fence_stays_while_its_run_compacts_internal_tables(graph: Graph) -> None:
    """A run does not lift its fence in the middle of that, and writers must not be let in by another one either."""
    other = open_graph(graph.uri)
    with fenced(graph, at_most_seconds=600) as behind_fence:
        note_changed(graph, until=time.time() - 3600)
        with committer_turn(behind_fence, INTERNAL_COMPACTION):
            assert not drop_stale_fence(other)
            assert current_lock(other) is not None
        assert drop_stale_fence(other)


def test_a_bounded_fence_is_lifted_although_the_store_fails_for_a_moment(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run may go on for hours, and the engine would refuse to write for as long."""
    lifted, failed, delete = threading.Event(), list[str](), LanceGateway.delete_branch

    def refused_once(gateway: LanceGateway, dataset: Dataset, name: str) -> bool:
        if not failed:
            failed.append(name)
            raise StorageError("503 SlowDown")
        return delete(gateway, dataset, name)

    monkeypatch.setattr(LanceGateway, "delete_branch", refused_once)
    monkeypatch.setattr(fence, "_LIFTED_AGAIN_SECONDS", 0.05)
    with fenced_until_told(graph, lifted) as (_, lift_now):
        lift_now.set()
        assert lifted.wait(300)
        assert (failed, current_lock(graph)) == ([SCHEMA_APPLY_LOCK], None)


def test_a_lock_that_a_schema_apply_makes_first_is_not_taken_for_ours(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody held it when we looked; ours fails, and the one that is there is somebody else's."""
    create = Storage.create

    def beaten(self: Storage, path: str, data: bytes) -> bool:
        graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
        return create(self, path, data)

    monkeypatch.setattr(Storage, "create", beaten)
    with pytest.raises(RecoveryPending, match="cannot be raised: the schema-apply lock is held"), fenced(graph):
        pass
    assert current_lock(graph) is not None
    assert noted(graph) is None


def test_a_fence_that_is_up_although_nobody_said_so_is_known_for_ours(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply to its creation is lost, and the store then refuses to remove it."""
    create = Storage.create

    def lost(self: Storage, path: str, data: bytes) -> bool:
        create(self, path, data)
        raise StorageError("the connection was reset")

    def refused(*_: object) -> None:
        raise StorageError("503 SlowDown")

    with monkeypatch.context() as failing, pytest.raises(StorageError, match="reset"):
        failing.setattr(Storage, "create", lost)
        failing.setattr(graph.lance, "delete_branch", refused)
        with fenced(graph):
            pass
    assert current_lock(graph) is not None
    note_changed(graph, pid=2**22 + 1)
    assert recover(open_graph(graph.uri)).status is CheckStatus.CLEAN
    assert current_lock(graph) is None


def test_a_timer_and_the_end_of_the_block_remove_one_lock_between_them(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer has seen our lock when the block ends; a schema apply that comes next keeps its own."""
    in_between, ended, real = threading.Event(), threading.Event(), graph.lance.delete_branch
    monkeypatch.setattr(threading, "Timer", partial(TimerOf, in_between))

    def slow(dataset: Dataset, name: str) -> bool:
        if threading.current_thread() is not threading.main_thread():
            ended.wait(0.5)
        return real(dataset, name)

    monkeypatch.setattr(graph.lance, "delete_branch", slow)
    with fenced(graph):
        in_between.set()
        time.sleep(0.2)
    graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
    ended.set()
    time.sleep(0.7)
    assert current_lock(graph) is not None


def test_a_fence_that_cannot_be_noted_is_not_left_behind(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: str, _data: bytes) -> None:
        raise StorageError("no space left on device")

    with monkeypatch.context() as patched, pytest.raises(StorageError, match="no space"):
        patched.setattr(graph.storage, "write", full)
        with fenced(graph):
            pass
    assert current_lock(graph) is None


@pytest.mark.parametrize("failed", [True, False])
def test_a_fence_that_cannot_be_lifted_is_told_with_what_failed_before_it(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    def expired(*_: object) -> None:
        raise StorageError("cannot delete branch: ExpiredToken")

    with monkeypatch.context() as patched, pytest.raises(StorageError) as raised, fenced(graph):
        patched.setattr(LanceGateway, "delete_branch", expired)
        if failed:
            raise StorageError("cannot move data/1.lance: ExpiredToken")
    said = f"the fence of {graph.uri} could not be lifted: cannot delete branch: ExpiredToken; until it is, the engine"
    assert str(raised.value).startswith(f"cannot move data/1.lance: ExpiredToken; {said}" if failed else said)
    assert f"`omnigraph-ops unlock {graph.uri} --confirm` lifts it" in str(raised.value)
    assert unlock(graph, force=True) is not None


def test_what_optimize_did_behind_a_fence_that_stays_is_reported(
    graph: Graph, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expired(*_: object) -> None:
        raise StorageError("cannot delete branch: ExpiredToken")

    with monkeypatch.context() as patched:
        patched.setattr(LanceGateway, "delete_branch", expired)
        done = cli("optimize --fence --json", graph.uri)
    assert done.code == 1, done
    assert "could not be lifted" in done.err
    assert {table["table_key"] for table in done.json["tables"]} >= {"node:Person"}
    assert unlock(graph, force=True) is not None


def test_a_fence_that_ends_late_leaves_the_note_of_the_next_one(graph: Graph) -> None:
    with fenced(graph):
        graph.lance.delete_branch(graph.manifest(), SCHEMA_APPLY_LOCK)
        theirs = fenced(open_graph(graph.uri))
        theirs.__enter__()
    note, lock = noted(graph), current_lock(graph)
    assert note is not None and lock is not None and note.identifier == lock.identifier
    theirs.__exit__(None, None, None)
    assert current_lock(graph) is None


@contextlib.contextmanager
def raised_between(graph: Graph, monkeypatch: pytest.MonkeyPatch, raised: Callable[[], object]) -> Iterator[None]:
    """Another run raises its fence after this one saw no lock, and before this one writes its note. Writes."""
    with monkeypatch.context() as patch:
        when_asked(patch, Storage, "write", raised, about="/fence")
        yield


def test_a_run_that_loses_the_race_for_the_fence_leaves_the_note_of_the_winner(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = fenced(open_graph(graph.uri))
    refused = pytest.raises(
        RecoveryPending, match=f"cannot be raised: {process_name()} keeps writers away with --fence"
    )
    with raised_between(graph, monkeypatch, theirs.__enter__), refused, fenced(graph):
        pytest.fail("two runs have a fence")
    note, lock = noted(graph), current_lock(graph)
    assert note is not None and lock is not None and note.identifier == lock.identifier
    theirs.__exit__(None, None, None)
    assert (current_lock(graph), noted(graph)) == (None, None)


@pytest.mark.slow
def test_the_fence_of_a_killed_winner_of_that_race_needs_no_force(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = pytest.raises(
        RecoveryPending, match=r"a killed run of .* left it; nothing was written; run `omnigraph-ops recover`"
    )
    with raised_between(graph, monkeypatch, lambda: killed_behind_its_fence(graph.uri)), refused, fenced(graph):
        pytest.fail("it began beside another fence")
    assert check(graph).status is CheckStatus.PENDING
    assert recover(graph).status is CheckStatus.CLEAN
    assert (current_lock(graph), noted(graph)) == (None, None)


@pytest.mark.parametrize("ends", ["next fence", "unlock"])
def test_the_note_of_a_run_that_was_killed_before_its_fence_was_up_goes(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    def killed(_storage: Storage, _path: str, _data: bytes) -> bool:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Storage, "create", killed)
        patch.setattr(fence, "_release", lambda *_: None)
        with fenced(graph):
            pass
    note_changed(graph, pid=2**22 + 1)
    if ends == "unlock":
        assert unlock(graph, force=False) is None
    else:
        with fenced(graph):
            note, lock = noted(graph), current_lock(graph)
            assert note is not None and lock is not None and note.identifier == lock.identifier
    assert noted(graph) is None


@pytest.mark.slow
@pytest.mark.parametrize("lifted_by", [drop_stale_fence, partial(unlock, force=False)])
def test_the_note_of_an_earlier_release_is_still_understood(graph: Graph, lifted_by: Callable[[Graph], object]) -> None:
    """They had one place for the note of any run."""
    killed_behind_its_fence(graph.uri)
    ((path, note),) = notes(graph)
    graph.storage.delete(path)
    graph.storage.write(FENCE_PATH, serde.dumps(note).encode())
    assert check(graph).status is CheckStatus.PENDING
    assert lifted_by(graph)
    assert (current_lock(graph), noted(graph)) == (None, None)


def test_a_graph_that_waits_for_a_fence_to_end_says_whose_it_is(graph: Graph) -> None:
    with fenced(graph):
        quiet = quiet_state(open_graph(graph.uri), 0)
    assert quiet == (False, f"{process_name()} keeps writers away with --fence, and is at work")
