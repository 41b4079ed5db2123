"""A schema apply by the engine right after our maintenance finds every pin at its HEAD and succeeds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph_ops.cli.main import main
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome
from omnigraph_ops.errors import RecoveryPending, TransientError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.optimize import OptimizeDecision, SkipReason
from omnigraph_ops.stages.cleanup.apply import cleanup_table
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from omnigraph_ops.stages.optimize.table_run import InProcessExecutor
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.interop.engine import EVOLVED_SCHEMA, SCHEMA, Engine, engine, people
from tests.support.edges import when_committed
from tests.support.sidecars import TABLE, arm, move
from tests.support.writers import entry_of

pytestmark = pytest.mark.interop
_APPLIES = 12


def maintain_by_optimize(root: Path) -> None:
    """The whole of a night."""
    assert not optimize_all(open_graph(str(root), Settings(exclusive=True))).failed


def maintain_by_repair(root: Path) -> None:
    """Drift of a compaction, healed."""
    graph = open_graph(str(root))
    head = move(graph)
    assert apply_repair(graph, preview_repair(graph)).manifest_version == graph.manifest().version
    entry = entry_of(graph, TABLE)
    assert (entry.version, graph.open_head(entry).version) == (head, head)


def maintain_by_recover(root: Path) -> None:
    """A crashed compaction under its sidecar, finished."""
    graph = open_graph(str(root))
    arm(graph)
    move(graph)
    assert [o.action for o in recover(graph, grace_seconds=0).outcomes] == ["rolled_forward"]


def with_mottos(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    for row in rows:
        data = row.get("data")
        if row.get("type") == "Project" and isinstance(data, dict):
            data["motto"] = f"onwards {data['code']}"
    return rows


def loaded_graph(oracle: Engine, root: Path) -> list[str]:
    """A fragmented graph and its rows."""
    oracle.init(root)
    for load in range(3):
        oracle.load(root, people(load * 10, 10))
    return oracle.export(root)


@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("maintain", [maintain_by_repair, maintain_by_recover])
def test_a_schema_apply_follows_a_publish_of_ours(tmp_path: Path, stamp: int, maintain: Callable[[Path], None]) -> None:
    oracle, root = engine(stamp), tmp_path / "g.omni"
    rows = loaded_graph(oracle, root)
    maintain(root)
    assert oracle.export(root) == rows
    oracle.apply_schema(root, EVOLVED_SCHEMA)
    assert check(open_graph(str(root))).drift == ()


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_schema_apply_follows_our_optimize_and_the_other_way_round(tmp_path: Path, stamp: int) -> None:
    oracle, root = engine(stamp), tmp_path / "g.omni"
    rows = loaded_graph(oracle, root)
    maintain_by_optimize(root)
    assert oracle.export(root) == rows
    oracle.apply_schema(root, EVOLVED_SCHEMA)
    evolved = oracle.export(root)
    (plan,) = plan_optimize(open_graph(str(root)), tables=("node:Project",)).tables
    assert "motto" in {build.column for build in plan.builds}
    maintain_by_optimize(root)
    assert oracle.export(root) == evolved
    assert_nothing_left(oracle, root)
    oracle.load(root, with_mottos(people(100, 5)))
    loaded = oracle.export(root)
    assert sum('"onwards c' in line for line in loaded) == 5
    maintain_by_optimize(root)
    assert oracle.export(root) == loaded
    assert_nothing_left(oracle, root)


def assert_nothing_left(oracle: Engine, root: Path) -> None:
    """Neither we nor the engine find anything to do."""
    assert {t.decision for t in plan_optimize(open_graph(str(root))).tables} == {OptimizeDecision.NO_OP}
    assert [key for key, table in oracle.optimize(root).items() if table["committed"]] == []


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_property_that_is_renamed_beside_an_optimize_is_another_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp: int
) -> None:
    oracle, root = engine(stamp), tmp_path / "g.omni"
    loaded_graph(oracle, root)
    renamed = SCHEMA.replace("age: I64? @index", 'years: I64? @index @rename_from("age")')
    when_committed(monkeypatch, lambda: oracle.apply_schema(root, renamed))
    (stats,) = optimize_all(open_graph(str(root)), tables=("node:Person",)).tables
    assert (stats.error, stats.preempted) == (None, 1)
    rows = oracle.export(root)
    assert all('"years"' in row for row in rows if '"Person"' in row)
    maintain_by_optimize(root)
    assert oracle.export(root) == rows
    assert_nothing_left(oracle, root)


class Renaming(InProcessExecutor):
    """Applies another schema between the execution of a rewrite and its commit."""

    def __init__(self, graph: Graph, oracle: Engine, root: Path) -> None:
        super().__init__(graph.storage)
        self.oracle, self.root = oracle, root

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        yield from super().execute(dataset, orders)
        renamed = SCHEMA.replace("Person", "Human").replace("node Human {", 'node Human @rename_from("Person") {')
        self.oracle.apply_schema(self.root, renamed)


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_type_that_is_renamed_beside_a_run_fails_nothing(tmp_path: Path, stamp: int) -> None:
    oracle, root = engine(stamp), tmp_path / "g.omni"
    rows = loaded_graph(oracle, root)
    graph = open_graph(str(root), Settings(small_table_bytes=0))
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    (stats,) = optimize_all(graph, tables=(TABLE,), executor=Renaming(graph, oracle, root)).tables
    assert (stats.skipped, stats.error) == (SkipReason.GONE, None)
    cleaned = cleanup_table(open_graph(str(root)), plan, TABLE)
    assert "was dropped, renamed or replaced since the plan" in str(cleaned.kept)
    assert sorted(row.replace("Human", "Person") for row in oracle.export(root)) == rows
    assert not optimize_all(open_graph(str(root))).failed


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_schema_apply_at_work_is_never_called_damage(tmp_path: Path, stamp: int) -> None:
    """Whoever looks meanwhile finds nothing, or something that is in progress."""
    oracle, root, source = engine(stamp), tmp_path / "g.omni", tmp_path / "schema.pg"
    rows, kinds = loaded_graph(oracle, root), [f"Added{number}" for number in range(_APPLIES)]

    def apply_all() -> None:
        for number in range(_APPLIES):
            added = "".join(f"\nnode {kind} {{\n    k: String @key\n}}\n" for kind in kinds[: number + 1])
            source.write_text(SCHEMA + added)
            oracle.run("schema", "apply", "--schema", str(source), "--store", str(root))

    with ThreadPoolExecutor() as pool:
        applies = pool.submit(apply_all)
        while not applies.done():
            assert check(open_graph(str(root))).schema_mismatch == ()
            with contextlib.suppress(TransientError, RecoveryPending):
                plan_optimize(open_graph(str(root)))
        applies.result()
    graph = open_graph(str(root))
    assert check(graph).status is CheckStatus.CLEAN
    assert {f"node:{kind}" for kind in kinds} <= {entry.table_key for entry in graph.state().entries}
    assert not optimize_all(graph).failed
    assert oracle.export(root) == rows


def test_a_schema_apply_that_died_while_it_staged_is_undone(tmp_path: Path) -> None:
    """The next open of 0.7.2 would put in place what is staged, and no later one would succeed."""
    oracle, root = engine(3), tmp_path / "g.omni"
    rows = loaded_graph(oracle, root)
    stands_in_the_way = root / "_schema.ir.json.staging"
    stands_in_the_way.mkdir()
    with pytest.raises(AssertionError, match="exit 1"):
        oracle.apply_schema(root, EVOLVED_SCHEMA)
    stands_in_the_way.rmdir()
    assert any("do not open the graph with omnigraph now" in said for said in check(open_graph(str(root))).advice)
    assert main(["unlock", str(root), "--confirm", "--force", "--yes"]) == 0
    oracle.run("repair", str(root))
    assert check(open_graph(str(root))).status is CheckStatus.CLEAN
    assert oracle.export(root) == rows
    oracle.apply_schema(root, EVOLVED_SCHEMA)
