"""Nothing is removed for its age when the clocks disagree, and no age depends on the time zone of this host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination import environment, sealed
from omnigraph_ops.coordination.environment import clock_problem
from omnigraph_ops.coordination.fence import current_lock, drop_stale_fence, fenced
from omnigraph_ops.coordination.freezes import refuse_frozen, sweep_ended, sweep_ended_here
from omnigraph_ops.coordination.holds import freezes
from omnigraph_ops.coordination.lease import Lease, committer_lease, committer_turn, read_lease
from omnigraph_ops.coordination.state import LEASE_PATH
from omnigraph_ops.errors import ClockWrong, GraphFrozen, LeaseHeld, StalePlan
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.graph.sidecars import sidecar_path, write_sidecar
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.rows import RowPolicy
from omnigraph_ops.stages.cleanup.apply import cleanup_all, cleanup_table, remove_orphaned_forks
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.expire_rows.apply import expire_rows
from omnigraph_ops.stages.expire_rows.plan import plan_row_retention
from omnigraph_ops.stages.freeze.observe import verify_cut
from omnigraph_ops.stages.freeze.take import extend_freeze, freeze_graph, hold_version
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.orphans.quarantine import purge
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.support.freezes import freeze_tags
from tests.support.manifest_times import set_commit_times
from tests.support.orphans import PERSON, plant, put
from tests.support.rows import tree_of
from tests.support.shell import Cli, assert_refused
from tests.support.writers import entry_of

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"node_types": 1, "loads": 3, "rows": 12}
DAYS = 8 * 86_400
Shift = Callable[[float], None]


@pytest.fixture
def host_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shift]:
    """Moves this process's clock, and not the one that stamps files."""
    real, real_ns = time.time, time.time_ns

    def shift(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + seconds)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(seconds * 1e9))

    yield shift
    monkeypatch.undo()
    environment._KNOWN.clear()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [DAYS, -DAYS, 400, -400], ids=["8 days ahead", "8 days behind", "ahead", "behind"])
@pytest.mark.parametrize(
    "verb",
    ["cleanup --keep 1", "cleanup --older-than 1d", "orphans --older-than 7d", "orphans --older-than 7d --quarantine"],
)
def test_a_wrong_host_clock_stops_what_removes_things(
    cli: Cli, demo_graph: DemoGraph, host_clock: Shift, verb: str, seconds: float
) -> None:
    graph = demo_graph(**SMALL)
    plant(graph, days=0)
    before = tree_of(graph.uri)
    host_clock(seconds)
    refused = cli(f"{verb} --confirm", graph.uri)
    assert_refused(refused, "nothing was deleted; set the clock that is wrong, then run again")
    assert f"{abs(seconds):,.0f} s apart" in refused.err
    assert cli(verb, graph.uri).code == 0, "a preview on a local disk writes nothing, so it asks no clock"
    assert {k: v for k, v in tree_of(graph.uri).items() if not k.startswith("__maintenance")} == before


def test_a_small_difference_stops_nothing(cli: Cli, demo_graph: DemoGraph, host_clock: Shift) -> None:
    graph = demo_graph(**SMALL)
    host_clock(200)
    assert cli("cleanup --keep 1 --confirm", graph.uri).code == 0
    assert not list(Path(graph.uri, "__maintenance").rglob("probe-*"))


def test_each_entry_of_a_destroying_stage_asks(demo_graph: DemoGraph, host_clock: Shift) -> None:
    graph = demo_graph(**SMALL)
    put(graph, f"{entry_of(graph, PERSON).path}/data/{'0' * 32}.lance")
    quarantine = apply_orphans(graph, plan_orphans(graph, quarantine=True)).quarantine_id
    assert quarantine is not None
    cleanup, orphans = plan_cleanup(graph, RetentionPolicy(keep_versions=1)), plan_orphans(graph)
    tree = tree_of(graph.uri)
    # The clocks agreed a moment ago; a jump since is seen all the same.
    assert clock_problem(graph.storage) is None
    host_clock(4000)
    for destroy in (
        lambda: cleanup_all(graph, cleanup),
        lambda: cleanup_table(graph, cleanup, PERSON),
        lambda: remove_orphaned_forks(graph, cleanup),
        lambda: apply_orphans(graph, orphans),
        lambda: purge(graph, quarantine),
    ):
        with pytest.raises(ClockWrong, match="nothing was deleted"):
            destroy()
    assert tree_of(graph.uri) == tree


