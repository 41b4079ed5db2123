"""Every operator in every state that a graph can be in: how the task ends, and what is on disk afterwards.

The tasks before it ran on a clean graph; then the graph came into the state; then the operator is executed. A state
that stops an operator must leave everything as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from omnigraph_airflow import decisions
from omnigraph_airflow.decisions import QuestionId

from omnigraph_ops.coordination import pace
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import SCHEMA_APPLY_LOCK
from omnigraph_ops.models.optimize import SkipReason
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.optimize import run as run_module
from omnigraph_ops.stages.optimize.run import optimize_table
from tests.conftest import DemoGraph
from tests.support.fences import killed_behind_its_fence
from tests.support.kills import AFTER, BEFORE, kill_at
from tests.support.operators import Disk, Outcome, Run, disk_of
from tests.support.sidecars import arm, move
from tests.support.stages import CHAINS, before, operator, spark_in_process, with_orphan
from tests.support.tables import PERSON
from tests.support.writers import delete_first, drift

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
KNOWS, COMPANY = "edge:Knows", "node:Company"
"""Drifted from the start, so that there is something to repair; and the table of killed runs."""
Expected = tuple[str, str, set[str]]
"""The task's state, what its sentence matches, what changes on disk."""

NOTHING: set[str] = set()
DECIDED = {"decided"}
PUBLISHED = {"version", "pins", "heads", "versions"}
WENT_ON: Expected = ("success", "", NOTHING)
PENDING = r"1 pending recovery sidecar,.*nothing was written; run `omnigraph-ops check`"
FROZEN = r"is frozen by ann \(the yearly backup\).*nothing was written"
LEFT: Expected = ("skipped", FROZEN, NOTHING)
LOCKED = "unavailable while schema apply is in progress; nothing was written"
REFUSED: dict[str, Expected] = {
    "pending": ("failed", PENDING, NOTHING),
    "frozen": ("failed", FROZEN, NOTHING),
    "fenced": ("failed", LOCKED, NOTHING),
}


def _ends(clean: Expected, **others: Expected) -> dict[str, Expected]:
    """What an operator does on a clean graph, and in the states in which it does something else."""
    states = dict.fromkeys(("clean", "pending", "drifted", "frozen", "fenced"), clean)
    return {**states, **others}


EXPECTED: dict[str, dict[str, Expected]] = {
    "wait_for_quiet_graph": _ends(WENT_ON, fenced=("waits", "timed out", NOTHING)),
    "check_recovery": _ends(
        WENT_ON,
        pending=("success", "", {"version", "pins", "sidecars", "holds"}),
        fenced=("failed", "the schema-apply lock is held", NOTHING),
    ),
    "plan_optimize": _ends(WENT_ON),
    "light_tables": _ends(WENT_ON),
    "optimize_table": _ends(
        ("success", "", PUBLISHED),
        pending=("success", "", PUBLISHED | {"sidecars", "holds"}),
        drifted=WENT_ON,
        frozen=WENT_ON,
        fenced=("failed", LOCKED, NOTHING),
    ),
    "summarize": _ends(WENT_ON),
    "submit_rewrite": _ends(
        ("success", "", PUBLISHED),
        pending=("success", "", PUBLISHED | {"sidecars", "holds"}),
        drifted=WENT_ON,
        frozen=WENT_ON,
        fenced=("failed", LOCKED, NOTHING),
    ),
    "preview_repair": _ends(WENT_ON, **{**REFUSED, "frozen": LEFT}),
    "approve_repair": _ends(("success", "", DECIDED)),
    "apply_repair": _ends(
        ("success", "", {"version", "pins", "decided"}),
        **REFUSED,
        drifted=("failed", f"{PERSON}: approved .* no_drift, now .* verified_maintenance", NOTHING),
    ),
    "plan_cleanup": _ends(WENT_ON, **{**REFUSED, "frozen": LEFT}),
    "approve_cleanup": _ends(("success", "", DECIDED)),
    "cleanup_table": _ends(
        # Lance collects an old unreferenced file of the table, too: the plan lists it.
        ("success", "", {"versions", "orphan", "decided"}),
        **{**REFUSED, "frozen": WENT_ON},
        drifted=("failed", f"{PERSON}: uncovered HEAD drift.*nothing was deleted", NOTHING),
    ),
    "plan_orphans": _ends(WENT_ON, **{**REFUSED, "frozen": LEFT}),
    "approve_orphans": _ends(("success", "", DECIDED)),
    "remove_orphans": _ends(("success", "", {"decided", "orphan"}), **REFUSED),
    "freeze": _ends(("success", "", {"holds"}), fenced=("failed", "nothing was frozen; try again", NOTHING)),
    "copy": _ends(WENT_ON),
    "verify": _ends(WENT_ON),
    "unfreeze": _ends(("success", "", {"holds"})),
}
CASES = [
    pytest.param(task_id, state, id=f"{task_id}-{state}") for task_id, states in EXPECTED.items() for state in states
]


