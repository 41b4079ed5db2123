"""The engine on a graph after orphans: a type that it dropped is gone, everything else works as before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.orphans import OrphanKind
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from tests.interop.engine import SCHEMA, engine, people
from tests.support.orphans import age, every_version, plant, run

pytestmark = pytest.mark.interop


def persons(start: int) -> list[dict[str, object]]:
    """Rows of the types that are left."""
    return [row for row in people(start, 2) if row.get("type") != "Project" and row.get("edge") != "Leads"]


@pytest.mark.parametrize("stamp", [3, 6])
def test_the_engine_goes_on_after_orphans(stamp: int, tmp_path: Path) -> None:
    oracle, root = engine(stamp), tmp_path / "kb.omni"
    oracle.init(root)
    for number in range(3):
        oracle.load(root, people(number * 10, 10))
    smaller = SCHEMA.partition("node Project")[0] + "edge Likes: Person -> Person {\n    since: Date?\n}\n"
    root.with_suffix(".pg").write_text(smaller)
    oracle.run("schema", "apply", "--schema", str(root.with_suffix(".pg")), "--store", str(root))
    for name in ("gone", "feature/x"):
        oracle.run("branch", "create", "--store", str(root), name)
        oracle.load(root, persons(500), branch=name)
    oracle.run("branch", "delete", "--store", str(root), "gone")
    age(root)
    graph = open_graph(str(root))
    leftovers = plant(graph)
    rows = {b: oracle.export(root, b) for b in ("main", "feature/x")}
    versions = every_version(graph)
    plan, report = run(graph)
    dropped = {g.path for g in plan.groups if g.kept is None}
    assert {g.kind for g in plan.groups} == {OrphanKind.DROPPED_TABLE}
    assert len(dropped) == 2
    assert {f.path for f in plan.files} >= set(leftovers)
    assert (report.files_removed, plan.unknown, plan.skipped) == (len(plan.files), (), ())
    assert every_version(graph) == versions
    assert {b: oracle.export(root, b) for b in rows} == rows
    oracle.optimize(root)
    oracle.run("cleanup", "--keep", "5", "--confirm", str(root))
    oracle.run("branch", "create", "--store", str(root), "gone")
    oracle.load(root, persons(600), branch="gone")
    assert {b: oracle.export(root, b) for b in rows} == rows
    age(root)
    after = plan_orphans(graph)
    assert (after.unknown, after.skipped, after.groups) == ((), (), ())


@pytest.mark.parametrize("moved", ["orphans", "restore"])
def test_engine_0_7_refuses_a_name_that_was_used_and_goes_on(moved: str, tmp_path: Path) -> None:
    oracle, root = engine(3), tmp_path / "kb.omni"
    oracle.init(root)
    oracle.load(root, people(0, 10))
    smaller, again = root.with_suffix(".smaller.pg"), root.with_suffix(".again.pg")
    smaller.write_text(SCHEMA.partition("node Project")[0] + "edge Likes: Person -> Person {\n    since: Date?\n}\n")
    again.write_text(SCHEMA.replace("    nicknames: [String]?", "    nicknames: [String]?\n    left: Date?"))
    assert again.read_text() != SCHEMA
    oracle.run("schema", "apply", "--schema", str(smaller), "--store", str(root))
    if moved == "orphans":
        age(root)
        assert run(open_graph(str(root)))[1].files_removed
    else:
        report = backup_graph(open_graph(str(root)), str(tmp_path / "backups"))
        shutil.rmtree(root)
        assert restore_backup(report.backup, str(root), settings=Settings()).problems == ()
    rows = oracle.export(root)
    refused = oracle.run("schema", "apply", "--schema", str(again), "--store", str(root), check=False)
    assert refused.returncode != 0
    assert "Dataset already exists" in refused.stderr
    oracle.load(root, persons(20))
    assert set(rows) < set(oracle.export(root))
    assert check(open_graph(str(root))).status is CheckStatus.CLEAN
