"""Answers never change: the engine's own `query` before and after every stage of this tool that writes."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.optimize import OptimizeReport, TableStats
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.crash.harness_state import QUICK, expire_lease
from tests.interop.engine import Engine, engine
from tests.support.kills import BEFORE, kill_at
from tests.support.spark_session import local_spark, submit_in
from tests.support.texts import vocabulary
from tests.support.writers import drift

pytestmark = pytest.mark.interop
WORDS = vocabulary(2_000)
QUERIES, NEIGHBOURS, DIMENSION = 40, 10, 4
"""Text queries per look: words that resemble each other never share one."""
SAMPLE = range(0, len(WORDS), 97)
QUERY_FILE = """\
query text($q: String) { match { $p: Person search($p.bio, $q) } return { $p.name } }
query key($q: String) { match { $p: Person { name: $q } } return { $p.name, $p.bio, $p.age } }
query near($q: String) { match { $p: Person { name: $q } $p likes $f } return { $f.name } }
query far($q: String) { match { $p: Person { name: $q } $p likes $f $f likes $g } return { $g.name } }
query vector($q: Vector(4)) { match { $c: Project } return { $c.code } order { nearest($c.face, $q) } limit 10 }
"""
Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the engine says at one moment."""

    found: dict[str, frozenset[str]]
    """Names that a text query finds; the engine's error begins with `error:`."""
    rows: dict[tuple[str, str], tuple[str, ...]]
    """Rows of look-ups and traversals, sorted."""
    recall: float
    """Of the ten nearest vectors, on the average, against exact search."""


def vectors() -> dict[str, Vector]:
    """A vector per project, without ties."""
    draw = random.Random(3)
    return {f"c{n}": tuple(round(draw.random(), 6) for _ in range(DIMENSION)) for n in range(len(WORDS))}


VECTORS = vectors()


def loaded(numbers: range) -> list[dict[str, object]]:
    """A person with one word and a project for each number; everybody likes the two before."""
    rows: list[dict[str, object]] = []
    for n in numbers:
        rows.append({"type": "Person", "data": {"name": f"p{n}", "age": n, "bio": WORDS[n]}})
        rows.append({"type": "Project", "data": {"code": f"c{n}", "face": list(VECTORS[f"c{n}"])}})
    for n in numbers:
        rows += [{"edge": "Likes", "from": f"p{n}", "to": f"p{m}"} for m in (n - 1, n - 2) if m >= numbers.start]
    return rows


def history(oracle: Engine, graph: Path) -> None:
    """Half of the words are indexed; then loads, merges and deletes that no index covers. Writes."""
    oracle.init(graph)
    half = len(WORDS) // 2
    oracle.load(graph, loaded(range(half)))
    oracle.optimize(graph)
    for start in range(half, len(WORDS), 250):
        oracle.load(graph, loaded(range(start, start + 250)))
    moved = [{"type": "Person", "data": {"name": f"p{n}", "age": n, "bio": f"{WORDS[n]} moved"}} for n in SAMPLE]
    oracle.load(graph, moved, mode="merge")
    for n in (7, half + 7):
        oracle.delete_person(graph, f"p{n}")
        # 0.7.2 leaves deletes that matched nothing unpublished, and refuses the next one of that table.
        opened = open_graph(str(graph))
        apply_repair(opened, preview_repair(opened), force=True)


def asked(oracle: Engine, graph: Path, name: str, value: object) -> list[list[object]]:
    """The rows of one query, as lists of cells; one row `error: ...` where the engine fails."""
    source, params = graph.with_suffix(".gq"), graph.with_suffix(f".{name}.{abs(hash(str(value)))}.json")
    params.write_text(json.dumps({"q": value}))
    done = oracle.run(
        *("query", name, "--store", str(graph), "--query", str(source), "--params-file", str(params), "--json"),
        check=False,
    )
    params.unlink()
    if done.returncode != 0:
        return [[f"error: {done.stderr.strip() or done.stdout.strip()}"]]
    said = json.loads(done.stdout)
    rows = said["rows"] if isinstance(said, dict) else said
    return [list(row.values()) for row in rows]


def look(oracle: Engine, graph: Path) -> Answers:
    """Every kind of query. Reads."""
    graph.with_suffix(".gq").write_text(QUERY_FILE)
    ask = partial(asked, oracle, graph)
    texts = [" ".join(WORDS[n::QUERIES]) for n in range(QUERIES)]
    points = [(kind, f"p{n}") for kind in ("key", "near", "far") for n in SAMPLE]
    wanted = [VECTORS[f"c{n}"] for n in SAMPLE]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda text: frozenset(str(row[0]) for row in ask("text", text)), texts)
        rows = pool.map(lambda point: tuple(sorted(map(str, ask(*point)))), points)
        near = pool.map(lambda vector: [str(row[0]) for row in ask("vector", list(vector))], wanted)
        return Answers(
            found=dict(zip(texts, found, strict=True)),
            rows=dict(zip(points, rows, strict=True)),
            recall=sum(_recall(v, got) for v, got in zip(wanted, near, strict=True)) / len(wanted),
        )