def come_into(graph: Graph, state: str, *, frozen_by_us: bool = False) -> None:
    """Bring the graph into a state. Writes."""
    if state == "pending" and frozen_by_us:
        arm(graph, COMPANY)  # what freezes a graph keeps our own optimize away, not an engine's
    elif state == "pending":
        kill_at(graph, lambda g: optimize_table(g, COMPANY), "merge_insert", BEFORE)
    elif state == "drifted":
        move(graph, PERSON)
    elif state == "frozen":
        freeze_graph(graph, ttl_seconds=3600, reason="the yearly backup", owner="ann")
    elif state == "fenced":
        graph.manifest().create_branch(SCHEMA_APPLY_LOCK)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(run_module, "_BACKOFF_SECONDS", 0.01)
    # Nor does a window wait for a writer that was killed: as many looks, one right after the other.
    monkeypatch.setattr(pace, "_BUSY_SECONDS", (0.01,) * len(pace._BUSY_SECONDS))
    with spark_in_process():
        yield


@pytest.fixture
def run(demo_graph: DemoGraph, stamp: int) -> Run:
    """A run on a graph on which every stage has something to do."""
    graph = demo_graph(stamp=stamp, node_types=2, loads=3, rows=12, drift_tables=(KNOWS,))
    with_orphan(graph)
    return Run(graph)


def up_to(run: Run, task_id: str) -> None:
    """Execute the tasks of the stage before that one, on the clean graph. Writes."""
    for earlier in before(task_id):
        assert run.execute(operator(run, earlier)).state == "success"


def executed(run: Run, task_id: str, state: str) -> tuple[Outcome, Disk, Disk, set[str]]:
    """The outcome of a task in a state, the disk before and after, and what changed. Writes."""
    up_to(run, task_id)
    come_into(run.graph, state, frozen_by_us=task_id in CHAINS["backup"][1:])
    orphans, first = _orphans(run), disk_of(run.graph.uri)
    outcome = run.execute(operator(run, task_id))
    after = disk_of(run.graph.uri)
    changed = first.changed(after) | ({"orphan"} if _orphans(run) != orphans else set())
    return outcome, first, after, changed


def _orphans(run: Run) -> set[Path]:
    return set(Path(run.graph.uri).glob("**/data/0000*ffff.lance"))


def test_every_operator_is_here() -> None:
    """The two that a state cannot reach apart: the report is the whole night's, rows expire on plain Lance."""
    assert set(EXPECTED) == {task_id for chain in CHAINS.values() for task_id in chain}


@pytest.mark.night("combinations")
@pytest.mark.parametrize(("task_id", "state"), CASES)
def test_how_it_ends_and_what_is_on_disk(run: Run, task_id: str, state: str) -> None:
    outcome, first, after, changed = executed(run, task_id, state)
    ends, sentence, changes = EXPECTED[task_id][state]
    assert (outcome.state, changed) == (ends, changes), outcome
    assert re.search(sentence, outcome.sentence), outcome.sentence
    assert after.rows == first.rows
    if ends in {"failed", "retry"}:
        assert run.of(task_id, "failure")[0]["message"] == outcome.sentence, "the report has it"


