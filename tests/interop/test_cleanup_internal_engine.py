"""After old versions of its own tables went, the engine answers at every commit as before, merges, and writes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.models.cleanup import CleanupReport, RetentionPolicy
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.interop.engine import Engine, engine, people

pytestmark = pytest.mark.interop
EVERYTHING = (
    "query q() { match { $p: Person $p leads $c } return { $p.name, $p.age, $p.bio, $c.code, $c.budget } }",
    "query q() { match { $p: Person $p likes $o } return { $p.name, $o.name } }",
)
BRANCHES = ("main", "lazy", "topic")


def commits(subject: Engine, graph: Path, branch: str = "main") -> list[dict[str, object]]:
    listed = subject.run("commit", "list", "--json", "--store", str(graph), "--branch", branch).stdout
    return list(json.loads(listed)["commits"])


def answers(subject: Engine, graph: Path, commit_ids: list[str]) -> dict[str, list[str]]:
    """What the engine reads at each commit; one that it cannot open wholly has no entry."""
    found: dict[str, list[str]] = {}
    for commit in commit_ids:
        asked = [
            subject.run(
                "query", "--store", str(graph), "--snapshot", commit, "-e", text, "--format", "jsonl", check=False
            )
            for text in EVERYTHING
        ]
        if all(one.returncode == 0 for one in asked):
            found[commit] = sorted(line for one in asked for line in one.stdout.splitlines()[1:])
    return found


def history(subject: Engine, graph: Path) -> None:
    """Loads on main and a branch, a merge of it, loads on both again, an untouched branch. Writes."""
    subject.init(graph)
    subject.load(graph, people(0, 3))
    subject.run("branch", "create", "--uri", str(graph), "lazy")
    subject.run("branch", "create", "--uri", str(graph), "topic")
    subject.load(graph, people(100, 2), mode="merge", branch="topic")
    for number in range(3):
        subject.load(graph, people(10 + number * 10, 2))
    subject.run("branch", "merge", "topic", "--into", "main", "--uri", str(graph))
    subject.load(graph, people(200, 2), mode="merge", branch="topic")
    for number in range(3):
        subject.load(graph, people(50 + number * 10, 2))


def policy(keep: int) -> RetentionPolicy:
    return RetentionPolicy(keep_versions=keep, between_pins=True)


def clean(graph: Path, keep: int) -> CleanupReport:
    with fenced(open_graph(str(graph), Settings())) as opened:
        report = cleanup_all(opened, plan_cleanup(opened, policy(keep)))
    assert not report.failed
    return report


@pytest.mark.parametrize("stamp", [3, 6])
def test_every_commit_answers_as_before_and_the_engine_works_on(tmp_path: Path, stamp: int) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    history(subject, graph)
    opened = open_graph(str(graph), Settings(exclusive=True))
    apply_repair(opened, preview_repair(opened), force=True)
    optimize_all(opened)
    for number in range(3):
        subject.load(graph, people(300 + number * 10, 2))
    # Beside writers: only versions of tables go, which is what decides which commits can be opened.
    beside = open_graph(str(graph), Settings())
    cleanup_all(beside, plan_cleanup(beside, policy(5)))
    listed = {branch: commits(subject, graph, branch) for branch in BRANCHES}
    ids = sorted({str(c["graph_commit_id"]) for of in listed.values() for c in of})
    before, exports = answers(subject, graph, ids), {b: subject.export(graph, b) for b in BRANCHES}
    assert 3 <= len(before) < len(ids), "some commits can be opened, and some cannot any more"

    removed = {t.table_key: t.old_versions_removed for t in clean(graph, keep=5).tables}
    assert removed[MANIFEST_DIR] > 5
    assert sum(removed.values()) == sum(n for key, n in removed.items() if key.startswith("_"))

    assert {branch: commits(subject, graph, branch) for branch in BRANCHES} == listed
    assert answers(subject, graph, ids) == before
    assert {b: subject.export(graph, b) for b in BRANCHES} == exports
    subject.run("branch", "merge", "topic", "--into", "main", "--uri", str(graph))
    subject.load(graph, people(400, 2), mode="merge", branch="lazy")
    subject.run("branch", "merge", "lazy", "--into", "main", "--uri", str(graph))
    merged = set(subject.export(graph))
    for name in ("p200", "p400"):
        assert any(f'"{name}"' in line for line in merged), f"{name} came with its merge"
    subject.optimize(graph)
    subject.run("cleanup", "--keep", "3", "--confirm", "--yes", str(graph))
    assert set(subject.export(graph)) == merged
    clean(graph, keep=1)
    assert set(subject.export(graph)) == merged
    subject.load(graph, people(500, 2))
