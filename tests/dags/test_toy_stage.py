"""A stage that is one line in the registry has its DAG, its form, its approval, its report and its audit entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph_ops.graph import Graph
from omnigraph_ops.outcomes import audit_log, history
from tests.conftest import DemoGraph
from tests.support.runs import Finished
from tests.support.toy_stage import SHELF, Shelve, register

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
DAG_ID = Shelve.dag_id
Answer = Callable[..., list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)


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
    return [(entry.verb, str(entry.event), entry.detail) for entry in audit_log.log_of(graph.storage, "").entries]


def test_the_tasks_ask_before_they_act(dag: Any) -> None:
    assert dag.schedule is None
    assert set(dag.task_ids) == {"check_recovery", "plan_shelve", "approve_shelve", "shelve", "report"}
    assert dag.get_task("approve_shelve").upstream_task_ids == {"plan_shelve"}
    assert dag.get_task("shelve").upstream_task_ids == {"plan_shelve", "approve_shelve"}
    assert dag.get_task("shelve").downstream_task_ids == {"report"}
    assert "# Put markers on the shelf of a graph\n" in dag.doc_md
    assert "| `shelve` | write the markers | **destroys** |" in dag.doc_md


def test_the_form_has_the_fields_of_the_request(dag: Any) -> None:
    fields = {name: dag.params.get_param(name) for name in dag.params}
    assert list(fields) == ["graph", "markers", "label", "confirm", "confirm_markers", "confirm_size", "digest"]
    markers, label = fields["markers"], fields["label"]
    assert (markers.value, markers.schema["type"], markers.schema["minimum"]) == (2, "integer", 1)
    assert (markers.schema["title"], markers.description) == ("Markers", None)
    assert markers.schema["description_md"] == "Put so many markers on the shelf."
    assert (label.value, label.schema["type"], label.schema["title"]) == ("toy", "string", "Label of the markers")
    assert fields["confirm_markers"].value == 1


def test_its_tasks_lead_to_its_question(dag: Any) -> None:
    from airflow.models.taskinstancekey import TaskInstanceKey
    from omnigraph_airflow.links import ApprovalLink

    for name in ("plan_shelve", "shelve"):
        link = ApprovalLink().get_link(dag.get_task(name), ti_key=TaskInstanceKey(DAG_ID, name, "run"))
        assert link.endswith("/tasks/approve_shelve/required_actions")


def test_a_look_changes_nothing_and_its_digest_is_carried_out(dag: Any, graph: Graph) -> None:
    looked = run(dag, graph, markers=9, label="red")
    assert (looked.state, looked.of("approve_shelve")) == ("success", ["skipped"])
    assert looked.report["outcome"] == "previewed"
    assert not graph.storage.list(SHELF)
    digest = looked.xcom("plan_shelve")["digest"]
    done = run(dag, graph, confirm=True, digest=digest)
    assert (done.state, done.of("shelve"), done.report["outcome"]) == ("success", ["success"], "succeeded")
    assert len(graph.storage.list(SHELF)) == 9
    assert graph.storage.read(f"{SHELF}/marker-8") == b"red"
    applied = ("shelve", "applied", "9 markers shelved")
    assert told(graph) == [("shelve", "approved", "Approve"), ("shelve", "started", ""), applied]
    _, section = done.report["markdown"].split("## Shelve\n")
    assert f"digest `{digest}`" in section
    assert "9 markers shelved." in section
    newest = history.read_runs(graph)[0]
    assert (newest.header.verb, newest.outcome) == ("shelve", "succeeded")


def test_a_confirmation_covers_as_much_as_the_form_says(dag: Any, graph: Graph) -> None:
    done = run(dag, graph, confirm=True, markers=1)
    assert (done.state, done.of("shelve")) == ("success", ["success"])
    assert len(graph.storage.list(SHELF)) == 1


def test_a_larger_plan_is_asked_about(dag: Any, graph: Graph, answer_hitl: Answer) -> None:
    seen = answer_hitl("approve_shelve", "Reject")
    done = run(dag, graph, confirm=True, markers=6)
    assert (done.state, done.report["outcome"]) == ("failed", "unapproved")
    assert seen[0]["subject"] == "Shelve 6 markers?"
    assert done.xcom("plan_shelve")["digest"] in seen[0]["body"]
    assert "6 markers are more than the 1 approved in advance" in seen[0]["body"]
    assert not graph.storage.list(SHELF)
    assert "Nothing was done. The plan:" in done.report["markdown"]