def pairs(disk: Disk, key: str) -> tuple[int, int]:
    """Pin and HEAD of a table."""
    return disk.pins[key], disk.heads[key]


def _published_to_its_head(disk: Disk, key: str) -> bool:
    return disk.pins[key] == disk.heads[key] == max(disk.versions[key])


@pytest.mark.parametrize("task_id", ["optimize_table", "submit_rewrite"])
def test_a_table_is_optimized_after_what_a_killed_task_left(run: Run, task_id: str) -> None:
    outcome, first, after, _ = executed(run, task_id, "pending")
    assert len(first.sidecars) == 1
    assert first.pins[COMPANY] < first.heads[COMPANY]
    assert after.sidecars == frozenset()
    assert _published_to_its_head(after, COMPANY)
    assert _published_to_its_head(after, PERSON)
    (stats,) = outcome.value
    assert (stats["table_key"], stats["committed"], stats["error"]) == (PERSON, True, None)


@pytest.mark.night("combinations")
@pytest.mark.parametrize("task_id", ["optimize_table", "submit_rewrite"])
@pytest.mark.parametrize(("call", "mode"), [("write __recovery", AFTER), ("merge_insert", BEFORE)])
def test_a_retry_finishes_what_its_own_killed_try_left(run: Run, task_id: str, call: str, mode: str) -> None:
    kill_at(run.graph, lambda g: optimize_table(g, PERSON), call, mode)
    assert len(disk_of(run.graph.uri).sidecars) == 1
    assert run.execute(operator(run, task_id)).state == "success"
    after = disk_of(run.graph.uri)
    assert after.sidecars == frozenset()
    assert _published_to_its_head(after, PERSON)


@pytest.mark.parametrize(("state", "reason"), [("drifted", SkipReason.DRIFT), ("frozen", SkipReason.FROZEN)])
@pytest.mark.parametrize("task_id", ["optimize_table", "submit_rewrite"])
def test_a_table_that_is_left_alone_says_why(run: Run, task_id: str, state: str, reason: SkipReason) -> None:
    outcome, _, after, _ = executed(run, task_id, state)
    (stats,) = outcome.value
    assert (stats["skipped"], stats["committed"]) == (reason.value, False)
    assert (after.pins[PERSON] < after.heads[PERSON]) is (state == "drifted")


@pytest.mark.parametrize("state", ["clean", "drifted", "frozen"])
def test_a_plan_leaves_out_exactly_what_the_state_stops(run: Run, state: str) -> None:
    come_into(run.graph, state)
    run.execute(operator(run, "plan_optimize"))
    skipped = {t["table_key"]: t["skipped"] for t in run.of("plan_optimize")["tables"]}
    expected = {
        "clean": {KNOWS: "drift"},
        "drifted": {KNOWS: "drift", PERSON: "drift"},
        "frozen": dict.fromkeys(skipped, "frozen"),
    }
    assert {key: why for key, why in skipped.items() if why} == {
        key: {"drift": SkipReason.DRIFT, "frozen": SkipReason.FROZEN}[why].value for key, why in expected[state].items()
    }


def test_a_repair_publishes_the_head_that_was_previewed(run: Run) -> None:
    _, first, after, _ = executed(run, "apply_repair", "clean")
    assert first.pins[KNOWS] < first.heads[KNOWS]
    assert pairs(after, KNOWS) == (first.heads[KNOWS], first.heads[KNOWS])
    assert pairs(after, PERSON) == pairs(first, PERSON)


def test_a_cleanup_removes_the_planned_versions_of_its_table_alone(run: Run) -> None:
    _, first, after, _ = executed(run, "cleanup_table", "clean")
    assert len(first.versions[PERSON]) > 1
    assert after.versions == {**first.versions, PERSON: (first.pins[PERSON],)}


