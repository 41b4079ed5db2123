"""Whatever ends a task of a DAG, and whenever: what its run's history and audit log say is what became of the graph."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.repair import EvidenceTier
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.outcomes.audit_log import ENDS, AuditEvent
from omnigraph_ops.outcomes.task_journals import read_tasks
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.stages.repair.run import preview_repair
from tests.crash.harness_state import QUICK
from tests.support.killed_runs import Kill
from tests.support.killed_tasks import DAG, RUN, DagRun
from tests.support.orphans import age, plant
from tests.support.record_truth import COMPARED, Seen
from tests.support.rows import rows_everywhere

pytestmark = [pytest.mark.crash, pytest.mark.airflow]
KILLS = int(os.environ.get("OMNIGRAPH_RECORD_KILLS", "8"))
"""Over all stages and both stamps."""
PERSON = "node:Person"
SPEC = DemoSpec(node_types=1, loads=3, rows=12, deletes=2, updates=3)
_KINDS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_MOST_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A stage of a DAG, and a graph on which it has something to do."""

    operator: Callable[[Graph, DagRun], tuple[type, dict[str, Any]]]
    drifted: tuple[str, ...] = ()
    leftovers: bool = False


def _optimize(graph: Graph, run: DagRun) -> tuple[type, dict[str, Any]]:
    from omnigraph_airflow.operators.optimize import OptimizeTablesOperator

    run.states["plan_optimize"] = "success"
    return OptimizeTablesOperator, {"task_id": "optimize_table", "lot": [e.table_key for e in graph.state().entries]}


def _cleanup(graph: Graph, run: DagRun) -> tuple[type, dict[str, Any]]:
    from omnigraph_airflow.operators.stages import ApplyPartsOperator

    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    lot = [table.table_key for table in plan.tables if table.versions]
    return ApplyPartsOperator, {"task_id": "cleanup_table", "lot": lot, **_approved(graph, run, "cleanup", plan)}


def _orphans(graph: Graph, run: DagRun) -> tuple[type, dict[str, Any]]:
    from omnigraph_airflow.operators.stages import ApplyStageOperator

    plan = plan_orphans(graph, older_than_seconds=7 * 86_400)
    return ApplyStageOperator, {"task_id": "remove_orphans", **_approved(graph, run, "orphans", plan)}


def _repair(graph: Graph, run: DagRun) -> tuple[type, dict[str, Any]]:
    from omnigraph_airflow.operators.stages import ApplyStageOperator

    preview = preview_repair(graph, evidence=EvidenceTier.COUNTS)
    return ApplyStageOperator, {"task_id": "apply_repair", **_approved(graph, run, "repair", preview)}


def _approved(graph: Graph, run: DagRun, name: str, plan: Any) -> dict[str, Any]:
    tasks = planned(name).tasks
    return {"stage": name, "plan": run.approve(graph, tasks, plan), "approval": tasks.approve}


CASES = {
    "optimize": Case(operator=_optimize),
    "cleanup": Case(operator=_cleanup),
    "orphans": Case(operator=_orphans, leftovers=True),
    "repair": Case(operator=_repair, drifted=(PERSON, "edge:Knows")),
}


@pytest.mark.night("combinations")
@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("name", CASES)
def test_the_record_of_a_run_agrees_with_the_graph_whatever_killed_its_tasks(
    tmp_path: Path, name: str, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, value in (("RECOVERY_GRACE_SECONDS", "0"), ("LEASE_TTL_SECONDS", "30")):
        monkeypatch.setenv(f"OMNIGRAPH_OPS_{setting}", value)
    root, pristine, case = tmp_path / "graph", tmp_path / "pristine", CASES[name]
    write_demo_graph(str(root), replace(SPEC, stamp=stamp, drift_tables=case.drifted))
    if case.leftovers:
        plant(open_graph(str(root), QUICK))
        age(root)
    shutil.copytree(root, pristine)
    before, rows = Seen.of(open_graph(str(root), QUICK)), rows_everywhere(open_graph(str(root), QUICK))
    chance = random.Random(f"{name} {stamp} {KILLS}")
    moments, problems = _night(root, tmp_path / "moments", case, ())
    assert moments > 2
    problems += judge(root, before, name, killed=())
    for _ in range(-(-KILLS // (2 * len(CASES)))):
        shutil.rmtree(root)
        shutil.copytree(pristine, root)
        kills = tuple(_some_kill(chance, moments) for _ in range(chance.randint(1, 2)))
        _, failed = _night(root, tmp_path / "moments", case, kills, retries=chance.randint(0, _MOST_TRIES - 1))
        problems += [f"{kills}: {problem}" for problem in (*failed, *judge(root, before, name, killed=kills))]
        assert rows_everywhere(open_graph(str(root), QUICK)) == rows
    assert not problems, "\n".join(problems)


def _some_kill(chance: random.Random, moments: int) -> Kill:
    delay = chance.choice((0.0, 0.0, chance.uniform(0.0, 0.05)))
    return Kill(moment=chance.randrange(moments), signals=(chance.choice(_KINDS),), delay=delay)


def _night(root: Path, scratch: Path, case: Case, kills: tuple[Kill, ...], retries: int = 0) -> tuple[int, list[str]]:
    """Run the task, as often as Airflow would repeat it, then the report; moments of effects, and what went wrong."""
    run = DagRun(root=root)
    operator = case.operator(open_graph(str(root), QUICK), run)
    codes: list[int] = []
    while len(codes) <= retries and (not codes or codes[-1] != 0):
        kill = kills[len(codes)] if len(codes) < len(kills) else None
        codes.append(run.run(operator, scratch, kill))
    run.report()
    moments = int(scratch.read_text()) if codes == [0] else 0
    unkilled = [code for code, kill in zip(codes[len(kills) :], codes[len(kills) :], strict=True) if code != 0]
    return moments, [f"an attempt that nobody killed ended with {code}" for code in unkilled]


def judge(root: Path, before: Seen, name: str, *, killed: tuple[Kill, ...]) -> list[str]:
    """Compare the record with the graph; what disagrees, in words. Reads."""
    graph = open_graph(str(root), QUICK)
    after = Seen.of(graph)
    run = history.read_run(graph, f"{DAG}/{RUN}")
    if run is None:
        return ["there is no record"]
    problems = [problem for problem in COMPARED[name](run, before, after) if problem]
    problems += ["a task's journal is open"] if read_tasks(graph.storage, run.run_id).open else []
    return problems + _audit(graph, name, changed=before != after)


def _audit(graph: Graph, name: str, *, changed: bool) -> list[str]:
    """Every attempt that began has one entry of its start and then one of its end. Reads."""
    wanted = {AuditEvent.STARTED, *ENDS}
    entries = [e for e in audit_log.log_of(graph.storage, "").entries if e.event in wanted]
    by_task = Counter((entry.task, entry.event in ENDS) for entry in entries)
    problems = [f"{task}: {n} entries" for (task, _), n in by_task.items() if n != 1]
    starts, ends = ({task for task, end in by_task if end is which} for which in (False, True))
    problems += [f"the audit log has starts of {starts} and ends of {ends}"] if starts != ends else []
    return [*problems, "nothing is in the audit log"] if changed and name != "optimize" and not starts else problems
