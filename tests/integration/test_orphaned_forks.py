"""Orphaned forks: on live branches, beside legitimate ones, and where one of them cannot be deleted."""

from __future__ import annotations

import lance
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.coordination.holds import HeldVersion, refuse_removed
from omnigraph_ops.coordination.state import REMOVALS_DIR
from omnigraph_ops.errors import RecoveryPending, StalePlan, StorageError
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.sidecars import sidecar_path
from omnigraph_ops.lance.gateway import Dataset, LanceFailure, LanceGateway
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.stages.cleanup.apply import cleanup_all, remove_orphaned_forks
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.cleanup.stage import Cleanup
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.beside import Beside
from tests.support.converged import assert_no_leftovers
from tests.support.edges import when_asked
from tests.support.leases import take_over
from tests.support.orphans import age
from tests.support.rows import rows_everywhere
from tests.support.shell import runner
from tests.support.sidecars import arm
from tests.support.writers import entry_of

pytestmark = pytest.mark.slow

SMALL = {"loads": 2, "rows": 6, "node_types": 1}
PERSON, KNOWS = "node:Person", "edge:Knows"
ONE, TWO = "review/hires-1", "review/hires-2"
ALL_VERSIONS = RetentionPolicy(keep_versions=100)
EXCLUSIVE = Settings(exclusive=True)


def forks_of(graph: Graph, key: str) -> set[str]:
    return set(graph.open_head(entry_of(graph, key)).branches.list())


