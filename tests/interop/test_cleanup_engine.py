"""What cleanup and orphans remove, the engine never misses: every branch exports the same, and it writes on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.holds import HeldVersion, HoldKind, place_hold
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import manifest_file_name
from omnigraph_ops.models.cleanup import RetentionPolicy, SnapshotExpiry
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.interop.engine import SCHEMA, Engine, engine, people

pytestmark = pytest.mark.interop
WEEK = 7 * 86400
BRANCHES = ("lazy", "team/a", "team/b/deep", "child")
LESS = SCHEMA.replace("edge Leads: Person -> Project\n", "")


def aged(graph: Path, days: int = 8) -> None:
    """Make every file look that old. Writes times only."""
    then = time.time() - days * 86400
    for path in graph.rglob("*"):
        os.utime(path, (then, then))


def history(subject: Engine, graph: Path) -> None:
    """Loads, deletes, lazy and written branches with nested names, optimizes of both. Writes."""
    subject.init(graph)
    subject.load(graph, people(0, 6))
    subject.run("branch", "create", "--uri", str(graph), "lazy")
    subject.load(graph, people(6, 6))
    for number, name in enumerate(("team/a", "team/b/deep")):
        subject.run("branch", "create", "--uri", str(graph), name)
        subject.load(graph, people(100 + number * 100, 3), mode="merge", branch=name)
    # 0.7.2 cannot write on a branch of a branch: it looks for the inherited indexes in the wrong folder.
    subject.run("branch", "create", "--uri", str(graph), "--from", "team/a", "child")
    subject.delete_person(graph, "p3")
    subject.optimize(graph)
    subject.load(graph, people(12, 6))
    opened = open_graph(str(graph), Settings())
    # 0.7.2 leaves drift behind deletes that match nothing in a table: a person's decision, taken here.
    apply_repair(opened, preview_repair(opened), force=True)
    optimize_all(opened)


def exports(subject: Engine, graph: Path, *branches: str) -> dict[str, list[str]]:
    return {name: subject.export(graph, name) for name in ("main", *branches)}


def sweep(opened: Graph) -> int:
    plan = plan_orphans(opened, older_than_seconds=WEEK)
    assert (plan.skipped, plan.unknown) == ((), ())
    report = apply_orphans(opened, plan)
    assert (report.failed, report.spared) == ((), ())
    return report.files_removed


@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize(
    "policy",
    [
        RetentionPolicy(keep_versions=1),
        RetentionPolicy(keep_versions=1, between_pins=True),
        RetentionPolicy(expiry=SnapshotExpiry(retain_min=1, time_retained_secs=0)),
    ],
    ids=["keep", "between pins", "expiry"],
)
def test_every_branch_exports_the_same_and_the_engine_writes_on(
    tmp_path: Path, stamp: int, policy: RetentionPolicy
) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    history(subject, graph)
    before = exports(subject, graph, *BRANCHES)
    opened = open_graph(str(graph), Settings())
    report = cleanup_all(opened, plan_cleanup(opened, policy))
    assert not report.failed
    assert report.versions_removed > 0
    assert exports(subject, graph, *BRANCHES) == before
    aged(graph)
    sweep(opened)
    assert exports(subject, graph, *BRANCHES) == before
    subject.load(graph, people(50, 3))
    subject.load(graph, people(60, 3), mode="merge", branch="team/b/deep")
    subject.optimize(graph)
    assert len(subject.export(graph)) > len(before["main"])
    assert plan_orphans(opened, older_than_seconds=3600).files == (), "what the engine writes on is no orphan"


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_branch_that_the_engine_deleted_leaves_nothing(tmp_path: Path, stamp: int) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    history(subject, graph)
    for name in ("child", "team/b/deep", "team/a"):
        subject.run("branch", "delete", "--uri", str(graph), name)
    before = exports(subject, graph, "lazy")
    opened = open_graph(str(graph), Settings())
    cleanup_all(opened, plan_cleanup(opened, RetentionPolicy(keep_versions=1)))
    aged(graph)
    sweep(opened)
    assert not [p for p in graph.rglob("tree/team*") if p.is_dir() and any(p.rglob("*.lance"))]
    assert exports(subject, graph, "lazy") == before
    assert sweep(opened) == 0
    subject.load(graph, people(50, 3))


@pytest.mark.parametrize("stamp", [3, 6])
def test_the_folder_of_a_dropped_type_goes_when_nothing_reaches_it(tmp_path: Path, stamp: int) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    subject.init(graph)
    subject.load(graph, people(0, 6))
    opened = open_graph(str(graph), Settings())
    leads = next(e for e in opened.state().entries if e.table_key == "edge:Leads")
    graph.with_suffix(".pg").write_text(LESS)
    schema = str(graph.with_suffix(".pg"))
    subject.run("schema", "apply", "--store", str(graph), "--schema", schema, "--allow-data-loss", "--json")
    opened = open_graph(str(graph), Settings())
    assert leads.table_key not in {e.table_key for e in opened.state().entries}
    plan = plan_orphans(opened, older_than_seconds=WEEK)
    assert not any(f.path.startswith(leads.path) for f in plan.files), "a graph version of today still reaches it"
    aged(graph)
    held = HeldVersion(table_path=leads.path, version=leads.version)
    hold = place_hold(opened.storage, (held,), kind=HoldKind.FREEZE, reason="backup", ttl_seconds=600)
    assert not any(f.path.startswith(leads.path) for f in plan_orphans(opened, older_than_seconds=WEEK).files)
    opened.storage.delete(f"__maintenance/holds/{hold.hold_id}.json")
    before = exports(subject, graph)
    assert sweep(opened) > 0
    # 0.7.2 knows by the newest manifest that the name was used.
    left = [path.name for path in (graph / leads.path).rglob("*") if path.is_file()]
    assert left == ([manifest_file_name(leads.version)] if stamp == 3 else [])
    assert exports(subject, graph) == before
    subject.load(graph, [r for r in people(50, 3) if r.get("edge") != "Leads"])
    if stamp == 6:  # 0.7.2 cannot bring a dropped type back
        graph.with_suffix(".pg").write_text(SCHEMA)
        subject.run("schema", "apply", "--store", str(graph), "--schema", schema, "--json")
        subject.load(graph, people(70, 3))


@pytest.mark.parametrize("stamp", [3, 6])
def test_what_the_engines_cleanup_leaks_under_a_tag_is_found(tmp_path: Path, stamp: int) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    subject.init(graph)
    for n in range(5):
        subject.load(graph, people(n * 6, 6))
        subject.optimize(graph)
    opened = open_graph(str(graph), Settings())
    person = next(e for e in opened.state().entries if e.table_key == "node:Person")
    head = opened.open_head(person)
    head.tags.create("audit", head.versions()[0]["version"])
    subject.run("cleanup", "--keep", "1", "--confirm", "--json", str(graph))
    head.tags.delete("audit")
    subject.run("cleanup", "--keep", "1", "--confirm", "--json", str(graph))
    before = exports(subject, graph)
    aged(graph)
    sweep(opened)
    assert exports(subject, graph) == before
    assert sweep(opened) == 0
    subject.load(graph, people(90, 3))
