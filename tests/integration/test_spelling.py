"""The root as the engine spells it (ADR 0007), and clusters by their ledger."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import InvalidInput, OperatorNeeded
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.opening import resolve_cluster
from omnigraph_ops.graph.sidecars import chosen_root, engine_root, recorded_root
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.storage.store import Storage

KEY = "node:Person"


@pytest.fixture(params=[3, 6])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    write_demo_graph(str(tmp_path / "g.omni"), DemoSpec(stamp=request.param, node_types=1, loads=2, rows=5))
    return tmp_path / "g.omni"


def entry_of(root: Path, settings: Settings | None = None) -> tuple[object, object]:
    graph = open_graph(str(root), settings)
    return graph, graph.state().get(KEY)


def test_the_recorded_root_is_read_on_both_stamps(root: Path) -> None:
    graph, entry = entry_of(root)
    assert recorded_root(graph, entry) == str(root)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_link_to_the_graph_is_another_spelling(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.omni"
    link.symlink_to(root)
    before = open_graph(str(root)).open_head(open_graph(str(root)).state().entries[-1]).version
    with pytest.raises(OperatorNeeded, match="OMNIGRAPH_OPS_ENGINE_ROOT"):
        optimize_table(open_graph(str(link)), KEY)
    assert open_graph(str(root)).open_head(open_graph(str(root)).state().entries[-1]).version == before
    optimize_table(open_graph(str(link), Settings(engine_root=str(root))), KEY)


def test_a_copy_does_not_count_as_spelled_differently(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.omni"
    shutil.copytree(root, copy)
    assert optimize_table(open_graph(str(copy)), KEY).committed


def test_the_setting_is_written_into_the_sidecar_and_must_be_this_graph(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.omni"
    link.symlink_to(root)
    graph, entry = entry_of(root, Settings(engine_root=str(link)))
    assert engine_root(graph, entry) == str(link)  # type: ignore[arg-type]
    graph, entry = entry_of(root, Settings(engine_root=str(tmp_path)))
    with pytest.raises(InvalidInput, match="is not the directory"):
        engine_root(graph, entry)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ("s3://bucket/g.omni", "is not the directory"),
        ("file://{root}", "of which engines keep the path"),
        (" {root}", "has blanks around it"),
        ("s3://bucket/a/../g", "has the segment"),
    ],
)
def test_a_setting_that_no_engine_would_write_is_refused(root: Path, chosen: str, words: str) -> None:
    graph, entry = entry_of(root, Settings(engine_root=chosen.format(root=root)))
    with pytest.raises(InvalidInput, match=words):
        engine_root(graph, entry)  # type: ignore[arg-type]


def test_a_relative_setting_is_taken_on_trust(root: Path) -> None:
    graph, entry = entry_of(root, Settings(engine_root="./g.omni/"))
    assert engine_root(graph, entry) == "./g.omni"  # type: ignore[arg-type]


def ledger(folder: Path, *graphs: str, version: int = 1) -> str:
    (folder / "__cluster").mkdir(parents=True, exist_ok=True)
    resources = {f"graph.{g}": {"digest": "d"} for g in graphs} | {"policy.x": {}}
    state = {"version": version, "applied_revision": {"resources": resources}}
    (folder / "__cluster" / "state.json").write_text(json.dumps(state))
    return str(folder)


def test_a_cluster_resolves_to_its_graph(tmp_path: Path) -> None:
    one, two = ledger(tmp_path / "one", "kb"), ledger(tmp_path / "two", "a", "b")
    assert resolve_cluster(one, None) == f"{one}/graphs/kb.omni"
    assert resolve_cluster(two, "b") == f"{two}/graphs/b.omni"


@pytest.mark.parametrize(
    ("graphs", "graph_id", "words"),
    [
        (("a", "b"), None, "has 2 graphs: [a, b]; pass --graph <id>"),
        (("a",), "z", "graph `z` is not applied in cluster"),
        ((), None, "has no applied graphs"),
        (("../../x",), None, "is not the id of a graph"),
    ],
)
def test_a_cluster_that_does_not_say_which(
    tmp_path: Path, graphs: tuple[str, ...], graph_id: str | None, words: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        resolve_cluster(ledger(tmp_path / "c", *graphs), graph_id)
    assert words in str(refused.value)


def test_a_cluster_without_a_usable_ledger(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no applied state"):
        resolve_cluster(str(tmp_path), None)
    with pytest.raises(InvalidInput, match="version 2"):
        resolve_cluster(ledger(tmp_path / "v", "a", version=2), None)
    (tmp_path / "v" / "__cluster" / "state.json").write_text("{")
    with pytest.raises(InvalidInput, match="not valid JSON"):
        resolve_cluster(str(tmp_path / "v"), None)


@pytest.mark.parametrize(
    ("chosen", "root"),
    [("s3://b/g.omni/", "s3://b/g.omni"), ("s3://b/other", None), ("/data/g.omni", None), ("g", None)],
)
def test_on_s3_the_setting_must_be_the_graph(chosen: str, root: str | None) -> None:
    storage = Storage("s3://b/g.omni")
    graph: Any = SimpleNamespace(settings=Settings(engine_root=chosen), uri=storage.root, storage=storage)
    if root is not None:
        assert chosen_root(graph) == root
        return
    with pytest.raises(InvalidInput, match="is not the directory"):
        chosen_root(graph)
