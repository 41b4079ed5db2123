"""Vector indexes that this tool trained, beside the engine: it reads them, writes on, and folds them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.lance.vector_indexes import TARGET_ROWS
from omnigraph_ops.models.health import VectorHealth
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.interop.engine import Engine, engine
from tests.support.vectors import Vectors, clustered, exact

pytestmark = pytest.mark.interop
CLUSTERS, DIMENSION, LOAD = 16, 8, 8192
ROWS = CLUSTERS * TARGET_ROWS
QUERY = f"""\
query near($q: Vector({DIMENSION})) {{
  match {{ $d: Doc }} return {{ $d.num }} order {{ nearest($d.vec, $q) }} limit 10
}}
"""
# 0.7.2 fails on the text index of a string key once a row is deleted, and has no other keys.
KEYS = {3: "index", 6: "key"}
SETTINGS = Settings(exclusive=True, retrain_vectors=True)


def documents(numbers: Sequence[int], vectors: Vectors) -> list[dict[str, object]]:
    return [{"type": "Doc", "data": {"num": n, "vec": vectors[n].tolist()}} for n in numbers]


def loaded(oracle: Engine, graph: Path, vectors: Vectors, rows: int) -> None:
    """A graph with so many vectors in one partition, as the engine leaves it. Writes."""
    oracle.init(graph, f"node Doc {{\n  num: I64 @{KEYS[oracle.stamp]}\n  vec: Vector({DIMENSION})? @index\n}}\n")
    # 0.7.2 indexes with its first load, so that it does not split what comes after; 0.9.0 takes no larger loads.
    load = rows if oracle.stamp == 3 else LOAD
    for first in range(0, rows, load):
        oracle.load(graph, documents(range(first, min(rows, first + load)), vectors))
    oracle.optimize(graph)


def delete(oracle: Engine, graph: Path, numbers: Sequence[int]) -> None:
    for number in numbers:
        oracle.run("mutate", "--store", str(graph), "-e", f"query d() {{ delete Doc where num = {number} }}", "--quiet")


def recall(oracle: Engine, graph: Path, vectors: Vectors, live: Sequence[int]) -> float:
    """Of the engine's own nearest(), against exact search among the live rows."""
    source, params, found = graph.with_suffix(".gq"), graph.with_suffix(".json"), []
    source.write_text(QUERY)
    asked = range(1, ROWS, ROWS // 20)
    for number in asked:
        params.write_text(json.dumps({"q": vectors[number].tolist()}))
        done = oracle.run(
            *("query", "near", "--store", str(graph), "--query", str(source), "--params-file", str(params), "--json")
        )
        said = json.loads(done.stdout)
        got = {next(iter(row.values())) for row in (said["rows"] if isinstance(said, dict) else said)}
        wanted = {live[n] for n in exact(vectors[list(live)], vectors[number])}
        found.append(len(got & wanted) / len(wanted))
    return sum(found) / len(found)


def looked_at(graph: Path) -> VectorHealth:
    (table,) = health(open_graph(str(graph)), recall=20).tables
    (found,) = table.vectors
    return found


@pytest.mark.parametrize("stamp", [3, 6])
def test_the_engine_reads_writes_and_folds_what_was_trained(tmp_path: Path, stamp: int) -> None:
    oracle, graph = engine(stamp), tmp_path / "g.omni"
    vectors = clustered(ROWS + 600, DIMENSION, CLUSTERS)
    loaded(oracle, graph, vectors, ROWS)
    before = looked_at(graph)
    assert before.partitions == 1
    report = optimize_all(open_graph(str(graph), SETTINGS))
    assert not report.failed, report.failed
    after = looked_at(graph)
    assert (after.partitions, after.problem) == (CLUSTERS, None)
    assert before.bytes_per_query is not None
    assert after.bytes_per_query is not None
    assert after.bytes_per_query * 10 <= before.bytes_per_query
    live = list(range(ROWS))
    assert recall(oracle, graph, vectors, live) >= 0.95
    for turn in range(3):
        gone = [turn * 10, turn * 10 + 5000, turn * 10 + 20001]
        delete(oracle, graph, gone)
        live = [n for n in live if n not in gone] + list(range(ROWS + turn * 200, ROWS + (turn + 1) * 200))
        oracle.load(graph, documents(live[-200:], vectors))
        if stamp == 6:
            moved = live[turn * 100 : turn * 100 + 50]
            vectors[moved] = np.roll(vectors[moved], 1, axis=0)
            oracle.load(graph, documents(moved, vectors), mode="merge")
        oracle.optimize(graph)
        assert looked_at(graph).partitions == CLUSTERS
        assert recall(oracle, graph, vectors, live) >= 0.95
    again = optimize_all(open_graph(str(graph), SETTINGS))
    assert not again.failed, again.failed
    assert looked_at(graph).problem is None
    assert recall(oracle, graph, vectors, live) >= 0.95


@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("trained", [False, True])
def test_what_the_engine_cannot_fold_any_more_is_folded_after_training(
    tmp_path: Path, stamp: int, *, trained: bool
) -> None:
    """Lance 7 and 9 cannot split a partition of which a row was deleted; the engine's optimize fails from then on."""
    oracle, graph, rows = engine(stamp), tmp_path / "g.omni", 5 * TARGET_ROWS
    vectors = clustered(rows + 50, DIMENSION, 5)
    loaded(oracle, graph, vectors, rows)
    delete(oracle, graph, range(0, 200, 10))
    if trained:
        report = optimize_all(open_graph(str(graph), SETTINGS))
        assert not report.failed, report.failed
    oracle.load(graph, documents(range(rows, rows + 50), vectors))
    done = oracle.run("optimize", "--json", str(graph), check=False)
    assert (done.returncode == 0) == trained, done.stderr
    if not trained:
        assert "optimize_indices on node:Doc" in done.stderr
