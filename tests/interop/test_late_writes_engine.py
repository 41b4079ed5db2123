"""Writes of the engine that went on after another process had rolled them back: no open ends that, `recover` does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import MANIFEST_DIR, RECOVERY_DIR
from omnigraph_ops.graph.publish import publish
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.crash.harness_state import QUICK
from tests.interop.engine import Engine, engine, people
from tests.interop.watched import put, sidecars_of, watched
from tests.support.sidecars import judge
from tests.support.writers import entry_of

pytestmark = pytest.mark.interop


def _unpublished(root: Path, published: Path) -> None:
    """The graph as it was published before, with the tables as they are. Writes."""
    for folder in [found for found in root.iterdir() if found.name.startswith("_") and found.is_dir()]:
        shutil.rmtree(folder)
    for folder in published.iterdir():
        shutil.copytree(folder, root / folder.name)


def _published(root: Path, place: Path) -> Path:
    for folder in [found for found in root.iterdir() if found.name.startswith("_") and found.is_dir()]:
        shutil.copytree(folder, place / folder.name)
    return place


# A load of 0.7 may be alive, and is left to a person.
@pytest.mark.parametrize(
    ("stamp", "what"), [(3, "delete"), (3, "optimize"), (6, "load"), (6, "delete"), (6, "optimize")]
)
def test_what_it_committed_late_is_rolled_back(tmp_path: Path, stamp: int, what: str) -> None:
    oracle, root = engine(stamp), tmp_path / "graph"
    oracle.init(root)
    for number in range(3):
        oracle.load(root, people(10 * number, 6), mode="merge")
    rows = oracle.export(root)
    judge(open_graph(str(root), QUICK), writer={"load": "Load", "delete": "Mutation", "optimize": "Optimize"}[what])
    judged = _published(root, tmp_path / "judged")
    if what == "load":
        oracle.load(root, people(3, 4, bio="another"), mode="merge")
    elif what == "delete":
        oracle.delete_person(root, "p1")
    else:
        oracle.optimize(root)
    _unpublished(root, judged)
    data = ("--data", str(tmp_path / "graph.jsonl"), "--mode", "merge", str(root))
    refused = oracle.run("load", *data, check=False)
    assert "ahead of manifest version" in " ".join(refused.stderr.split())
    graph = open_graph(str(root), QUICK)
    assert check(graph).status is CheckStatus.PENDING
    assert {outcome.action for outcome in recover(graph).outcomes} == {"rolled_back"}
    assert (check(graph).status, oracle.export(root)) == (CheckStatus.CLEAN, rows)
    oracle.load(root, people(40, 2), mode="merge")
    assert set(rows) < set(oracle.export(root))
    oracle.optimize(root)
    assert set(rows) < set(oracle.export(root))


def _load_on_branch(oracle: Engine, root: Path) -> None:
    oracle.load(root, people(20, 2), mode="merge", branch="side")


def test_a_sidecar_about_branches_that_are_gone_is_withdrawn(tmp_path: Path) -> None:
    oracle, root = engine(6), tmp_path / "graph"
    oracle.init(root)
    oracle.load(root, people(0, 6))
    oracle.run("branch", "create", "--uri", str(root), "side")
    rows = oracle.export(root)
    shutil.copytree(root / MANIFEST_DIR, tmp_path / "before")
    seen = watched(oracle, root, _load_on_branch)
    shutil.rmtree(root / MANIFEST_DIR)
    shutil.move(tmp_path / "before", root / MANIFEST_DIR)  # its publish was refused
    graph = open_graph(str(root), QUICK)
    for table_key in ("node:Person", "edge:Likes"):
        graph.lance.delete_branch(graph.open_pinned(entry_of(graph, table_key)), "side")
    put(root, seen.confirmed)
    load = ("load", "--data", str(tmp_path / "graph.jsonl"), "--mode", "merge", str(root))
    assert all(oracle.run(*load, check=False).returncode != 0 for _ in range(2)), "no open settles it"
    assert check(graph).status is CheckStatus.PENDING
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert not list(root.joinpath(RECOVERY_DIR).glob("*.json"))
    assert (oracle.export(root), oracle.export(root, "side")) == (rows, rows)
    _load_on_branch(oracle, root)
    assert set(rows) < set(oracle.export(root, "side"))


def _load(oracle: Engine, root: Path) -> None:
    oracle.load(root, people(3, 4, bio="another"), mode="merge")


def _delete(oracle: Engine, root: Path) -> None:
    oracle.delete_person(root, "p1")


def _merge(oracle: Engine, root: Path) -> None:
    oracle.run("branch", "merge", "side", "--into", "main", "--uri", str(root))


def _begun(oracle: Engine, root: Path) -> list[str]:
    """A graph with a branch `side` that was written to; the rows of main. Writes."""
    oracle.init(root)
    oracle.load(root, people(0, 6))
    oracle.run("branch", "create", "--uri", str(root), "side")
    oracle.load(root, people(20, 2), branch="side")
    return oracle.export(root)


def _assert_both_roll_it_back(oracle: Engine, root: Path, rows: list[str]) -> None:
    """That an open of the engine and `recover` leave these rows and no sidecar. Writes."""
    ours = root.with_suffix(".ours")
    shutil.copytree(root, ours)
    oracle.run("repair", str(root))
    assert (oracle.export(root), open_graph(str(root)).storage.list(RECOVERY_DIR)) == (rows, ())
    shutil.rmtree(root)
    ours.rename(root)
    graph = open_graph(str(root), QUICK)
    assert "a running server of the engine does not roll it back" in check(graph).sidecars[0].detail
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, oracle.export(root)) == (CheckStatus.CLEAN, rows)


@pytest.mark.parametrize("phase", ["armed", "confirmed"])
@pytest.mark.parametrize("write", [_load, _delete, _merge])
def test_one_that_its_branch_left_behind_is_rolled_back_as_by_an_open(
    tmp_path: Path, write: Callable[[Engine, Path], None], phase: str
) -> None:
    """A running server of the engine opens nothing: it would refuse every write until it is restarted."""
    oracle, root = engine(6), tmp_path / "graph"
    rows = _begun(oracle, root)
    (tmp_path / "before").mkdir()
    before = _published(root, tmp_path / "before")
    seen = watched(oracle, root, write)
    _unpublished(root, before)
    publish(open_graph(str(root), QUICK), (), actor=None)
    put(root, getattr(seen, phase))
    _assert_both_roll_it_back(oracle, root, rows)
    write(oracle, root)
    assert oracle.export(root) != rows


def _half_of(oracle: Engine, root: Path, write: Callable[[Engine, Path], None]) -> None:
    """A write of 0.7 that is not published, of which one table moved, and its sidecar. Writes."""
    before = root.with_suffix(".before")
    shutil.copytree(root, before)
    for _ in range(10):  # a busy machine may miss the sidecar
        with sidecars_of(root) as seen:
            write(oracle, root)
        if seen.first:
            break
        shutil.rmtree(root)
        shutil.copytree(before, root)
    tables = [table.relative_to(root) for kind in ("nodes", "edges") for table in sorted(root.joinpath(kind).iterdir())]
    moved = [table for table in tables if len(_versions(root / table)) > len(_versions(before / table))]
    assert len(moved) > 1
    for table in moved[1:]:
        shutil.rmtree(root / table)
        shutil.copytree(before / table, root / table)
    published = root.with_suffix(".published")
    published.mkdir()
    _unpublished(root, _published(before, published))
    put(root, seen.first)


def _versions(table: Path) -> list[Path]:
    return list(table.joinpath("_versions").iterdir())


@pytest.mark.parametrize("write", [_load, _delete, _merge])
def test_one_of_stamp_3_that_moved_some_of_its_tables_is_rolled_back_as_by_an_open(
    tmp_path: Path, write: Callable[[Engine, Path], None]
) -> None:
    oracle, root = engine(3), tmp_path / "graph"
    rows = _begun(oracle, root)
    _half_of(oracle, root, write)
    _assert_both_roll_it_back(oracle, root, rows)
    write(oracle, root)
    assert oracle.export(root) != rows
