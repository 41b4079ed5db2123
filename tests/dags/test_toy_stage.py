"""A stage that is one line in the registry has its DAG, its form, its approval, its report and its audit entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph_ops.graph import Graph
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.stages.registry import BY_NAME
from tests.conftest import DemoGraph
from tests.support.runs import Finished
from tests.support.toy_stage import MARKS, Toy

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
DAG_ID = Toy.dag_id
Answer = Callable[..., list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BY_NAME, "toy", Toy())


@pytest.fixture
def dag(_registered: None, dags: Any) -> Any:
    """The stage's DAG, which no file of the dags folder names."""
    return dags[DAG_ID]


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(node_types=1, loads=1, rows=3)


def run(dag: Any, graph: Graph, **params: Any) -> Finished:
    return Finished(dag.test(run_conf={"graph": graph.uri, **params}))


def told(graph: Graph) -> list[tuple[str, str, str]]:
    return [(entry.verb, str(entry.event), entry.detail) for entry in audit_log.read(graph.storage)]


def test_the_tasks_ask_before_they_act(dag: Any) -> None:
    assert dag.schedule is None
    assert set(dag.task_ids) == {"check_recovery", "plan_toy", "approve_toy", "write_marks", "report"}
    assert dag.get_task("approve_toy").upstream_task_ids == {"plan_toy"}
    assert dag.get_task("write_marks").upstream_task_ids == {"plan_toy", "approve_toy"}
    assert dag.get_task("write_marks").downstream_task_ids == {"report"}
    assert "# Mark a graph\n" in dag.doc_md
    assert "| `write_marks` | carries out exactly what was planned | writes |" in dag.doc_md


def test_the_form_has_the_fields_of_the_request(dag: Any) -> None:
    fields = {name: dag.params.get_param(name) for name in dag.params}
    assert list(fields) == ["graph", "marks", "confirm", "confirm_marks", "confirm_size", "digest", "color"]
    assert (fields["marks"].value, fields["marks"].schema) == (
        1,
        {"type": "integer", "minimum": 0, "title": "Marks", "description_md": "Write so many marks."},
    )
    assert fields["color"].schema["type"] == ["null", "string"]
    assert (fields["color"].schema["title"], fields["color"].schema["section"]) == ("Color of the marks", "Looks")
    assert fields["confirm_marks"].value == 5


def test_its_tasks_lead_to_its_question(dag: Any) -> None:
    from airflow.models.taskinstancekey import TaskInstanceKey
    from omnigraph_airflow.links import ApprovalLink

    for name in ("plan_toy", "write_marks"):
        link = ApprovalLink().get_link(dag.get_task(name), ti_key=TaskInstanceKey(DAG_ID, name, "run"))
        assert link.endswith("/tasks/approve_toy/required_actions")


def test_a_look_changes_nothing_and_its_digest_is_carried_out(dag: Any, graph: Graph) -> None:
    looked = run(dag, graph, marks=9, color="red")
    assert (looked.state, looked.of("approve_toy"), looked.report["outcome"]) == (
        "success",
        ["skipped"],
        "nothing_to_do",
    )
    assert not graph.storage.list(MARKS)
    digest = looked.xcom("plan_toy")["digest"]
    done = run(dag, graph, confirm=True, digest=digest)
    assert (done.state, done.of("write_marks"), done.report["outcome"]) == ("success", ["success"], "succeeded")
    assert len(graph.storage.list(MARKS)) == 9
    assert told(graph) == [
        ("toy", "approved", "Approve"),
        ("toy", "started", ""),
        ("toy", "applied", "9 marks written"),
    ]
    _, section = done.report["markdown"].split("## Toy\n")
    assert f"digest `{digest}`" in section
    assert "9 marks written." in section
    assert history.read_runs(graph)[0].header.verb == "toy"


def test_a_confirmation_covers_as_much_as_the_form_says(dag: Any, graph: Graph) -> None:
    done = run(dag, graph, confirm=True, marks=5)
    assert (done.state, done.of("write_marks")) == ("success", ["success"])
    assert len(graph.storage.list(MARKS)) == 5


def test_a_larger_plan_is_asked_about(dag: Any, graph: Graph, answer_hitl: Answer) -> None:
    seen = answer_hitl("approve_toy", "Reject")
    done = run(dag, graph, confirm=True, marks=6)
    assert (done.state, done.report["outcome"]) == ("failed", "unapproved")
    assert seen[0]["subject"] == "Write 6 marks?"
    assert done.xcom("plan_toy")["digest"] in seen[0]["body"]
    assert not graph.storage.list(MARKS)
    assert "Nothing was done. The plan:\n\n- Marks: 6" in done.report["markdown"]


def test_without_work_nobody_is_asked(dag: Any, graph: Graph) -> None:
    done = run(dag, graph, confirm=True, marks=0)
    assert (done.state, done.of("approve_toy")) == ("success", ["skipped"])
    assert "## Toy\nNo marks were asked for." in done.report["markdown"]
