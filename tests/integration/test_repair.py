"""Repair publishes heads that a person saw, and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import lance
import pytest

from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.state import RUNS_DIR
from omnigraph_ops.errors import (
    LeaseHeld,
    OpsError,
    OutcomeUnknown,
    RecoveryPending,
    StalePlan,
    UnknownTable,
)
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.graph.sidecars import sidecar_path
from omnigraph_ops.lance.gateway import LanceFailure, LanceGateway
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.models.repair import (
    Classification,
    EvidenceTier,
    RepairAction,
    RepairPreview,
    RepairReport,
    RepairRow,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes import history
from omnigraph_ops.progress import Run
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair, published_of
from omnigraph_ops.stages.repair.stage import Repair
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.beside import Beside
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.edges import raising, when_asked, when_published
from tests.support.leases import bury_holders, take_over
from tests.support.orphans import drop
from tests.support.rows import rows_of, tree_of
from tests.support.shell import Cli, assert_refused
from tests.support.writers import copies, delete_first, drift, entry_of, write

SMALL = {"loads": 3, "rows": 20}
DRIFTED, PHOTO = "node:Person", "node:Photo"


def row(preview: RepairPreview, key: str = DRIFTED) -> RepairRow:
    return next(r for r in preview.rows if r.table_key == key)


def actors(graph: Graph) -> list[str | None]:
    """The actors of all graph commits, oldest first."""
    if graph.stamp == 3:
        rows = lance.dataset(f"{graph.uri}/_graph_commit_actors.lance").to_table().to_pylist()
        return [r["actor_id"] for r in rows]
    rows = graph.manifest().to_table(filter="object_type = 'graph_commit'").to_pylist()
    rows.sort(key=lambda r: r["table_version"])
    return [json.loads(r["metadata"]).get("actor_id") for r in rows]


def test_a_clean_graph_has_nothing_to_repair(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    tree = tree_of(graph.uri)
    preview = preview_repair(graph)
    assert {(r.classification, r.action) for r in preview.rows} == {(Classification.NO_DRIFT, RepairAction.NO_OP)}
    assert (preview.drifted, len(preview.rows)) == ((), 6)
    assert apply_repair(graph, preview).manifest_version is None
    assert {k: v for k, v in tree_of(graph.uri).items() if not k.startswith("__maintenance")} == tree


class _Noted(Run):
    """Notes the units that it begins, and how those ended that did."""

    def __init__(self) -> None:
        self.units, self.reports = list[Unit](), list[object]()

    def begins(self, unit: Unit) -> None:
        self.units.append(unit)

    def ended(self, unit: Unit, report: object) -> None:
        self.reports.append(report)


def _no_reply(patch: pytest.MonkeyPatch) -> None:
    """Nor an answer to the question what became of it."""
    when_asked(patch, LanceGateway, "open", raising(LanceFailure("no reply")), about=f"/{MANIFEST_DIR}$", times=None)
    raise OSError("no reply")


def _slow_down(patch: pytest.MonkeyPatch) -> None:
    """It landed, and nobody may look at it now."""
    slow = raising(OSError("Slow Down"))
    when_asked(patch, lance.LanceDataset, "scanner", slow, about=f"/{MANIFEST_DIR}$", times=None)


@pytest.mark.parametrize(("fault", "why"), [(_no_reply, OutcomeUnknown), (_slow_down, LanceFailure)])
def test_whether_a_publish_without_a_reply_landed_is_told_by_the_graph(
    demo_graph: DemoGraph,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    why: type[OpsError],
) -> None:
    graph, run = demo_graph(**SMALL, drift_tables=(DRIFTED,)), _Noted()
    preview, before = preview_repair(graph), list[RepairReport | None]()
    with monkeypatch.context() as patch:
        when_published(patch, lambda: before.append(published_of(graph, run.units[0])))
        when_published(patch, partial(fault, patch), after=True)
        with pytest.raises(why):
            apply_repair(graph.with_run(run), preview)
    assert before == [None]
    assert run.reports == ([] if why is OutcomeUnknown else [None])
    told = published_of(graph, run.units[0])
    assert told is not None
    assert [r.table_key for r in told.tables if r.is_published] == [DRIFTED]
    assert told.manifest_version == graph.manifest().version


@pytest.mark.slow
def test_verified_drift_is_previewed_then_healed(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(DRIFTED, "node:Doc"))
    before, tree = rows_of(graph), tree_of(graph.uri)
    preview = preview_repair(graph)
    assert tree_of(graph.uri) == tree
    seen = row(preview)
    assert (seen.classification, seen.action) == (Classification.VERIFIED_MAINTENANCE, RepairAction.PREVIEW)
    assert seen.operations == ("ReserveFragments", "Rewrite")
    assert (seen.rows_before, seen.rows_after) == (60, 60)
    manifest = graph.manifest().version
    report = apply_repair(graph, preview)
    assert report.manifest_version == graph.manifest().version == manifest + 1
    assert [r.table_key for r in report.tables if r.action is RepairAction.HEALED] == ["node:Doc", DRIFTED]
    assert rows_of(graph) == before
    assert actors(graph)[-1] == "omnigraph:repair"
    assert_pins_are_heads(graph)
    assert_no_leftovers(graph)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delete", "empty_delete"])
def test_suspicious_drift_needs_force(demo_graph: DemoGraph, stamp: int, kind: str) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(DRIFTED,), drift_kind=kind)
    before, entry = rows_of(graph), entry_of(graph, DRIFTED)
    preview = preview_repair(graph)
    assert row(preview).classification is Classification.SUSPICIOUS
    refused = apply_repair(graph, preview)
    assert ([r.table_key for r in refused.refused], refused.manifest_version) == ([DRIFTED], None)
    assert (entry_of(graph, DRIFTED), rows_of(graph)) == (entry, before)
    forced = apply_repair(graph, preview_repair(graph), force=True)
    assert [r.action for r in forced.tables if r.table_key == DRIFTED] == [RepairAction.FORCED]
    assert actors(graph)[-1] == "omnigraph:repair:force"
    gone = 1 if kind == "delete" else 0
    assert entry_of(graph, DRIFTED).row_count == 60 - gone
    assert_pins_are_heads(graph)


@pytest.mark.slow
def test_a_refused_table_does_not_hold_up_a_healed_one(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=("node:Doc",))
    drift(graph, DRIFTED, copies("extra-"))
    report = apply_repair(graph, preview_repair(graph))
    actions = {r.table_key: r.action for r in report.tables}
    assert (actions["node:Doc"], actions[DRIFTED]) == (RepairAction.HEALED, RepairAction.REFUSED)


def test_index_commits_are_suspicious(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    drift(graph, DRIFTED, lambda dataset: dataset.optimize.optimize_indices())
    assert row(preview_repair(graph)).classification is Classification.SUSPICIOUS


def test_a_missing_version_is_unverifiable(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    entry = entry_of(graph, DRIFTED)
    for _ in range(2):
        drift(graph, DRIFTED, delete_first())
    between = graph.storage.full(f"{entry.path}/_versions/{2**64 - 1 - entry.version - 1:020d}.manifest")
    with open(between, "r+b") as manifest:
        manifest.truncate(20)
    damaged = row(preview_repair(graph))
    os.unlink(between)
    seen = row(preview_repair(graph))
    assert damaged.classification is seen.classification is Classification.UNVERIFIABLE
    assert f"missing Lance transaction for version {entry.version + 1}" in (seen.error or "")
    assert seen.error is not None
    assert str(entry.version + 1) in seen.error


@pytest.mark.slow
def test_rewritten_blobs_that_the_engine_may_read_otherwise_are_not_proven_equal(
    demo_graph: DemoGraph, stamp: int
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, blobs=True)
    drift(graph, PHOTO, lambda head: head.optimize.compact_files())
    for tier in EvidenceTier:
        seen = row(preview_repair(graph, evidence=tier), PHOTO)
        assert seen.evidence is not None
        if graph.format.compacts_blobs:
            assert seen.classification is Classification.VERIFIED_MAINTENANCE
        else:
            assert (seen.classification, seen.evidence.content_equal) == (Classification.SUSPICIOUS, None)
            assert "may have null blobs in image that its engine reads as empty" in str(seen.error)
    assert seen.evidence.content_equal is (True if graph.format.compacts_blobs else None)


def test_a_preview_that_is_no_longer_true_is_refused(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(DRIFTED,))
    preview = preview_repair(graph)
    drift(graph, DRIFTED, delete_first())
    entry = entry_of(graph, DRIFTED)
    with pytest.raises(StalePlan, match="preview again"):
        apply_repair(graph, preview, force=True)
    assert entry_of(graph, DRIFTED) == entry
    assert_no_leftovers(graph)


def test_a_repair_that_lost_the_lease_publishes_nothing(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(DRIFTED,))
    preview, entry = preview_repair(graph), entry_of(graph, DRIFTED)
    with pytest.raises(LeaseHeld, match="taken over"):
        apply_repair(graph.with_run(Beside(lambda: take_over(graph.storage))), preview)
    assert entry_of(graph, DRIFTED) == entry


def test_a_table_that_is_dropped_right_before_the_publish_is_not_told_as_healed(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=(DRIFTED, "node:Doc"))
    preview, entry = preview_repair(graph), entry_of(graph, "node:Doc")
    with pytest.raises(StalePlan, match=rf"{DRIFTED} is not live any more; nothing was published"):
        apply_repair(graph.with_run(Beside(lambda: drop(graph, DRIFTED))), preview)
    assert entry_of(graph, "node:Doc") == entry


def test_a_repair_that_lost_the_lease_to_another_one_is_not_told_as_its_own(
    demo_graph: DemoGraph, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL, drift_tables=(DRIFTED,))
    preview = preview_repair(graph)

    def another_one() -> None:
        bury_holders(graph.storage)
        assert apply_repair(graph, preview).manifest_version is not None

    when_asked(monkeypatch, Storage, "write", another_one, about=rf"^{RUNS_DIR}/.*/\d{{6}}\.json$", after=True)
    assert_refused(cli("repair --confirm", graph.uri), "taken over")
    (run,) = history.read_runs(open_graph(graph.uri))
    assert (run.outcome, run.counts.succeeded) == (RunOutcome.FAILED, 0)
    assert {table.outcome for table in run.tables} <= {RunOutcome.NOTHING_TO_DO}


def test_an_altered_preview_is_refused(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=(DRIFTED,))
    preview = preview_repair(graph)
    with pytest.raises(StalePlan):
        apply_repair(graph, replace(preview, digest="sha256:" + "0" * 64))


def test_what_somebody_else_published_as_approved_is_no_failure(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(DRIFTED, "node:Doc"))
    preview = preview_repair(graph)
    apply_repair(graph, preview_repair(graph, tables=(DRIFTED,)))
    report = apply_repair(graph, preview)
    assert report.already_published == (DRIFTED,)
    assert [row.table_key for row in report.tables if row.is_published] == ["node:Doc"]
    version = graph.state().manifest_version
    again = apply_repair(open_graph(graph.uri), preview)
    assert (again.already_published, again.manifest_version) == (("node:Doc", DRIFTED), None)
    outcome = again.outcome()
    assert (outcome.applied, outcome.failures, outcome.changed) == (True, (), False)
    assert "2 already published; nothing was published" in outcome.detail
    assert [table.reason for table in outcome.tables if table.reason] == ["already published"] * 2
    assert ("Already published", f"node:Doc, {DRIFTED}") in Repair().view(again).facts
    assert open_graph(graph.uri).state().manifest_version == version


def test_what_was_published_and_written_to_since_is_another_drift(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(DRIFTED,))
    preview = preview_repair(graph)
    apply_repair(graph, preview)
    write(graph, DRIFTED, delete_first())
    with pytest.raises(StalePlan, match=r"now .* no_drift\)"):
        apply_repair(open_graph(graph.uri), preview)


def test_other_commits_with_the_same_version_are_not_the_approved_ones(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(DRIFTED,))
    preview = preview_repair(graph)
    apply_repair(graph, preview)
    others = (replace(r, transactions=("x",) * len(r.transactions)) for r in preview.rows)
    with pytest.raises(StalePlan):
        apply_repair(graph, sealed.seal(replace(preview, rows=tuple(others))))


@pytest.mark.slow
def test_nothing_is_decided_beside_a_recovery(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=(DRIFTED,))
    preview = preview_repair(graph)
    graph.storage.write(sidecar_path("01ARYZ6S410000000000000000"), b"{}")
    with pytest.raises(RecoveryPending):
        preview_repair(graph)
    with pytest.raises(RecoveryPending):
        apply_repair(graph, preview)
    assert entry_of(graph, DRIFTED).version == row(preview).manifest_version


def test_only_the_named_tables_are_repaired(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=(DRIFTED, "node:Doc"))
    doc = entry_of(graph, "node:Doc")
    apply_repair(graph, preview_repair(graph, tables=(DRIFTED,)))
    assert entry_of(graph, "node:Doc") == doc
    with pytest.raises(UnknownTable):
        preview_repair(graph, tables=("node:Nobody",))