@pytest.mark.parametrize("state", ["drifted", "frozen"])
def test_a_frozen_or_drifted_table_is_no_reason_to_ask_again(run: Run, state: str) -> None:
    """The decision is bound to the plan that was made; what came since is the applying task's to refuse."""
    outcome, *_ = executed(run, "approve_cleanup", state)
    assert outcome.value == {"chosen_options": ["Approve"]}
    kept = decisions.read_consent(
        run.graph.storage, QuestionId(dag_id=run.dag_id, run_id="a run", task_id="approve_cleanup")
    )
    assert kept is not None
    assert kept.digest == run.of("plan_cleanup", "plan")["digest"]


def test_without_a_confirm_the_gates_ask(run: Run) -> None:
    for task_id, subject in (
        ("approve_repair", f"Repair {KNOWS}?"),
        ("approve_cleanup", "Remove .* old versions"),
        ("approve_orphans", "Delete 1 unreferenced file"),
    ):
        up_to(run, task_id)
        gate = operator(run, task_id)
        gate.confirmed = False
        outcome = run.execute(gate)
        assert outcome.state == "asks"
        assert re.match(subject, outcome.sentence)
        kept = decisions.read_consent(run.graph.storage, QuestionId(dag_id=run.dag_id, run_id="a run", task_id=task_id))
        assert kept is not None
        assert kept.decision is None


def test_what_compacting_the_internal_tables_refuses_costs_the_summary_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_OPS_EXCLUSIVE", "true")
    up_to(run, "summarize")
    come_into(run.graph, "pending")
    outcome = run.execute(operator(run, "summarize"))
    assert outcome.state == "success", outcome
    rows = {row["table_key"]: row for row in outcome.value["tables"]}
    assert rows[PERSON]["committed"]
    assert re.search(PENDING, rows["__manifest"]["error"])


def test_a_sidecar_whose_writer_may_be_alive_is_waited_for(run: Run) -> None:
    arm(run.graph, COMPANY, age_seconds=5)
    first = disk_of(run.graph.uri)
    outcome = run.execute(operator(run, "check_recovery"))
    assert outcome.state == "retry"
    assert re.match(rf"{COMPANY}: armed \d+ s ago, its writer may be at work; deferred for 900 s", outcome.sentence)
    assert first.changed(disk_of(run.graph.uri)) == set()


def test_a_sidecar_that_only_the_engine_decides_stops_for_good(run: Run) -> None:
    arm(run.graph, COMPANY, change=lambda document: document.update(writer_kind="Mutation"))
    drift(run.graph, COMPANY, delete_first(1))  # by a Lance that is none of the engine's
    first = disk_of(run.graph.uri)
    outcome = run.execute(operator(run, "check_recovery"))
    assert outcome.state == "failed"
    assert outcome.sentence.startswith("open the graph read-write once with omnigraph, for __recovery/")
    assert f"({COMPANY}): a Mutation of the engine; its outcome is decided when omnigraph opens the graph" in (
        outcome.sentence
    )
    assert first.changed(disk_of(run.graph.uri)) == set()


def test_the_waits_outlast_the_grace_period(run: Run) -> None:
    from omnigraph_airflow.operators.recovery import RETRIES

    from omnigraph_ops.config.settings import Settings

    assert Settings().recovery_grace_seconds <= RETRIES * 120
    assert operator(run, "check_recovery").retries == RETRIES


def test_the_fence_of_a_killed_run_stops_no_night(run: Run) -> None:
    killed_behind_its_fence(run.graph.uri)
    assert disk_of(run.graph.uri).locked
    assert run.execute(operator(run, "wait_for_quiet_graph")).state == "success"
    assert run.execute(operator(run, "check_recovery")).state == "success"
    assert not disk_of(run.graph.uri).locked
    run.execute(operator(run, "plan_optimize"))
    assert run.execute(operator(run, "optimize_table")).value[0]["committed"]
