"""The DAG that backs a graph up: nothing stays frozen, whatever fails."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.holds import freezes
from omnigraph_ops.coordination.state import PROBE_PREFIX
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import CorruptGraph, InvalidInput, StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.backup import CopyDone
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.outcomes.backups import list_backups
from omnigraph_ops.outcomes.history import read_runs
from omnigraph_ops.stages.backup import take
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.freeze import take as taking
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.storage.store import Storage
from tests.support.edges import when_asked
from tests.support.freezes import freeze_tags
from tests.support.rows import rows_everywhere
from tests.support.runs import Finished, Instance, context_of

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    spec = DemoSpec(node_types=1, loads=2, rows=20, written_branches=1)
    write_demo_graph(str(tmp_path / "graph"), spec)
    return open_graph(str(tmp_path / "graph"))


def run(dags: Any, graph: Graph, **params: Any) -> Finished:
    return Finished(dags["omnigraph_backup"].test(run_conf={"graph": graph.uri, **params}))


def test_it_freezes_copies_verifies_and_unfreezes(dags: Any, graph: Graph, tmp_path: Path) -> None:
    done = run(dags, graph, destination=str(tmp_path / "backups"))
    assert done.state == "success"
    made = done.xcom("copy")
    assert done.xcom("freeze") == made["freeze_id"]
    assert done.xcom("verify")["problems"] == []
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())
    assert done.report["outcome"] == "succeeded"
    assert "read again and sound" in done.report["markdown"]
    (kept,) = read_runs(graph)
    assert (kept.header.verb, kept.outcome) == ("backup", RunOutcome.SUCCEEDED)
    assert kept.notes[0].startswith(f"backup {made['backup_id']}: ")
    again = run(dags, graph, destination=str(tmp_path / "backups"), max_bytes_per_second="900000000")
    assert again.xcom("copy")["incremental_from"] == made["backup_id"]
    assert again.xcom("copy")["linked"]["files"] > 0
    assert [b.sound for b in list_backups(str(tmp_path / "backups")).backups] == [True, True]
    assert not restore_backup(made["backup"], str(tmp_path / "restored"), settings=Settings()).problems
    assert rows_everywhere(open_graph(str(tmp_path / "restored"))) == rows_everywhere(graph)


def test_by_a_wrong_clock_nothing_is_frozen_and_the_run_fails_at_once(
    dags: Any, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def an_hour_back() -> None:
        for probe in Path(graph.uri).glob(f"{PROBE_PREFIX}*"):
            os.utime(probe, (time.time() - 3600,) * 2)

    when_asked(monkeypatch, Storage, "write", an_hour_back, about=f"^{PROBE_PREFIX}", times=None, after=True)
    done = run(dags, graph, destination=str(tmp_path / "backups"))
    assert done.of("freeze") == ["failed"]
    assert done.report["outcome"] == "failed"
    assert "so no age can be told; nothing was frozen; set the clock that is wrong" in done.report["markdown"]
    assert not list(tmp_path.glob("backups/*"))
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())


@pytest.mark.night
@pytest.mark.spark
def test_from_the_threshold_on_the_files_are_copied_by_spark(
    dags: Any, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_COPY_THRESHOLD_BYTES", "1")
    done = run(dags, graph, destination=str(tmp_path / "backups"))
    made = done.xcom("copy")
    assert (done.state, made["copied"]) == ("success", made["total"])
    assert done.xcom("verify")["problems"] == []
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())
    # Only a submit leaves the folder of its outcomes.
    assert (Path(graph.uri) / "__maintenance" / "results").exists()
    assert not list((Path(graph.uri) / "__maintenance" / "results").rglob("*.json"))


@pytest.mark.parametrize(
    ("left", "state"), [("the store is away", "up_for_retry"), ("x.lance of the cut is gone", "failed")]
)
def test_a_failed_submit_is_repeated_unless_the_job_calls_it_final(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, state: str
) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk.exceptions import AirflowException, AirflowFailException
    from omnigraph_airflow.operators.backup import SubmitBackupOperator

    monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_COPY_THRESHOLD_BYTES", "1")
    result = "__maintenance/results/run/copy.0.1.json"

    def submit(_operator: Any, _context: Any) -> None:
        outcome: SubmitOutcome[CopyDone] = SubmitOutcome(error=left, retryable=state == "up_for_retry")
        graph.storage.write(result, serde.dumps(outcome).encode())
        raise AirflowException("Error code is: 1.")

    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    operator = SubmitBackupOperator(
        task_id="copy", graph=graph.uri, result=result, request={"destination": str(tmp_path / "backups")}
    )
    with pytest.raises((AirflowException, StorageError), match=left) as caught:
        operator.execute(context_of(Instance("copy")))
    assert isinstance(caught.value, AirflowFailException) is (state == "failed")
    assert freezes(graph.storage) == ()
    assert not Path(graph.uri, result).exists()


def test_a_copy_that_fails_leaves_nothing_frozen(
    dags: Any, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise CorruptGraph("a file of the cut is gone")

    monkeypatch.setattr(take, "backup_graph", gone)
    done = run(dags, graph, destination=str(tmp_path / "backups"))
    assert (done.of("copy"), done.of("verify"), done.of("unfreeze")) == (["failed"], ["upstream_failed"], ["success"])
    assert done.state == "failed"
    assert any("a file of the cut is gone" in line for line in done.report["failed"])
    assert [r.outcome for r in read_runs(graph)] == [RunOutcome.FAILED]
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({}, "no destination named"),
        ({"destination": "  "}, "no destination named"),
        ({"destination": "{graph}/inside"}, "is inside the graph"),
        ({"destination": "backups"}, "the destination 'backups' is relative to a folder of the worker"),
        pytest.param({"destination": "s3://nobody-made-this/x"}, "its bucket does not exist", marks=pytest.mark.s3),
        ({"destination": "{graph}-backups", "max_bytes_per_second": "0B"}, "max_bytes_per_second: '0B' is not"),
    ],
)
def test_for_a_backup_that_cannot_be_made_nothing_is_frozen(
    dags: Any, graph: Graph, params: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_freeze(*_: Any, **__: Any) -> None:
        raise AssertionError("the graph was frozen")

    monkeypatch.setattr(taking, "freeze_graph", no_freeze)
    done = run(dags, graph, **{name: value.format(graph=graph.uri) for name, value in params.items()})
    assert (done.state, done.of("freeze"), done.of("copy")) == ("failed", ["failed"], ["upstream_failed"])
    assert any(why in line for line in done.report["failed"]), done.report["failed"]
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())


@pytest.mark.parametrize("at", ["FreezeOperator", "SubmitBackupOperator", "SubmitVerifyOperator"])
def test_a_run_that_is_marked_failed_ends_red_and_leaves_nothing_frozen(
    dags: Any, api: Any, graph: Graph, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from omnigraph_airflow.operators import backup

    operator, dag = getattr(backup, at), dags["omnigraph_backup"]
    whole = operator.run_stage

    def marked(self: Any, graph: Graph, context: Any) -> Any:
        """As a person does it while the task is at work, which a scheduler then ends; a freeze comes to its end."""
        done = whole(self, graph, context) if at == "FreezeOperator" else None
        path = f"/api/v2/dags/omnigraph_backup/dagRuns/{quote(context['run_id'], safe='')}"
        api.patch(path, json={"state": "failed"}).raise_for_status()
        if done is None:
            raise AirflowFailException("ended from outside")
        return done

    monkeypatch.setattr(operator, "run_stage", marked)
    done = Finished(dag.test(run_conf={"graph": graph.uri, "destination": f"{graph.uri}-backups"}))
    assert (done.state, done.of("report")) == ("failed", ["failed"]), done.tasks
    assert done.report["outcome"] == "failed"
    assert [r.outcome for r in read_runs(graph)] == [RunOutcome.FAILED]
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())


def test_a_retry_ends_the_freeze_of_the_attempt_that_was_killed(graph: Graph, tmp_path: Path) -> None:
    from omnigraph_airflow.operators.backup import FreezeOperator

    def attempt(run_id: str, backup: dict[str, str] | None = None) -> str:
        context: Any = {"ti": SimpleNamespace(dag_id="nightly"), "run_id": run_id}
        operator = FreezeOperator(task_id="freeze", request={"reason": "backup"}, backup=backup)
        return str(operator.run_stage(graph, context))

    other, killed, retried = attempt("another run"), attempt("this run"), attempt("this run")
    assert len({other, killed, retried}) == 3
    assert [h.hold_id for h in freezes(graph.storage)] == [other, retried]
    # Also where it takes none because the destination cannot be listed.
    (tmp_path / "a file").touch()
    with pytest.raises(StorageError, match="a file"):
        attempt("this run", {"destination": str(tmp_path / "a file")})
    assert [h.hold_id for h in freezes(graph.storage)] == [other]


def test_a_freeze_of_somebody_else_is_not_ended_whatever_an_xcom_says(graph: Graph) -> None:
    from omnigraph_airflow.operators.backup import UnfreezeOperator

    context: Any = {"ti": SimpleNamespace(dag_id="omnigraph_backup"), "run_id": "this run"}
    theirs = freeze_graph(graph, reason="an export reads it", owner="ana at a shell").freeze_id
    tags = freeze_tags(graph.uri)
    with pytest.raises(InvalidInput, match="was not taken by this run; it was not ended"):
        UnfreezeOperator(task_id="unfreeze", freeze_id=theirs).run_stage(graph, context)
    assert ([h.hold_id for h in freezes(graph.storage)], freeze_tags(graph.uri)) == ([theirs], tags)