def _recall(vector: Vector, got: list[str]) -> float:
    def distance(code: str) -> float:
        return sum((a - b) ** 2 for a, b in zip(vector, VECTORS[code], strict=True))

    exact = set(sorted(VECTORS, key=distance)[:NEIGHBOURS])
    return len(exact.intersection(got)) / NEIGHBOURS


def assert_kept(before: Answers, after: Answers, stage: str) -> None:
    for text, names in before.found.items():
        if not _failed(names):
            assert names - after.found[text] == frozenset(), f"{stage}: words are lost"
    assert after.rows == before.rows, stage
    assert after.recall >= before.recall, stage


def _failed(names: frozenset[str]) -> bool:
    return any(name.startswith("error:") for name in names)


def _optimize(settings: Settings, graph: Path) -> None:
    report = optimize_all(open_graph(str(graph), settings))
    assert not report.failed, report.failed


def in_tasks(graph: Path, **conf: str) -> tuple[TableStats, ...]:
    """By the Spark application: rewrites and indexes in Python workers."""
    keys = [table.table_key for table in plan_optimize(open_graph(str(graph))).productive()]
    words = [word for key in keys for word in ("--table", key)]
    with pytest.MonkeyPatch.context() as patch, local_spark(**conf) as spark:
        patch.setenv("OMNIGRAPH_OPS_SMALL_TABLE_BYTES", "0")
        patch.setenv("OMNIGRAPH_OPS_EXCLUSIVE", "1")
        report = submit_in(spark)("rewrite", ("--graph", str(graph), *words), OptimizeReport, lambda: None)
    assert [row.error for row in report.tables] == [None] * len(keys)
    return report.tables


def _in_tasks(graph: Path) -> None:
    assert max(len(row.indexes_folded) for row in in_tasks(graph)) > 1


def _repair(graph: Path) -> None:
    opened = open_graph(str(graph))
    drift(opened, "node:Person", lambda dataset: dataset.optimize.compact_files(target_rows_per_fragment=3))
    assert not apply_repair(opened, preview_repair(opened), force=True).refused


def _recover(graph: Path) -> None:
    opened = open_graph(str(graph), QUICK)
    kill_at(opened, _all, "merge_insert", BEFORE)
    expire_lease(opened)
    recover(opened, grace_seconds=0)


def _all(opened: Graph) -> object:
    return optimize_all(opened)


def _cleanup(graph: Path) -> None:
    opened = open_graph(str(graph))
    assert not cleanup_all(opened, plan_cleanup(opened, RetentionPolicy(keep_versions=1))).failed


def _orphans(graph: Path) -> None:
    opened = open_graph(str(graph))
    apply_orphans(opened, plan_orphans(opened, older_than_seconds=7 * 86_400))


STAGES: dict[str, Callable[[Path], None]] = {
    "recover": _recover,
    "optimize": partial(_optimize, Settings(exclusive=True)),
    "repair": _repair,
    "optimize, journalled": partial(_optimize, Settings(exclusive=True, small_table_bytes=0)),
    "optimize, in tasks and journalled": _in_tasks,
    "cleanup": _cleanup,
    "orphans": _orphans,
}


@pytest.mark.parametrize("stamp", [3, 6])
def test_answers_never_change(tmp_path: Path, stamp: int) -> None:
    oracle, graph = engine(stamp), tmp_path / "g.omni"
    history(oracle, graph)
    last = look(oracle, graph)
    assert len(frozenset(itertools.chain(*last.found.values()))) > len(WORDS) * 0.8
    for number, (stage, run) in enumerate(STAGES.items()):
        if stage.endswith("journalled"):
            first = len(WORDS) + number
            oracle.load(graph, [{"type": "Person", "data": {"name": f"x{first}", "bio": "quite elsewhere"}}])
            last = look(oracle, graph)
        run(graph)
        now = look(oracle, graph)
        assert_kept(last, now, stage)
        if stage.startswith("optimize"):
            assert not any(map(_failed, now.found.values())), "a folded index answers without errors"
            left = [key for key, table in oracle.optimize(graph).items() if table["committed"]]
            # The job is about tables alone, and leaves the internal ones.
            assert not [key for key in left if ":" in key or run is not _in_tasks]
        last = now
