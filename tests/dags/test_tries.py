"""What the report says of a task that was tried more than once."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from lance import LanceDataset
from omnigraph_airflow.operators.base import OmnigraphOperator
from omnigraph_airflow.operators.optimize import OptimizeTablesOperator
from omnigraph_airflow.operators.report import ReportOperator

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.history import RunOutcome
from tests.dags.test_ended_tasks import KILLED, Optimize
from tests.support.edges import raising, when_asked
from tests.support.runs import Instance
from tests.support.tables import PERSON

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
TASK = "optimize_table"


class Dies(OmnigraphOperator):
    """Is killed before it does anything."""

    def run_stage(self, graph: Graph, context: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def optimize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Optimize:
    """A night in which the first try of a table found a store that did not answer."""
    write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=1, loads=3, rows=3))
    optimize = Optimize(open_graph(str(tmp_path / "g")))
    with monkeypatch.context() as patch, pytest.raises(StorageError):
        when_asked(patch, LanceDataset, "shallow_clone", raising(StorageError("no answer")), times=None)
        optimize.tables(PERSON)
    optimize.run.tries[TASK] = 1
    return optimize


def told(optimize: Optimize) -> list[str]:
    """The lines of the report about tasks with more than one try."""
    context = optimize.run.context("report")
    with suppress(AirflowFailException):
        ReportOperator(task_id="report", graph=optimize.graph.uri).execute(context)
    _, _, section = context["ti"].pushed["report"]["markdown"].partition("## Tried more than once\n")
    return [line for line in section.partition("\n## ")[0].splitlines() if line]


def test_a_task_that_was_killed_at_its_second_try_has_not_the_reason_of_the_first_one(
    optimize: Optimize, tmp_path: Path
) -> None:
    assert optimize.run.run((Dies, {"task_id": TASK}), tmp_path / "n") == -signal.SIGKILL
    assert optimize.summary()[PERSON]["error"] == "the task left no result, see its log"
    found = optimize.record()
    assert found.outcome is RunOutcome.FAILED
    assert f"{TASK}: failed, see its log" in found.errors
    assert "no answer" not in str(found)
    assert told(optimize) == [f"- {TASK} {PERSON}: try 1 failed: no answer; try 2 failed"]


def test_tries_before_the_one_that_succeeded_are_in_the_report(optimize: Optimize, tmp_path: Path) -> None:
    operator = (OptimizeTablesOperator, {"task_id": TASK, "lot": [PERSON]})
    assert optimize.run.run(operator, tmp_path / "n", KILLED) == -signal.SIGKILL
    assert optimize.run.run(operator, tmp_path / "n") == 0
    assert told(optimize) == [f"- {TASK} {PERSON}: try 1 failed: no answer; try 2 was killed; try 3 succeeded"]
    optimize.run.clearings, optimize.run.started = 1, datetime.now(UTC)
    assert optimize.run.run(operator, tmp_path / "n") == 0
    assert not told(optimize)


def test_tries_that_failed_alike_but_for_a_size_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=1, loads=3, rows=3))
    optimize = Optimize(open_graph(str(tmp_path / "g")))
    for number, free in enumerate(("44.0 KiB", "0 B"), start=1):
        optimize.run.tries[TASK] = number
        with monkeypatch.context() as patch, pytest.raises(StorageError):
            full = StorageError(f"No space left on device: {free} are free")
            when_asked(patch, LanceDataset, "shallow_clone", raising(full), times=None)
            optimize.tables(PERSON)
    optimize.run.tries[TASK] = 3
    optimize.tables(PERSON)
    optimize.run.states[TASK] = "success"
    why = "failed: No space left on device: 44.0 KiB are free"
    assert told(optimize) == [f"- {TASK} {PERSON}: try 1 {why}; try 2 likewise; try 3 succeeded"]


def test_a_try_that_ended_well_and_was_cleared_is_no_failure(tmp_path: Path) -> None:
    """As where somebody clears the step that plans, while its question waits."""
    write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=1, loads=3, rows=3))
    optimize = Optimize(open_graph(str(tmp_path / "g")))
    operator = (OptimizeTablesOperator, {"task_id": TASK, "lot": [PERSON]})
    assert [optimize.run.run(operator, tmp_path / "n") for _ in range(2)] == [0, 0]
    assert told(optimize) == [f"- {TASK} {PERSON}: try 1 ended well, and was cleared or repeated; try 2 succeeded"]


def test_a_try_that_left_nothing_in_the_graph_is_in_the_report(tmp_path: Path) -> None:
    write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=1, loads=3, rows=3))
    optimize = Optimize(open_graph(str(tmp_path / "g")))
    optimize.run.tries[TASK] = 2
    assert optimize.run.run((OptimizeTablesOperator, {"task_id": TASK, "lot": [PERSON]}), tmp_path / "n") == 0
    died = "was killed, or lost its worker or the API server, before it could say why"
    assert told(optimize) == [f"- {TASK} {PERSON}: try 1 {died}; try 2 likewise; try 3 succeeded"]


def test_a_second_try_that_could_not_open_the_graph_says_so(
    optimize: Optimize, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = optimize.run.context(TASK)
    second["ti"].try_number = 2
    task = OptimizeTablesOperator(task_id=TASK, graph=f"{optimize.graph.uri}-away", lot=[PERSON])
    with pytest.raises(AirflowFailException):
        task.execute(second)

    def pull(_self: Instance, *, task_ids: str, key: str = "return_value") -> Any:
        return second["ti"].pushed.get(key) if task_ids == TASK else None

    monkeypatch.setattr(Instance, "xcom_pull", pull)
    optimize.run.states[TASK] = "failed"
    found = optimize.record()
    assert "-away" in str(found.errors)
    assert "no answer" not in str(found)
