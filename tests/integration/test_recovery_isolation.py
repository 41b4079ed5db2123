"""What is wrong with one table, sidecar or internal dataset holds up the recovery and the repair of no other."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from omnigraph_ops.cli.main import main
from omnigraph_ops.coordination.state import LEASE_PATH
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import RECOVERIES_DIR, manifest_file_name, new_ulid
from omnigraph_ops.graph.sidecars import sidecar_names, sidecar_path
from omnigraph_ops.models.health import CheckStatus, SidecarClass
from omnigraph_ops.models.repair import RepairAction
from omnigraph_ops.progress import Run
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK
from tests.support.edges import when_asked, when_published
from tests.support.leases import left_held
from tests.support.sidecars import OTHER, TABLE, arm, audit_rows, commit_rows, move, publish_head
from tests.support.waits import stop_lease_clock
from tests.support.writers import copies, drift, entry_of


@pytest.fixture
def graph(demo_graph: DemoGraph, stamp: int) -> Graph:
    """Two tables that a killed optimize left ahead, the first one an hour before the other."""
    made = demo_graph(stamp=stamp, loads=3, rows=8, settings=QUICK)
    for table_key, age in ((OTHER, 7200), (TABLE, 3600)):
        arm(made, table_key, age_seconds=age)
        move(made, table_key)
    return made


def _empty(path: Path) -> None:
    """What a host that lost power leaves of a file."""
    path.write_bytes(b"")


def _lose_pinned(graph: Graph, table_key: str) -> None:
    entry = entry_of(graph, table_key)
    _empty(Path(graph.uri, entry.path, "_versions", manifest_file_name(entry.version)))


def test_a_sidecar_that_cannot_be_judged_is_left_and_the_others_are_settled(graph: Graph) -> None:
    _lose_pinned(graph, OTHER)
    head = graph.open_head(entry_of(graph, TABLE)).version
    first, second = check(graph).sidecars
    assert (first.classification, first.recoverable) == (SidecarClass.UNREADABLE, False)
    assert f"it cannot be judged: cannot open {graph.uri}" in first.detail
    assert second.recoverable
    report = recover(graph)
    assert [o.action for o in report.outcomes] == ["left_to_engine", "rolled_forward"]
    assert (report.status, entry_of(graph, TABLE).version) == (CheckStatus.NEEDS_PERSON, head)


def test_nothing_is_published_that_cannot_be_audited(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    arm(graph, age_seconds=9000)  # that one makes the audit
    recover(graph)
    for table_key, age in ((OTHER, 7200), (TABLE, 3600)):
        arm(graph, table_key, age_seconds=age)
    newest = min(Path(graph.uri, RECOVERIES_DIR, "_versions").glob("*.manifest"))
    _empty(newest)
    commits, left = len(commit_rows(graph)), sidecar_names(graph.storage)
    assert main(["recover", graph.uri, "--quiet", "--grace", "0s"]) == 1
    assert "2 findings could not be settled, first of" in capsys.readouterr().err
    assert (len(commit_rows(graph)), sidecar_names(graph.storage)) == (commits, left)


def test_a_table_that_somebody_publishes_meanwhile_is_deferred(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    when_published(monkeypatch, lambda: publish_head(graph, OTHER))
    assert [o.action for o in recover(graph).outcomes] == ["deferred", "rolled_forward"]
    assert [o.action for o in recover(graph).outcomes] == ["stale"]
    assert check(graph).status is CheckStatus.CLEAN


def test_only_the_first_sidecar_waits_for_a_lease_that_another_run_has(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = stop_lease_clock(monkeypatch)

    class Waits(Run):
        def pause(self, seconds: float) -> None:
            clock.seconds += seconds

    brief = graph.with_settings(QUICK.model_copy(update={"lease_wait_seconds": 1.0})).with_run(Waits())
    left_held(graph.storage, LEASE_PATH, ttl_seconds=1800)
    assert [o.action for o in recover(brief).outcomes] == ["deferred", "deferred"]
    assert 1.0 <= clock.seconds < 2.0


@pytest.mark.parametrize("written_ago", [0, 3600], ids=["just now", "an hour ago"])
def test_a_sidecar_from_the_future_waits_as_long_as_its_file_is_young(graph: Graph, written_ago: float) -> None:
    operation_id = arm(graph, age_seconds=-86_400)
    written = time.time() - written_ago
    os.utime(Path(graph.uri, sidecar_path(operation_id)), (written, written))
    outcomes = {o.operation_id: o.action for o in recover(graph, grace_seconds=600).outcomes}
    assert (outcomes[operation_id] == "deferred") is (written_ago == 0)
    recover(graph, grace_seconds=0)
    assert not sidecar_names(graph.storage)


def test_a_sidecar_about_no_table_is_left(demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)
    visible = list(graph.format.commits(graph.context, None))[-1].commit_id
    write = {"lineage": {"graph_commit_id": new_ulid()}, "rollback_graph_commit_id": visible, "effect_phase": "Armed"}
    arm(graph, change=lambda document: document.update(writer_kind="Load", tables=[], protocol_v3=write))
    assert [o.action for o in recover(graph).outcomes] == ["left_to_engine"]
    assert audit_rows(graph) == []


def _take_head_away(graph: Graph, table_key: str) -> None:
    entry = entry_of(graph, table_key)
    folder = f"{entry.path}/_versions"
    graph.storage.delete(f"{folder}/{manifest_file_name(entry.version)}")
    graph.storage.delete(f"{folder}/latest_version_hint.json")


def test_a_head_behind_its_pin_is_never_published_and_the_others_are_repaired(
    demo_graph: DemoGraph, stamp: int
) -> None:
    graph = demo_graph(stamp=stamp, loads=3, rows=8, drift_tables=(TABLE,), settings=QUICK)
    _take_head_away(graph, OTHER)
    drift = {finding.table_key: finding for finding in check(graph).drift}
    assert "is older than the published version" in (drift[OTHER].problem or "")
    preview = preview_repair(graph)
    rows = {row.table_key: row for row in apply_repair(graph, preview, force=True).tables}
    assert "behind manifest version" in (rows[OTHER].error or "")
    assert (rows[OTHER].action, rows[TABLE].action) == (RepairAction.REFUSED, RepairAction.HEALED)


@pytest.mark.slow
def test_a_look_reads_no_more_of_a_table_with_many_foreign_versions(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, loads=3, rows=8, settings=QUICK)
    chain = entry_of(graph, TABLE).path
    read = when_asked(monkeypatch, Storage, "read", about=f"^{chain}/_versions/")
    figures = []
    for more in (2, 10):
        for number in range(more):
            drift(graph, TABLE, copies(f"late-{more}-{number}-", 1))
        read.clear()
        assert check(graph).status is CheckStatus.DRIFTED
        figures.append(len(read))
    assert figures[0] == figures[1] > 0