def test_rows_do_not_expire_by_a_wrong_clock(tmp_path: Path, host_clock: Shift) -> None:
    when = datetime.now(UTC)
    table = pa.table({"id": [1, 2], "at": pa.array([when, when - timedelta(days=9)], pa.timestamp("us", "UTC"))})
    lance.write_dataset(table, str(tmp_path / "items.lance"), enable_stable_row_ids=True)
    graph = open_graph(str(tmp_path / "items.lance"))
    policy = RowPolicy(table_key="table:items", property="at", older_than_secs=7 * 86_400)
    host_clock(DAYS)
    wrong = plan_row_retention(graph, [policy])
    with pytest.raises(ClockWrong, match="nothing was deleted"):
        expire_rows(graph, wrong, engine=None)
    host_clock(0)
    with pytest.raises(StalePlan, match="later than now"):
        expire_rows(graph, wrong, engine=None)
    assert lance.dataset(str(tmp_path / "items.lance")).count_rows() == 2


def test_a_plan_of_a_clock_ahead_is_refused_everywhere(demo_graph: DemoGraph, host_clock: Shift) -> None:
    graph = demo_graph(**SMALL)
    host_clock(DAYS)
    plan = plan_cleanup(graph, RetentionPolicy(older_than_secs=86_400))
    assert plan.total_versions > 0, "by that clock everything is old"
    host_clock(0)
    with pytest.raises(StalePlan, match=r"by this host's clock is later than now.*nothing was deleted"):
        cleanup_all(graph, plan)
    near = sealed.seal(replace(plan, planned_at_us=now_us() + 60_000_000, expires_at_us=now_us() + 90_000_000))
    sealed.verify(near, uri=graph.uri, consequence="nothing was deleted")


def test_what_only_seems_to_have_ended_stays(demo_graph: DemoGraph, host_clock: Shift) -> None:
    graph = demo_graph(**SMALL)
    freeze_graph(graph, ttl_seconds=3600)
    storage = graph.storage
    temporary = "__recovery/half.json.tmp"
    storage.write(temporary, b"half")
    host_clock(DAYS)
    assert sweep_ended(graph) == ()
    recover(graph)
    host_clock(0)
    assert len(freezes(storage)) == 1
    assert storage.exists(temporary)


def test_another_freeze_ends_none_by_a_wrong_clock(
    demo_graph: DemoGraph, host_clock: Shift, caplog: pytest.LogCaptureFixture
) -> None:
    graph = demo_graph(**SMALL)
    theirs = freeze_graph(graph, ttl_seconds=3600)
    tags = freeze_tags(graph.uri)
    host_clock(DAYS)
    with committer_turn(graph, "another freeze"):
        assert sweep_ended_here(graph) == ()
    assert "ended freezes stay: " in caplog.text
    host_clock(0)
    assert {hold.hold_id for hold in freezes(graph.storage)} == {theirs.freeze_id}
    assert freeze_tags(graph.uri) == tags
    assert verify_cut(graph, theirs) == ()


@pytest.mark.parametrize("seconds", [7200, -7200], ids=["ahead", "behind"])
def test_nothing_is_frozen_by_a_wrong_clock(
    demo_graph: DemoGraph, host_clock: Shift, tmp_path: Path, cli: Cli, seconds: float
) -> None:
    graph = demo_graph(**SMALL)
    theirs = freeze_graph(graph, ttl_seconds=3600)
    host_clock(seconds)
    with pytest.raises(ClockWrong, match=r"7,200 s apart.*nothing was frozen; set the clock that is wrong"):
        freeze_graph(graph, ttl_seconds=3600)
    with pytest.raises(ClockWrong, match=f"freeze {theirs.freeze_id} ends when it would have ended"):
        extend_freeze(graph, theirs.freeze_id, 3600)
    with pytest.raises(ClockWrong, match="nothing was held"):
        hold_version(graph, PERSON, version=None, branch=None, ttl_seconds=60, reason="", owner="me")
    assert_refused(
        cli("backup", graph.uri, str(tmp_path / "backups")), "7,200 s apart, so no age can be told; nothing was"
    )
    assert not list(tmp_path.glob("backups/*"))
    host_clock(0)
    assert [(h.hold_id, h.expires_at) for h in freezes(graph.storage)] == [(theirs.freeze_id, theirs.expires_at)]


