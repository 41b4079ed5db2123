"""A rewrite that is interrupted goes on where it stopped; what is lost of it is removed at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph_ops.coordination import rewrite_journal
from omnigraph_ops.coordination.holds import HeldVersion, HoldKind, place_hold, release_hold
from omnigraph_ops.coordination.rewrite_journal import lease_place, rewrite_lease
from omnigraph_ops.coordination.state import REWRITES_DIR
from omnigraph_ops.errors import LeaseHeld, OpsError, StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import RECOVERY_DIR
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged, assert_no_leftovers
from tests.support.edges import raising, when_asked, when_rewritten
from tests.support.leases import bury_holders, take_over
from tests.support.rewrites import GROUPS, IN_GROUPS, SPEC, TABLE, Counting, Died, journal_files, rewrite, unreferenced
from tests.support.rows import rows_of
from tests.support.tables import rows_by_id
from tests.support.writers import Change, copies, delete_first, entry_of, write

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(demo_graph: DemoGraph, stamp: int) -> Graph:
    return demo_graph(stamp=stamp, **SPEC, settings=IN_GROUPS)


@pytest.fixture
def newest(demo_graph: DemoGraph) -> Graph:
    """Where the generations do not differ."""
    return demo_graph(stamp=6, **SPEC, settings=IN_GROUPS)


def die_after(graph: Graph, count: int) -> None:
    """Leave what a rewrite leaves that dies after so many results. Writes."""
    with pytest.raises(Died):
        rewrite(graph, Counting(dies_after=count))


@pytest.mark.night("combinations")
@pytest.mark.parametrize("done", [1, 3, GROUPS])
def test_the_next_run_executes_only_what_is_missing(graph: Graph, done: int) -> None:
    before = rows_of(graph)
    die_after(graph, done)
    again, said = Counting(), list[str]()
    stats = rewrite(graph, again, said)
    assert len(again.executed) == GROUPS - done
    assert any(line.startswith("resuming rewrite") and f"{done} finished" in line for line in said)
    assert stats.fragments_removed == 2 * GROUPS
    assert rows_of(graph) == before
    assert unreferenced(graph) == set()
    assert_no_leftovers(graph)
    optimize_all(graph)
    assert_converged(graph)


def test_a_committed_result_is_recognised_and_never_committed_twice(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        when_asked(patched, Storage, "delete_tree", raising(Died()), about=f"^{REWRITES_DIR}/")
        with pytest.raises(Died):
            rewrite(graph, Counting())
    version, before = entry_of(graph, TABLE).version, rows_of(graph)
    assert len(journal_files(graph)) == 1 + GROUPS
    recover(graph, grace_seconds=0)
    assert_no_leftovers(graph)
    assert unreferenced(graph) == set()
    again = Counting()
    rewrite(graph, again)
    assert again.executed == []
    assert entry_of(graph, TABLE).version == version
    assert rows_of(graph) == before


def test_a_half_committed_rewrite_goes_on_with_the_other_half(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **SPEC, settings=IN_GROUPS.model_copy(update={"commit_batch_tasks": 1}))
    before = rows_of(graph)
    with monkeypatch.context() as patched:
        # The first sidecar is that of the fold.
        when_asked(patched, Storage, "write", raising(Died()), about=f"^{RECOVERY_DIR}/", skip=2)
        with pytest.raises(Died):
            rewrite(graph, Counting())
    again, said = Counting(), list[str]()
    stats = rewrite(graph, again, said)
    assert again.executed == []
    assert any("1 committed, 3 finished" in line for line in said)
    assert [w.unit for w in stats.windows].count("rewrite") == GROUPS - 1
    assert rows_of(graph) == before
    assert_no_leftovers(graph)


@pytest.mark.night("combinations")
@pytest.mark.parametrize("change", [copies("new-"), delete_first(1)], ids=["append", "delete"])
def test_what_was_written_since_the_run_died_is_kept(
    graph: Graph, demo_graph: DemoGraph, stamp: int, change: Change
) -> None:
    twin = demo_graph(stamp=stamp, **SPEC, name="twin.omni")
    write(twin, TABLE, change)
    die_after(graph, 3)
    write(graph, TABLE, change)
    again = Counting()
    rewrite(graph, again)
    # A delete takes one result away, and its group is rewritten from what is there now.
    assert len(again.executed) <= 2
    assert rows_by_id(graph) == rows_by_id(twin)
    assert unreferenced(graph) == set()
    optimize_all(graph)
    assert_converged(graph)


def test_a_delete_during_the_rewrite_costs_its_group_and_nothing_else(
    graph: Graph, demo_graph: DemoGraph, stamp: int
) -> None:
    twin = demo_graph(stamp=stamp, **SPEC, name="twin.omni")
    write(twin, TABLE, delete_first(1))
    executor, said = Counting(then=lambda: write(graph, TABLE, delete_first(1))), list[str]()
    stats = rewrite(graph, executor, said)
    assert executor.executed == [*range(GROUPS), 0]
    assert stats.fragments_removed == 2 * GROUPS
    assert [w.unit for w in stats.windows if w.unit == "rewrite"] == ["rewrite"] * 2
    assert "removed 1 file of results that could not be committed" in said
    assert unreferenced(graph) == set()
    assert rows_by_id(graph) == rows_by_id(twin)
    assert_no_leftovers(graph)


def test_a_result_whose_file_is_gone_is_executed_again(newest: Graph) -> None:
    before = rows_by_id(newest)
    die_after(newest, GROUPS)
    (lost, *_) = sorted(unreferenced(newest))
    os.unlink(Path(newest.uri) / entry_of(newest, TABLE).path / "data" / lost)
    again = Counting()
    rewrite(newest, again)
    assert len(again.executed) == 1
    assert rows_by_id(newest) == before
    assert_no_leftovers(newest)


def test_a_file_that_vanishes_before_the_commit_is_noticed(newest: Graph) -> None:
    before = rows_by_id(newest)

    def vanish() -> None:
        (lost, *_) = sorted(unreferenced(newest))
        os.truncate(Path(newest.uri) / entry_of(newest, TABLE).path / "data" / lost, 10)

    executor = Counting(then=vanish)
    rewrite(newest, executor)
    assert len(executor.executed) == GROUPS + 1
    assert rows_by_id(newest) == before
    assert unreferenced(newest) == set()


def test_a_rewrite_whose_files_are_gone_is_not_committed(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before, table = rows_of(graph), entry_of(graph, TABLE).path

    def loses_a_file() -> None:
        for name in sorted(unreferenced(graph))[:1]:
            os.unlink(Path(graph.uri) / table / "data" / name)

    # Once a commit is drafted: every file was looked up by then.
    when_asked(monkeypatch, Storage, "write", loses_a_file, about=f"^{table}/_transactions/", times=None)
    with pytest.raises(StorageError, match="is not there as it was written; nothing was committed"):
        rewrite(graph, Counting())
    entry = entry_of(graph, TABLE)
    assert rows_of(graph) == before
    assert graph.open_head(entry).version == entry.version


@pytest.mark.parametrize("name", ["plan.json", "task-"])
def test_a_damaged_journal_is_said_and_gone_afterwards(newest: Graph, name: str) -> None:
    before = rows_by_id(newest)
    die_after(newest, 2)
    (damaged, *_) = [f for f in journal_files(newest) if f.rpartition("/")[2].startswith(name)]
    newest.storage.write(damaged, b'{"rewrite_id": ')
    again, said = Counting(), list[str]()
    rewrite(newest, again, said)
    assert any("cannot be read" in line for line in said)
    assert len(again.executed) < GROUPS
    assert rows_by_id(newest) == before
    assert_no_leftovers(newest)


def test_a_journal_can_name_no_file_but_data_of_its_table(newest: Graph) -> None:
    die_after(newest, 1)
    entry = entry_of(newest, TABLE)
    (rewrite_id,) = rewrite_journal.open_journals(newest.storage, entry.path)
    for number, path in enumerate(["_schema.pg", f"{entry.path}/_versions/1.manifest", f"{entry.path}/data/../x"]):
        (made,) = [rewrite_journal.MadeFile(path=path, size=1)]
        evil = rewrite_journal.FinishedTask(index=90 + number, attempt="0" * 12, result="{}", files=(made,))
        rewrite_journal.record(newest.storage, entry.path, rewrite_id, evil)
    schema = (Path(newest.uri) / "_schema.pg").read_bytes()
    rewrite(newest, Counting())
    assert (Path(newest.uri) / "_schema.pg").read_bytes() == schema
    assert_no_leftovers(newest)


def test_a_late_result_of_a_closed_rewrite_is_removed(newest: Graph) -> None:
    """A worker that outlives its driver writes into a journal that is gone."""
    late: list[rewrite_journal.TaskOrder] = []

    class Watching(Counting):
        def execute(self, dataset, orders):  # type: ignore[no-untyped-def]
            late.extend(orders)
            yield from super().execute(dataset, orders)

    rewrite(newest, Watching())
    rewrite_journal.perform(late[0], newest.open_head(entry_of(newest, TABLE)))
    (left,), entry = unreferenced(newest), entry_of(newest, TABLE)
    held = HeldVersion(table_path=entry.path, version=entry.version)
    driver = place_hold(newest.storage, (held,), kind=HoldKind.PLAN, reason="its driver may be alive", ttl_seconds=60)
    recover(newest, grace_seconds=0)
    assert (unreferenced(newest), len(journal_files(newest))) == ({left}, 1)
    release_hold(newest.storage, driver.hold_id)
    file = Path(newest.uri, entry.path, "data", left)
    file.rename(file.with_suffix(".aside"))
    file.mkdir()  # nobody can remove it as a file
    recover(newest, grace_seconds=0)
    assert len(journal_files(newest)) == 1, "somebody still names it"
    file.rmdir()
    file.with_suffix(".aside").rename(file)
    recover(newest, grace_seconds=0)
    assert unreferenced(newest) == set()
    assert_no_leftovers(newest)


def test_two_runs_of_a_table_do_not_meet(newest: Graph) -> None:
    hurried = open_graph(newest.uri, IN_GROUPS.model_copy(update={"lease_wait_seconds": 0.1}))
    before, refusals = rows_of(newest), list[OpsError]()

    def second() -> None:
        try:
            rewrite(hurried, Counting())
        except OpsError as error:
            refusals.append(error)

    rewrite(newest, Counting(then=second))
    assert [type(e) for e in refusals] == [LeaseHeld]
    assert "the rewrite lease" in str(refusals[0])
    assert rows_of(newest) == before
    assert_no_leftovers(newest)


def test_a_run_that_lost_its_table_commits_nothing(newest: Graph) -> None:
    """A driver that was stopped for longer than its lease finds another one at work."""
    entry = entry_of(newest, TABLE)
    before = rows_of(newest)
    place = lease_place(entry.path).path
    with pytest.raises(LeaseHeld, match="taken over"):
        rewrite(newest, Counting(then=lambda: take_over(newest.storage, place)))
    assert rows_of(newest) == before
    bury_holders(newest.storage)
    again = Counting()
    rewrite(newest, again)
    assert again.executed == []
    assert_no_leftovers(newest)


def test_orphans_leave_what_can_still_be_resumed(newest: Graph) -> None:
    die_after(newest, 2)
    resumable = unreferenced(newest)
    for path in (Path(newest.uri) / entry_of(newest, TABLE).path / "data").iterdir():
        os.utime(path, (1, 1))
    planned = plan_orphans(newest, older_than_seconds=3600)
    assert {f.path for f in planned.files} & {f"{entry_of(newest, TABLE).path}/data/{n}" for n in resumable} == set()
    assert not any("rewrites" in f.path for f in planned.files)
    again = Counting()
    rewrite(newest, again)
    assert len(again.executed) == GROUPS - 2


def test_a_live_run_keeps_its_journal(newest: Graph) -> None:
    die_after(newest, 1)
    entry = entry_of(newest, TABLE)
    files = journal_files(newest)
    with rewrite_lease(newest, entry.path):
        recover(newest, grace_seconds=0)
        assert journal_files(newest) == files


def test_journals_of_a_dropped_table_go(newest: Graph) -> None:
    die_after(newest, 2)
    entry = entry_of(newest, TABLE)
    gone = "nodes/00000000000000ff"
    folder = Path(newest.uri)
    (folder / rewrite_journal.table_folder(entry.path)).rename(folder / rewrite_journal.table_folder(gone))
    optimize_all(newest, tables=("edge:Knows",))
    assert journal_files(newest) == []


_RUN = """
import itertools, sys, time
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.coordination import rewrite_journal as work
from tests.support.rewrites import IN_GROUPS, TABLE
real, finished = work.record, itertools.count(1)
def slow(*args):
    real(*args)
    print("finished", flush=True)
    time.sleep(0 if next(finished) < 2 else 600)
work.record = slow
optimize_table(open_graph(sys.argv[1], IN_GROUPS), TABLE)
"""


def test_a_killed_process_is_resumed_at_once(graph: Graph) -> None:
    """Its lease has not run out, but its process is known to be gone."""
    before = rows_of(graph)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", _RUN, graph.uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline() == "finished\n"
        process.send_signal(signal.SIGKILL)
    again = Counting()
    rewrite(graph, again)
    assert len(again.executed) <= GROUPS - 2
    assert rows_of(graph) == before
    assert unreferenced(graph) == set()
    recover(graph, grace_seconds=0)
    assert_no_leftovers(graph)


def test_a_group_that_cannot_be_rewritten_does_not_cost_the_others(
    newest: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_by_id(newest)
    when_rewritten(monkeypatch, raising(OSError("the disk is full")), skip=1)
    with pytest.raises(OpsError, match=r"1 of 4 fragment groups .* the others are published; .* the disk is full"):
        rewrite(newest, Counting())
    assert len(newest.open_head(entry_of(newest, TABLE)).get_fragments()) == GROUPS + 1
    assert rows_by_id(newest) == before
    assert_no_leftovers(newest)
