"""Nothing is published that lost something, and nothing is removed by a process that was stopped meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.state import REMOVALS_DIR
from omnigraph_ops.errors import StalePlan
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.sidecars import sidecar_names, write_sidecar
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.repair import Classification, RepairAction
from omnigraph_ops.stages.freeze.take import hold_version
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.conftest import DemoGraph
from tests.support.losses import commit_lossy_rewrite, commit_rewrite_and_lose_a_file
from tests.support.rows import rows_of
from tests.support.writers import copies, drift, entry_of

pytestmark = pytest.mark.slow

SMALL = {"node_types": 1, "loads": 3, "rows": 10}
PERSON = "node:Person"
SIDECAR = "01ARYZ6S410000000000000000"
LOSSES = [
    (commit_lossy_rewrite, Classification.SUSPICIOUS, "20 rows instead of 30"),
    (commit_rewrite_and_lose_a_file, Classification.UNVERIFIABLE, "cannot be read"),
]


@pytest.mark.parametrize(("lose", "classification", "words"), LOSSES, ids=["rows", "file"])
def test_a_rewrite_that_lost_something_is_not_verified_maintenance(
    demo_graph: DemoGraph,
    stamp: int,
    lose: Callable[[Graph, str], None],
    classification: Classification,
    words: str,
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    rows = rows_of(graph)
    lose(graph, PERSON)
    (row,) = preview_repair(graph).drifted
    assert (row.classification, row.operations) == (classification, ("ReserveFragments", "Rewrite"))
    assert row.error is not None and words in row.error
    report = apply_repair(graph, preview_repair(graph))
    assert ([t.action for t in report.refused], report.manifest_version) == ([RepairAction.REFUSED], None)
    assert rows_of(graph) == rows


def test_what_readers_could_not_read_is_not_published_by_force_either(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    rows = rows_of(graph)
    commit_rewrite_and_lose_a_file(graph, PERSON)
    report = apply_repair(graph, preview_repair(graph), force=True)
    assert ([t.action for t in report.refused], report.manifest_version) == ([RepairAction.REFUSED], None)
    assert rows_of(graph) == rows


def test_a_loss_between_preview_and_apply_is_found(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON,))
    preview = preview_repair(graph)
    entry = entry_of(graph, PERSON)
    head = graph.open_head(entry)
    (file,) = head.get_fragments()[0].metadata.files
    os.unlink(f"{graph.uri}/{entry.path}/data/{file.path}")
    with pytest.raises(StalePlan, match=r"the drift of .* changed since it was previewed; nothing was published"):
        apply_repair(graph, preview)
    assert entry_of(graph, PERSON) == entry


@pytest.mark.parametrize(("lose", "words"), [(lose, words) for lose, _, words in LOSSES], ids=["rows", "file"])
def test_recover_does_not_publish_what_lost_something(
    demo_graph: DemoGraph, stamp: int, lose: Callable[[Graph, str], None], words: str
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    entry, rows = entry_of(graph, PERSON), rows_of(graph)
    lose(graph, PERSON)
    write_sidecar(graph, entry, SIDECAR, graph.uri)
    report = recover(graph, grace_seconds=0)
    assert report.status is CheckStatus.NEEDS_PERSON
    assert [(o.action, words in o.detail) for o in report.outcomes] == [("left_to_engine", True)]
    assert entry_of(graph, PERSON) == entry
    assert sidecar_names(graph.storage) == {f"{SIDECAR}.json"}
    graph.storage.delete(f"__recovery/{SIDECAR}.json")
    assert rows_of(graph) == rows


_CLEANUP = """
import sys
from omnigraph_ops.stages.cleanup import apply
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.graph import open_graph
from omnigraph_ops.coordination.lease import LeaseKeeper
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.config.settings import Settings
def stopping(real):
    def stop(*args, **named):
        print("here", flush=True)
        sys.stdin.readline()
        return real(*args, **named)
    return stop
if sys.argv[2] == "before":
    LeaseKeeper.assert_held = stopping(LeaseKeeper.assert_held)
else:
    apply.remove_versions = stopping(apply.remove_versions)
graph = open_graph(sys.argv[1], Settings(lease_ttl_seconds=1))
report = cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1), tables=("node:Person",)))
(table,) = report.tables
print(table.old_versions_removed, table.error, flush=True)
"""


@contextmanager
def stopped_cleanup(graph: Graph, where: str) -> Iterator[Callable[[], str]]:
    """A process that cleans up one table, stopped right before its effect; call to let it go on, for what it says."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", _CLEANUP, graph.uri, where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGSTOP)

        def go_on() -> str:
            assert process.stdin is not None and process.stdout is not None
            process.send_signal(signal.SIGCONT)
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        try:
            yield go_on
        finally:
            process.kill()


@pytest.fixture
def aged(demo_graph: DemoGraph, stamp: int) -> Graph:
    """A graph whose table has versions to remove."""
    graph = demo_graph(stamp=stamp, settings=Settings(lease_ttl_seconds=1), **SMALL)
    assert not optimize_all(graph).failed
    return graph


def old_version(graph: Graph) -> int:
    head = graph.open_head(entry_of(graph, PERSON))
    return min(int(v["version"]) for v in head.versions())


def hold(graph: Graph, version: int) -> None:
    hold_version(graph, PERSON, version=version, branch=None, ttl_seconds=600, reason="report", owner="reader")


def test_a_cleanup_that_was_stopped_before_its_look_at_the_lease_removes_nothing(aged: Graph) -> None:
    version = old_version(aged)
    with stopped_cleanup(aged, "before") as go_on:
        # What it announced is of no use to anybody but the one that it stops.
        for name in aged.storage.list(REMOVALS_DIR):
            aged.storage.delete(f"{REMOVALS_DIR}/{name}")
        hold(aged, version)
        said = go_on()
    assert "was taken over by another run" in said
    assert aged.lance.open(aged.table_uri(entry_of(aged, PERSON)), version=version).count_rows() >= 0


def test_a_reader_is_told_of_a_cleanup_that_was_stopped_right_before_its_effect(aged: Graph) -> None:
    version = old_version(aged)
    with stopped_cleanup(aged, "after") as go_on:
        with pytest.raises(StalePlan, match=f"version {version} of .* is being removed by a cleanup .*nothing is held"):
            hold(aged, version)
        assert aged.storage.list("__maintenance/holds") == ()
        assert not go_on().startswith("0")
    hold(aged, entry_of(aged, PERSON).version)


def test_announcements_of_a_killed_cleanup_are_swept(aged: Graph) -> None:
    version = old_version(aged)
    with stopped_cleanup(aged, "after"):
        pass  # it is killed
    assert len(aged.storage.list(REMOVALS_DIR)) == 1
    hold(aged, version)
    recover(aged, grace_seconds=0)
    assert aged.storage.list(REMOVALS_DIR) == ()


def test_check_tells_drift_of_ours_from_drift_of_others(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    drift(graph, PERSON, copies("x"))
    report = check(graph)
    assert [(d.table_key, d.recoverable) for d in report.drift] == [(PERSON, False)]
    assert any("repair" in advice for advice in report.advice)
