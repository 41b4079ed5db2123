"""Two processes of engine 0.9.0, of which one takes back what the other publishes, stop every write; `recover` ends it.

The sidecar is one that the engine wrote, as it was before its commits were confirmed. The restore is Lance's own.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph_ops.graph.lance_manifest import version_record
from omnigraph_ops.graph.layout import MANIFEST_DIR, RECOVERY_DIR, made_at_us, new_ulid, now_us, version_path
from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.graph.sidecars import ROLLED_BACK, append_audit, list_sidecars, sidecar_names
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.crash.harness_state import QUICK
from tests.interop.engine import Engine, engine, people
from tests.interop.watched import Seen, Write, put, watched
from tests.support.rows import rows_everywhere
from tests.support.sidecars import arm
from tests.support.writers import entry_of

pytestmark = pytest.mark.interop
LOCKED = "manifest delta differs"


def _load(oracle: Engine, root: Path) -> None:
    oracle.load(root, people(3, 4), mode="merge")


def _delete(oracle: Engine, root: Path) -> None:
    oracle.delete_person(root, "p1")


def _merge(oracle: Engine, root: Path) -> None:
    oracle.run("branch", "merge", "--uri", str(root), "side")


def _load_on_branch(oracle: Engine, root: Path) -> None:
    oracle.load(root, people(20, 2), mode="merge", branch="side")


def _with_branch(tmp_path: Path) -> tuple[Engine, Path]:
    """A graph with rows on main, and others on `side`. Writes."""
    oracle, root = engine(6), tmp_path / "graph"
    oracle.init(root)
    oracle.load(root, people(0, 6))
    oracle.run("branch", "create", "--uri", str(root), "side")
    oracle.load(root, people(10, 4), mode="merge", branch="side")
    return oracle, root


def _unpublished(oracle: Engine, root: Path, write: Write) -> Seen:
    """A write whose publish is yet to come, and what it announced. Writes."""
    before = root.with_suffix(".before")
    shutil.copytree(root / MANIFEST_DIR, before)
    seen = watched(oracle, root, write)
    shutil.rmtree(root / MANIFEST_DIR)
    shutil.move(before, root / MANIFEST_DIR)
    return seen


def _take_back(root: Path, seen: Seen) -> None:
    """What the process does that takes the writer for dead: its sidecar again, and the tables restored. Writes."""
    put(root, seen.armed)
    for content in seen.armed.values():
        document: dict[str, Any] = json.loads(content)
        for pin in document["tables"]:
            uri = pin["table_path"]
            table = lance.dataset(uri)
            if pin.get("table_branch"):
                table = table.checkout_version((pin["table_branch"], None))
            table.checkout_version(pin["expected_version"]).restore()


def _locked(tmp_path: Path, write: Write, branch: str) -> tuple[Engine, Path, list[str]]:
    """A graph that no engine writes any more after an acknowledged write, and its rows."""
    oracle, root = _with_branch(tmp_path)
    seen = watched(oracle, root, write)
    rows = oracle.export(root, branch)
    _take_back(root, seen)
    refused = oracle.run("load", "--data", str(tmp_path / "graph.jsonl"), "--mode", "merge", str(root), check=False)
    assert LOCKED in refused.stderr
    return oracle, root, rows


@pytest.mark.parametrize("write", [_load, _delete, _merge, _load_on_branch], ids=lambda write: write.__name__[1:])
def test_what_was_published_is_there_and_the_engine_writes_again(tmp_path: Path, write: Write) -> None:
    branch = "side" if write is _load_on_branch else "main"
    oracle, root, rows = _locked(tmp_path, write, branch)
    graph = open_graph(str(root), QUICK)
    assert check(graph).status is CheckStatus.PENDING
    (outcome,) = recover(graph, grace_seconds=0).outcomes
    assert outcome.action == "rolled_forward"
    assert check(graph).status is CheckStatus.CLEAN
    assert oracle.export(root, branch) == rows
    oracle.load(root, people(40, 2), mode="merge", branch=branch)
    assert set(rows) < set(oracle.export(root, branch))
    assert all(table["error"] is None for table in oracle.optimize(root).values() if "error" in table)
    if branch == "side":
        oracle.run("branch", "merge", "--uri", str(root), branch)
        assert set(rows) <= set(oracle.export(root))


@pytest.mark.parametrize("write", [_load, _delete, _merge, _load_on_branch], ids=lambda write: write.__name__[1:])
def test_a_write_that_confirms_what_was_rolled_back_is_rolled_back_for_good(tmp_path: Path, write: Write) -> None:
    branch = "side" if write is _load_on_branch else "main"
    oracle, root = _with_branch(tmp_path)
    rows = oracle.export(root, branch)
    seen = _unpublished(oracle, root, write)
    put(root, seen.armed)
    oracle.load(root, people(30, 2), mode="merge", branch=branch)
    others = oracle.export(root, branch)
    assert set(rows) < set(others)
    put(root, seen.confirmed)
    refused = oracle.run("load", "--data", str(tmp_path / "graph.jsonl"), "--mode", "merge", str(root), check=False)
    assert "no durable rollback audit outcomes" in " ".join(refused.stderr.split())
    graph = open_graph(str(root), QUICK)
    assert check(graph).status is CheckStatus.PENDING
    (outcome,) = recover(graph, grace_seconds=0).outcomes
    assert (outcome.action, check(graph).status) == ("rolled_back", CheckStatus.CLEAN)
    assert oracle.export(root, branch) == others
    oracle.load(root, people(40, 2), mode="merge", branch=branch)
    assert set(others) < set(oracle.export(root, branch))


@pytest.mark.parametrize("ours", [True, False], ids=["our cleanup", "its own cleanup"])
@pytest.mark.parametrize("hangs", [True, False], ids=["in a gap", "restored"])
@pytest.mark.parametrize("write", [_load, _delete, _merge], ids=lambda write: write.__name__[1:])
def test_one_is_withdrawn_after_a_cleanup_too(tmp_path: Path, write: Write, hangs: bool, ours: bool) -> None:
    oracle, root = _with_branch(tmp_path)
    seen = _unpublished(oracle, root, write)
    graph = open_graph(str(root), QUICK)
    entry = entry_of(graph, "node:Person")
    made, aside = root / version_path(entry.path, entry.version + 1, None), tmp_path / "made"
    if hangs:
        made.rename(aside)
    put(root, seen.armed)
    for n in range(3):
        oracle.load(root, people(30 + 2 * n, 2), mode="merge")
    rows = oracle.export(root)
    if ours:
        cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1)))
    else:
        oracle.run("cleanup", "--keep", "1", "--confirm", str(root))
    assert not made.exists()
    if hangs:
        aside.rename(made)
    put(root, seen.confirmed)
    refused = oracle.run("load", "--data", str(tmp_path / "graph.jsonl"), "--mode", "merge", str(root), check=False)
    assert "no durable rollback audit outcomes" in " ".join(refused.stderr.split())
    assert check(graph).status is CheckStatus.PENDING
    (outcome,) = recover(graph, grace_seconds=0).outcomes
    assert (outcome.action, check(graph).status) == ("rolled_back", CheckStatus.CLEAN)
    assert oracle.export(root) == rows
    oracle.load(root, people(40, 2), mode="merge")
    assert set(rows) < set(oracle.export(root))
    assert all(table["skipped"] is None for table in oracle.optimize(root).values())


def test_a_write_that_was_killed_before_it_made_lance_branches_anew_is_withdrawn(tmp_path: Path) -> None:
    """Those of an older write are there, and the graph branch publishes the versions of main."""
    oracle, root = _with_branch(tmp_path)
    oracle.run("branch", "merge", "--uri", str(root), "side", "--into", "main")
    oracle.load(root, people(3, 5), mode="merge")
    oracle.run("branch", "merge", "--uri", str(root), "main", "--into", "side")
    before = root.with_suffix(".before")
    shutil.copytree(root, before)
    seen = watched(oracle, root, _load_on_branch)
    shutil.rmtree(root)
    shutil.move(before, root)
    put(root, seen.armed)
    graph = open_graph(str(root), QUICK)
    rows = rows_everywhere(graph)
    refused = oracle.delete_person(root, "p1", check=False)
    assert "cannot discard unpublished fork" in refused.stderr
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    oracle.load(root, people(20, 2), mode="merge", branch="side")
    oracle.load(root, people(30, 2), mode="merge")


@pytest.mark.parametrize("write", [_load, _delete, _merge], ids=lambda write: write.__name__[1:])
def test_a_write_that_an_open_takes_along_with_an_optimize_is_rolled_back(tmp_path: Path, write: Write) -> None:
    oracle, root = _with_branch(tmp_path)
    rows = oracle.export(root)
    seen = _unpublished(oracle, root, write)
    graph = open_graph(str(root), QUICK)
    arm(graph, "node:Person")  # an optimize that was planned before these commits, older than they are
    put(root, seen.armed)
    load = ("load", "--data", str(tmp_path / "graph.jsonl"), "--mode", "merge", str(root))
    assert all(oracle.run(*load, check=False).returncode != 0 for _ in range(2))
    assert len(sidecar_names(graph.storage)) == 1
    assert check(graph).status is CheckStatus.PENDING
    (outcome,) = recover(graph, grace_seconds=0).outcomes
    assert (outcome.action, check(graph).status) == ("rolled_back", CheckStatus.CLEAN)
    assert oracle.export(root) == rows
    oracle.load(root, people(40, 2), mode="merge")
    oracle.run("branch", "merge", "--uri", str(root), "side")
    assert set(rows) < set(oracle.export(root))
    assert all(table["skipped"] is None for table in oracle.optimize(root).values())


@pytest.mark.parametrize(("write", "branch"), [(_load, "main"), (_load_on_branch, "side")], ids=["main", "branch"])
def test_a_restore_on_top_of_what_was_published_is_rolled_back(tmp_path: Path, write: Write, branch: str) -> None:
    oracle, root, rows = _locked(tmp_path, write, branch)
    for sidecar in root.joinpath(RECOVERY_DIR).glob("*.json"):
        sidecar.unlink()  # as the writer does after its publish
    data = ("--data", str(tmp_path / "graph.jsonl"), "--mode", "merge", "--branch", branch)
    refused = oracle.run("load", *data, str(root), check=False)
    assert "ahead of manifest version" in refused.stderr
    graph = open_graph(str(root), QUICK)
    assert check(graph).status is CheckStatus.PENDING
    assert {outcome.action for outcome in recover(graph).outcomes} == {"rolled_back"}
    assert (check(graph).status, oracle.export(root, branch)) == (CheckStatus.CLEAN, rows)
    oracle.load(root, people(40, 2), mode="merge", branch=branch)
    assert set(rows) < set(oracle.export(root, branch))


def test_what_a_merge_committed_after_it_was_rolled_back_is_rolled_back_too(tmp_path: Path) -> None:
    oracle, root = _with_branch(tmp_path)
    rows = oracle.export(root)
    shutil.copytree(root / MANIFEST_DIR, tmp_path / "before")
    oracle.run("branch", "merge", "--uri", str(root), "side")
    shutil.rmtree(root / MANIFEST_DIR)
    shutil.move(tmp_path / "before", root / MANIFEST_DIR)  # as if its publish had been refused
    graph = open_graph(str(root), QUICK)
    person = entry_of(graph, "node:Person")
    made = version_record(graph.storage, person.path, person.version + 1).transaction_id
    assert made is not None and made.startswith("omnigraph-merge-")
    assert check(graph).status is CheckStatus.DRIFTED
    arm(graph, person.table_key, change=lambda document: document.update(writer_kind="BranchMerge"))
    (file,) = list_sidecars(graph.storage, graph.format.sidecar_version)
    assert file.sidecar is not None
    graph.storage.delete(file.path)
    judged = replace(file.sidecar, operation_id=new_ulid(made_at_us(made.removeprefix("omnigraph-merge-")) + 1_000_000))
    append_audit(graph, judged, commit_id=new_ulid(), kind=ROLLED_BACK, outcomes=(), created_at_us=now_us())
    assert {outcome.action for outcome in recover(graph).outcomes} == {"rolled_back"}
    assert (check(graph).status, oracle.export(root)) == (CheckStatus.CLEAN, rows)
    oracle.load(root, people(40, 2), mode="merge")
    oracle.run("branch", "merge", "--uri", str(root), "side")
    assert set(rows) < set(oracle.export(root))


def _one(kind: str, key: str, value: str) -> list[dict[str, object]]:
    return [{"type": kind, "data": {key: value}}]


@pytest.mark.parametrize(("source", "target"), [("side", "main"), ("main", "side")])
def test_a_merge_without_a_trace_is_rolled_back_once_its_branch_moved_on(
    tmp_path: Path, source: str, target: str
) -> None:
    """As if an open had withdrawn its sidecar before it moved a table, and its process was killed later."""
    oracle, root = _with_branch(tmp_path)
    oracle.load(root, people(10, 4), mode="merge")  # so that both have the same rows but one
    oracle.load(root, _one("Person", "name", "merged"), mode="merge", branch=source)
    rows, manifest = oracle.export(root, target), tmp_path / "before"
    shutil.copytree(root / MANIFEST_DIR, manifest)
    oracle.run("branch", "merge", "--uri", str(root), source, "--into", target)
    shutil.rmtree(root / MANIFEST_DIR)
    shutil.move(manifest, root / MANIFEST_DIR)
    graph = open_graph(str(root), QUICK)
    assert check(graph).status is CheckStatus.DRIFTED
    assert recover(graph, grace_seconds=0).outcomes == ()  # a merge at work may look like this, and is acknowledged
    oracle.load(root, _one("Project", "code", "later"), mode="merge", branch=target)
    assert check(graph).status is CheckStatus.PENDING
    assert {outcome.action for outcome in recover(graph).outcomes} == {"rolled_back"}
    assert check(graph).status is CheckStatus.CLEAN
    later = oracle.export(root, target)
    assert (set(rows) < set(later), len(later)) == (True, len(rows) + 1)
    oracle.run("branch", "merge", "--uri", str(root), source, "--into", target)
    assert '"merged"' in "".join(oracle.export(root, target))
