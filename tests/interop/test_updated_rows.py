"""Rows that were updated are found by their key, and by what they say now, whoever optimized the graph before."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.optimize import RewritePolicy
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.interop.engine import Engine, engine, people
from tests.support.writers import entry_of

pytestmark = pytest.mark.interop


def changed(subject: Engine, graph: Path, *numbers: int, bio: str) -> None:
    rows = [row for n in numbers for row in people(n, 1, bio=bio)]
    subject.load(graph, rows, mode="merge")


def persons(subject: Engine, graph: Path) -> list[dict[str, object]]:
    rows = [json.loads(row) for row in subject.export(graph)]
    return [row["data"] for row in rows if row.get("type") == "Person"]


def optimized(graph: Path) -> None:
    assert not optimize_all(open_graph(str(graph), Settings())).failed


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_merge_by_key_finds_updated_rows_after_a_compaction(stamp: int, tmp_path: Path) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    subject.init(graph)
    subject.load(graph, people(0, 15))
    changed(subject, graph, 20, bio="one")
    changed(subject, graph, 21, bio="another")
    changed(subject, graph, 3, 5, 9, 22, bio="near")
    optimized(graph)
    subject.load(graph, people(30, 2))
    before = persons(subject, graph)
    changed(subject, graph, 9, 20, 21, 22, bio="again")
    after = persons(subject, graph)
    assert len(after) == len(before)
    assert {row["name"] for row in after if row not in before} == {"p9", "p20", "p21", "p22"}


@pytest.mark.parametrize("runs", [1, 2])
def test_what_an_optimize_of_the_engine_left_is_put_right(tmp_path: Path, runs: int) -> None:
    """0.7.2 folds its indexes wrong when few rows were updated: from then on it refuses every load by key."""
    subject, graph = engine(3), tmp_path / "g.omni"
    subject.init(graph)
    subject.load(graph, people(0, 80))
    subject.optimize(graph)
    changed(subject, graph, 3, 5, 9, bio="near")
    for _ in range(runs):
        subject.optimize(graph)
    load = ("load", "--data", str(graph.with_suffix(".jsonl")), "--mode", "merge", "--quiet", str(graph))
    assert "non-sorted input" in subject.run(*load, check=False).stderr
    assert found(subject, graph, "likes") > {f"p{n}" for n in range(80)} - {"p3", "p5", "p9"}
    before = persons(subject, graph)
    optimized(graph)
    assert persons(subject, graph) == before
    assert found(subject, graph, "likes") == {f"p{n}" for n in range(80)} - {"p3", "p5", "p9"}
    changed(subject, graph, 5, 60, bio="again")
    assert {row["name"] for row in persons(subject, graph) if row not in before} == {"p5", "p60"}


DOC = "node Doc {\n    key: String @key\n    n: I64? @index\n    body: String? @index\n}\n"


@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("order", ["OE", "EOE", "OEOE"])
@pytest.mark.parametrize("seed", [0, 3])
def test_every_row_is_found_whoever_optimizes_last(tmp_path: Path, stamp: int, order: str, seed: int) -> None:
    """O is this tool's optimize and E the engine's, each after a load that updates three rows and brings two."""
    subject, graph, draw, said = engine(stamp), tmp_path / "g.omni", random.Random(seed), dict[str, int]()

    def load(keys: list[str]) -> None:
        said.update({key: len(said) + 1000 * step + n for n, key in enumerate(keys)})
        rows = [{"key": key, "n": said[key], "body": f"w{said[key]}"} for key in keys]
        subject.load(graph, [{"type": "Doc", "data": row} for row in rows], mode="merge")

    def documents() -> list[dict[str, object]]:
        return [json.loads(row)["data"] for row in subject.export(graph)]

    step = 0
    subject.init(graph, DOC)
    load([f"k{n}" for n in range(12)])
    for step, optimizer in enumerate(order, start=1):
        load([*draw.sample(sorted(said), 3), f"new{step}", f"new{step}b"])
        if optimizer == "O":
            optimized(graph)
        else:
            subject.optimize(graph)
    for key, n in said.items():
        for where, kind, value in (("{ n: $v }", "I64", n), ("search($d.body, $v)", "String", f"w{n}")):
            query = f"query q($v: {kind}) {{ match {{ $d: Doc {where} }} return {{ $d.key }} }}"
            answer = subject.run(
                "query", "q", "--store", str(graph), "-e", query, "--params", json.dumps({"v": value}), "--json"
            )
            assert [row["d.key"] for row in json.loads(answer.stdout)["rows"]] == [key], (query, value)
    step += 1
    load(sorted(said))
    assert sorted(str(row["key"]) for row in documents()) == sorted(said), "no key is there twice"


def test_two_fragments_of_ours_can_be_merged_by_the_engine(tmp_path: Path) -> None:
    """What is left of rows that were updated twice has gaps where the other fragment has rows."""
    subject, graph = engine(3), tmp_path / "g.omni"
    tiers = Settings(policy=RewritePolicy.TIERED, cutoff=2)

    def load(*numbers: int) -> None:
        rows = [{"key": f"k{n}", "n": n % 40, "body": "alpha"} for n in numbers]
        subject.load(graph, [{"type": "Doc", "data": row} for row in rows], mode="merge")

    def mutate(statement: str) -> None:
        subject.run("mutate", "--store", str(graph), "-e", f"query q() {{ {statement} }}", "--quiet")

    def optimized_in_tiers() -> None:
        assert not optimize_all(open_graph(str(graph), tiers)).failed

    def updated_twice() -> None:
        mutate('update Doc set { body: "omega" } where n = 17')
        mutate('update Doc set { body: "omega" } where key = "k200"')

    subject.init(graph, DOC)
    load(*range(1_500))
    mutate("delete Doc where n = 7")
    mutate('update Doc set { body: "beta" } where n = 9')
    mutate('update Doc set { body: "beta" } where key = "k100"')
    optimized(graph)
    mutate("delete Doc where n = 8")
    mutate('update Doc set { body: "delta" } where n = 13')
    load(*range(1_500, 1_540))
    optimized_in_tiers()
    load(*range(1_540, 1_580))
    updated_twice()
    optimized_in_tiers()
    updated_twice()
    assert len(open_graph(str(graph)).open_head(entry_of(open_graph(str(graph)), "node:Doc")).get_fragments()) > 2
    subject.optimize(graph)
    documents = [json.loads(row)["data"] for row in subject.export(graph)]
    query = 'query q() { match { $d: Doc search($d.body, "alpha") } return { $d.key } }'
    hits = json.loads(subject.run("query", "q", "--store", str(graph), "-e", query, "--json").stdout)["rows"]
    assert {row["d.key"] for row in hits} == {row["key"] for row in documents if row["body"] == "alpha"}
    load(*(int(row["key"][1:]) for row in documents[:400]))
    assert len(subject.export(graph)) == len(documents), "no key is there twice"


def found(subject: Engine, graph: Path, word: str) -> set[str]:
    query = f'query q() {{ match {{ $p: Person search($p.bio, "{word}") }} return {{ $p.name }} }}'
    done = subject.run("query", "q", "--store", str(graph), "-e", query, "--json")
    return {row["p.name"] for row in json.loads(done.stdout)["rows"]}


@pytest.mark.parametrize("stamp", [3, 6])
def test_rows_are_not_nearest_by_vectors_that_they_had(tmp_path: Path, stamp: int) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    subject.init(graph, "node Doc {\n  num: String @key\n  vec: Vector(4)? @index\n}\n")
    subject.load(graph, [document(n, n / 100) for n in range(300)])
    subject.optimize(graph)
    subject.load(graph, [document(n, 9 + n / 100) for n in range(6)], mode="merge")
    subject.optimize(graph)
    assert nearest(subject, graph, 0) == ["0", "1", "2", "3", "4"], "the engine's own optimize finds what they had"
    optimized(graph)
    assert nearest(subject, graph, 0) == ["6", "7", "8", "9", "10"]
    assert nearest(subject, graph, 9) == ["0", "1", "2", "3", "4"]


def document(number: int, at: float) -> dict[str, object]:
    return {"type": "Doc", "data": {"num": str(number), "vec": [at, 0, 0, 0]}}


def nearest(subject: Engine, graph: Path, at: float) -> list[str]:
    query = "query q($v: Vector(4)) { match { $d: Doc } return { $d.num } order { nearest($d.vec, $v) } limit 5 }"
    words = ("--store", str(graph), "-e", query, "--params", json.dumps({"v": [at, 0, 0, 0]}), "--json")
    return [row["d.num"] for row in json.loads(subject.run("query", "q", *words).stdout)["rows"]]
