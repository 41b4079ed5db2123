"""The same crashed graph, recovered once by us and once by the real engine: the same rows are written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.graph.sidecars import sidecar_path
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.crash.conftest import build_stage
from tests.crash.harness_scenarios import SCENARIOS
from tests.crash.harness_state import QUICK
from tests.interop.engine import engine, people
from tests.support.sidecars import arm, audit_rows, commit_rows
from tests.support.writers import entry_of

pytestmark = pytest.mark.interop
# Minted or clocked by whoever recovers.
_OWN = {"graph_commit_id", "created_at", "operation_id"}


@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("name", ["recover-moved", "recover-not-moved", "recover-published"])
def test_we_write_what_the_engine_writes(tmp_path: Path, name: str, stamp: int) -> None:
    oracle = engine(stamp)
    built = build_stage(tmp_path, next(s for s in SCENARIOS if s.name == name), stamp)

    def by_engine(graph: Graph) -> None:
        oracle.optimize(Path(graph.uri))

    ours = _recovered(built.root, lambda graph: recover(graph, grace_seconds=0))
    shutil.rmtree(Path(built.root) / "_graph_commit_recoveries.lance", ignore_errors=True)
    built.reset()
    theirs = _recovered(built.root, by_engine)
    assert ours == theirs


def _recovered(root: str, act: Callable[[Graph], object]) -> dict[str, Any]:
    """Recover, then the audit row and the commit it names, without what is minted. Writes."""
    graph = open_graph(root, QUICK)
    known = [c["graph_commit_id"] for c in commit_rows(graph)]
    act(graph)
    (audit,) = audit_rows(graph)
    commits = commit_rows(graph)
    commit = next(c for c in commits if c["graph_commit_id"] == audit["graph_commit_id"])
    assert commit["graph_commit_id"] not in known
    return {
        "audit": {k: v for k, v in audit.items() if k not in _OWN},
        "commit": {k: v for k, v in commit.items() if k not in _OWN},
    }


@pytest.mark.parametrize("branch", ["main", "side"])
def test_deletes_that_0_7_never_published_are_rolled_back(tmp_path: Path, branch: str) -> None:
    """It leaves a delete that matched nothing in a table unpublished, and refuses the next one of that table."""
    oracle, root = engine(3), tmp_path / "graph"
    oracle.init(root)
    oracle.load(root, people(0, 6))
    oracle.run("branch", "create", "--uri", str(root), "side")
    lonely = {"name": "lonely", "age": 1, "bio": "has no edges", "active": True, "tier": "pro"}
    oracle.load(root, [*people(10, 4), {"type": "Person", "data": lonely}], mode="merge", branch=branch)
    oracle.delete_person(root, "lonely", branch=branch)
    rows = oracle.export(root, branch)
    assert "stale view of" in oracle.delete_person(root, "p11", branch=branch, check=False).stderr
    graph = open_graph(str(root), QUICK)
    assert check(graph).status is CheckStatus.PENDING
    assert {outcome.action for outcome in recover(graph).outcomes} == {"rolled_back"}
    assert (check(graph).status, oracle.export(root, branch)) == (CheckStatus.CLEAN, rows)
    oracle.delete_person(root, "p11", branch=branch)
    left = oracle.export(root, branch)
    assert set(left) < set(rows)


_TWO = "node Person {\n    name: String @key\n}\nnode Project {\n    code: String @key\n}\n"
_ONE = _TWO.partition("node Project")[0]
_APPLIED = {
    "renamed": (_TWO.replace("node Project", 'node Plan @rename_from("Project")'),),
    "dropped": (_ONE,),
    "made anew": (_ONE, _TWO),
}


@pytest.mark.parametrize("moved", [False, True], ids=["armed", "committed"])
@pytest.mark.parametrize("what", _APPLIED)
def test_a_schema_apply_while_an_optimize_is_armed_locks_no_graph(tmp_path: Path, what: str, moved: bool) -> None:
    """It looked for sidecars before ours was there, and the process that would remove ours was killed."""
    oracle, root = engine(6), tmp_path / "g.omni"
    oracle.init(root, _TWO)
    for start in (0, 4, 8):
        names = [("Person", "name", f"p{n}") for n in range(start, start + 4)]
        names += [("Project", "code", f"c{n}") for n in range(start, start + 4)]
        oracle.load(root, [{"type": kind, "data": {key: value}} for kind, key, value in names])
    graph = open_graph(str(root), QUICK)
    entry = entry_of(graph, "node:Project")
    sidecar = root / sidecar_path(arm(graph, "node:Project"))
    raw = sidecar.read_bytes()
    sidecar.unlink()
    for schema in _APPLIED[what]:
        oracle.apply_schema(root, schema)
    rows = oracle.export(root)
    if moved:
        graph.open_at(entry.path).optimize.compact_files()
    sidecar.write_bytes(raw)
    assert oracle.run("export", "--store", str(root), check=False).returncode == 1
    report = recover(open_graph(str(root), QUICK))
    action = "rolled_forward" if moved and what == "renamed" else "rolled_back"
    assert ([o.action for o in report.outcomes], report.status) == ([action], CheckStatus.CLEAN)
    assert oracle.export(root) == rows
    oracle.load(root, [{"type": "Person", "data": {"name": "another"}}])