@pytest.mark.slow
@pytest.mark.parametrize("stubborn", [ONE, TWO])
def test_a_fork_that_cannot_be_deleted_holds_up_nothing_else(
    demo_graph: DemoGraph,
    stamp: int,
    stubborn: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph, cli = demo_graph(stamp=stamp, **SMALL, written_branches=2), runner(capsys)
    for name in (ONE, TWO):
        graph.manifest().branches.delete(name)
    rows, path = rows_everywhere(graph), entry_of(graph, PERSON).path
    real = LanceGateway.delete_branch

    def refuse(self: LanceGateway, dataset: Dataset, name: str) -> bool:
        if name == stubborn and path in dataset.uri:
            raise LanceFailure(f"cannot delete branch {name}: 403 Forbidden")
        return real(self, dataset, name)

    with monkeypatch.context() as failing:
        failing.setattr(LanceGateway, "delete_branch", refuse)
        outcome = cli("cleanup --keep 1 --confirm --json", graph.uri)
    assert outcome.code == 1
    assert "Error: 1 orphaned fork could not be removed" in outcome.err
    (failed,) = outcome.json["orphaned_forks_failed"]
    assert (failed["table_key"], failed["branch"], "403 Forbidden" in failed["error"]) == (PERSON, stubborn, True)
    removed = {(f["table_key"], f["branch"]) for f in outcome.json["orphaned_forks_removed"]}
    internal = {("_graph_commits", ONE), ("_graph_commits", TWO)} if stamp == 3 else set()
    assert removed == internal | {(PERSON, ({ONE, TWO} - {stubborn}).pop())}
    assert forks_of(graph, PERSON) == {stubborn}
    assert [(t["table_key"], t["error"]) for t in outcome.json["tables"]] == [(KNOWS, None), (PERSON, None)]
    assert all(t["old_versions_removed"] > 0 for t in outcome.json["tables"])
    again = cli("cleanup --keep 1 --confirm --json", graph.uri)
    assert (again.code, [f["branch"] for f in again.json["orphaned_forks_removed"]]) == (0, [stubborn])
    assert forks_of(graph, PERSON) == set()
    assert rows_everywhere(graph) == rows
    assert_no_leftovers(graph)


def test_a_fork_that_is_gone_is_not_told_as_one_that_stays(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses to take back what was announced of it."""
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    graph.manifest().branches.delete(ONE)
    plan, delete = plan_cleanup(graph, ALL_VERSIONS), Storage.delete

    def refusing(storage: Storage, path: str) -> None:
        if path.startswith(REMOVALS_DIR):
            raise StorageError("503 Slow Down")
        delete(storage, path)

    monkeypatch.setattr(Storage, "delete", refusing)
    assert remove_orphaned_forks(graph, plan) == plan.orphaned_forks != ()
    assert forks_of(graph, PERSON) == set()


@pytest.mark.slow
def test_a_fork_on_a_live_branch_may_be_the_first_write_of_somebody(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    knows = graph.open_head(entry_of(graph, KNOWS))
    knows.create_branch(ONE, entry_of(graph, KNOWS, ONE).version)
    alone = plan_cleanup(graph.with_settings(EXCLUSIVE), ALL_VERSIONS)
    assert plan_cleanup(graph, ALL_VERSIONS).orphaned_forks == ()
    with fenced(graph) as behind_fence:
        assert plan_cleanup(behind_fence, ALL_VERSIONS).orphaned_forks == ()
    assert cleanup_all(graph, alone).orphaned_forks_removed == ()
    assert forks_of(graph, KNOWS) == {ONE}
    # What nobody published for an hour is what a crash left.
    age(graph.uri, days=1 / 12)
    plan = plan_cleanup(graph, ALL_VERSIONS)
    assert cleanup_all(graph, plan).orphaned_forks_removed == plan.orphaned_forks != ()
    assert (forks_of(graph, KNOWS), forks_of(graph, PERSON)) == (set(), {ONE})


def test_a_fork_that_was_made_anew_right_before_its_removal_stays(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last judgement of the files an engine makes the branch again, and writes on it."""
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    graph.manifest().branches.delete(ONE)
    plan = plan_cleanup(graph, ALL_VERSIONS)

    def anew() -> None:
        dataset = graph.open_at(entry_of(graph, PERSON).path)
        dataset.branches.delete(ONE)
        dataset.create_branch(ONE)

    about = f"{entry_of(graph, PERSON).path}$"
    when_asked(monkeypatch, lance.LanceDataset, "all_files", anew, about=about, after=True)
    removed = {f.table_key for f in cleanup_all(graph, plan).orphaned_forks_removed}
    assert PERSON not in removed
    assert forks_of(graph, PERSON) == {ONE}


@pytest.mark.parametrize(
    ("what", "words"), [("a writer arms", "1 pending recovery sidecar"), ("another run", "was taken over by another")]
)
def test_a_fork_stays_where_somebody_comes_right_before_its_removal(
    demo_graph: DemoGraph, what: str, words: str
) -> None:
    """The engine may be about to publish the fork: it knows no lease, only its own sidecar."""
    graph = demo_graph(stamp=6, **SMALL, written_branches=1)  # it is the only fork there
    graph.manifest().branches.delete(ONE)
    plan = plan_cleanup(graph, ALL_VERSIONS)

    def act() -> None:
        if what == "a writer arms":
            graph.storage.write(sidecar_path("01ARYZ6S410000000000000000"), b"{}")
        else:
            take_over(graph.storage)

    outcomes = remove_orphaned_forks(graph.with_run(Beside(act, PERSON)), plan)
    (failed,) = outcomes
    assert words in (failed.error or "")
    assert forks_of(graph, PERSON) == {ONE}


def test_no_fork_of_a_frozen_table_goes_and_none_at_all_beside_something_pending(
    demo_graph: DemoGraph, caplog: pytest.LogCaptureFixture
) -> None:
    graph = demo_graph(stamp=6, **SMALL, written_branches=1)
    graph.manifest().branches.delete(ONE)
    plan = plan_cleanup(graph, ALL_VERSIONS)
    freeze_graph(graph, tables=[PERSON])
    assert remove_orphaned_forks(graph, plan) == ()
    assert f"fork {ONE} of {PERSON} is kept: {PERSON} of {graph.target} is frozen by" in caplog.text
    arm(graph)
    with pytest.raises(RecoveryPending, match="1 pending recovery sidecar"):
        remove_orphaned_forks(graph, plan)
    assert forks_of(graph, PERSON) == {ONE}
    of = Unit(
        name="fork", stage="cleanup", digest="", table_key=PERSON, table_path=entry_of(graph, PERSON).path, branch=ONE
    )
    assert Cleanup().told(graph, of) is None, "a run that was killed by then did nothing"


def test_nobody_gets_a_hold_of_a_fork_that_is_about_to_go(demo_graph: DemoGraph) -> None:
    graph, refused = demo_graph(**SMALL, written_branches=1), list[str]()
    entry = entry_of(graph, PERSON, ONE)
    graph.manifest().branches.delete(ONE)

    def act() -> None:
        with pytest.raises(StalePlan, match="is being removed by a cleanup") as refusal:
            refuse_removed(graph.storage, [HeldVersion(table_path=entry.path, version=entry.version, branch=ONE)])
        refused.append(str(refusal.value))

    plan = plan_cleanup(graph, ALL_VERSIONS)
    assert remove_orphaned_forks(graph.with_run(Beside(act, PERSON)), plan) == plan.orphaned_forks
    assert len(refused) == 1


@pytest.mark.slow
def test_an_orphan_on_a_live_branch_goes_and_the_legitimate_fork_stays(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    graph = graph.with_settings(EXCLUSIVE)
    # The branch lives and reads Knows from main: a fork of Knows under its name is what a crash left.
    knows = graph.open_head(entry_of(graph, KNOWS))
    knows.create_branch(ONE, entry_of(graph, KNOWS, ONE).version)
    rows = rows_everywhere(graph)
    plan = plan_cleanup(graph, ALL_VERSIONS)
    (orphan,) = plan.orphaned_forks
    assert (orphan.table_key, orphan.table_path, orphan.branch) == (KNOWS, entry_of(graph, KNOWS).path, ONE)
    assert cleanup_all(graph, plan).orphaned_forks_removed == (orphan,)
    assert (forks_of(graph, KNOWS), forks_of(graph, PERSON)) == (set(), {ONE})
    assert ONE in graph.branches()
    assert rows_everywhere(graph) == rows
    assert plan_cleanup(graph, ALL_VERSIONS).orphaned_forks == ()


def test_a_fork_from_which_a_live_branch_was_made_is_kept_with_the_reason(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    graph.manifest().branches.delete(ONE)
    graph.manifest().create_branch(TWO)
    person = graph.open_head(entry_of(graph, PERSON))
    person.create_branch(TWO, (ONE, None))
    plan = plan_cleanup(graph, ALL_VERSIONS)
    (kept,) = (f for f in plan.kept_forks if f.table_key == PERSON)
    assert (kept.branch, kept.error) == (ONE, f"Lance branch {TWO!r} forks from it")
    assert PERSON not in {f.table_key for f in plan.orphaned_forks}
    cleanup_all(graph, plan)
    assert forks_of(graph, PERSON) == {ONE, TWO}


def test_a_fork_on_a_branch_that_cannot_be_read_is_kept(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=2)
    graph.manifest().branches.delete(TWO)
    graph.storage.delete_tree(f"__manifest/tree/{ONE}")
    report = cleanup_all(graph, plan_cleanup(graph, ALL_VERSIONS))
    assert ONE in forks_of(graph, PERSON)
    assert ONE not in {f.branch for f in report.orphaned_forks_removed}
    assert all("cannot be read" in (t.error or "") for t in report.tables)


def test_the_name_of_a_removed_fork_can_be_used_again(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    graph.manifest().branches.delete(ONE)
    cleanup_all(graph, plan_cleanup(graph, ALL_VERSIONS))
    graph.manifest().create_branch(ONE)
    graph.open_head(entry_of(graph, PERSON)).create_branch(ONE)
    assert (graph.branches(), forks_of(graph, PERSON)) == ((ONE,), {ONE})
    assert rows_everywhere(graph)[ONE] == rows_everywhere(graph)[None]