def test_a_freeze_that_only_seems_over_still_counts(demo_graph: DemoGraph, host_clock: Shift) -> None:
    graph = demo_graph(**SMALL)
    freeze_graph(graph, ttl_seconds=3600)
    before = entry_of(graph, PERSON)
    host_clock(7200)
    for work in (refuse_frozen, optimize_all):
        with pytest.raises(GraphFrozen, match="over by the clock of this host; the clock of the store differs"):
            work(graph)
    assert entry_of(open_graph(graph.uri), PERSON) == before
    host_clock(0)
    assert not list(Path(graph.uri, "__maintenance").rglob("probe-*"))


def test_a_foreign_sidecar_is_not_old_by_a_wrong_clock(demo_graph: DemoGraph, host_clock: Shift) -> None:
    graph = demo_graph(stamp=6, **SMALL)
    operation = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    write_sidecar(graph, entry_of(graph, PERSON), operation, graph.uri)
    host_clock(DAYS)
    (outcome,) = recover(graph, grace_seconds=900).outcomes
    assert (outcome.action, "its writer may be at work" in outcome.detail) == ("deferred", True)
    assert graph.storage.exists(sidecar_path(operation))


def test_a_branch_that_an_engine_makes_is_not_old_by_a_wrong_clock(demo_graph: DemoGraph, host_clock: Shift) -> None:
    graph = demo_graph(stamp=3, **SMALL)
    graph.manifest().create_branch("side")
    host_clock(DAYS)
    (outcome,) = recover(graph, grace_seconds=900).outcomes
    assert (outcome.action, "an engine may be at work on it" in outcome.detail) == ("deferred", True)
    assert graph.branches() == ("side",)


def test_a_fence_is_not_overdue_by_a_wrong_clock(demo_graph: DemoGraph, host_clock: Shift) -> None:
    graph = demo_graph(**SMALL)
    with fenced(graph, at_most_seconds=600):
        other = open_graph(graph.uri)
        host_clock(DAYS)
        assert not drop_stale_fence(other)
        host_clock(0)
        assert current_lock(other) is not None


def test_a_lease_of_another_host_is_not_dead_by_a_wrong_clock(demo_graph: DemoGraph, host_clock: Shift) -> None:
    storage = demo_graph(**SMALL).storage
    held = Lease(number=1, token="t", owner="far:1", purpose="p", ttl_seconds=60, pid=1, machine="far")
    storage.write(f"{LEASE_PATH}-{1:020d}.json", serde.dumps(held).encode())
    host_clock(DAYS)
    with (
        pytest.raises(LeaseHeld, match="far:1"),
        committer_lease(storage, purpose="me", ttl_seconds=60, wait_seconds=0),
    ):
        pytest.fail("it was taken over")
    assert read_lease(storage) == held


SCRIPT = """
import json, sys
import omnigraph_ops.stages.cleanup.plan as planning
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy, SnapshotExpiry
root, *moments = sys.argv[1:]
found = []
for moment in moments:
    planning.now_us = lambda: int(moment) * 1_000_000
    for policy in (
        RetentionPolicy(older_than_secs=3600),
        RetentionPolicy(expiry=SnapshotExpiry(retain_min=1, time_retained_secs=3600)),
    ):
        (table,) = planning.plan_cleanup(open_graph(root), policy).tables
        found.append(len(table.versions))
print(json.dumps(found))
"""


@pytest.mark.night("all but one")
@pytest.mark.slow
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "UTC"])
def test_the_age_of_a_version_is_the_same_in_every_time_zone(tmp_path: Path, zone: str) -> None:
    for mode in ("create", "append", "append", "append"):
        lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "items.lance"), mode=mode)
    # In Berlin 02:25 for the second time in that night; read as the first one it is an hour older.
    committed = int(datetime(2026, 10, 25, 1, 25, tzinfo=UTC).timestamp())
    assert set_commit_times(tmp_path / "items.lance", committed) == 4
    moments = [committed + seconds for seconds in (300, 3599, 3601, -3700)]
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *map(str, moments)],
        env={**os.environ, "TZ": zone, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout) == [0, 0, 0, 0, 3, 3, 0, 0]
