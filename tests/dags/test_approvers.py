"""Approvers of the graphs file: neither a trigger form nor a DAG for any graph gets around them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omnigraph_ops import sealed, serde
from omnigraph_ops.cleanup import plan_cleanup
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models import RetentionPolicy

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
BOUNDS = {"max_versions": 10_000, "max_bytes": 2**40}
APPROVED = {"chosen_options": ["Approve"]}


class Instance:
    """Takes what a task pushes."""

    task_id = "approve_cleanup"

    def xcom_push(self, *, key: str, value: Any) -> None:
        """Forget it."""


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
    from omnigraph_airflow.operators.approve import ApproveCleanupOperator

    place = tmp_path / "g"
    write_demo_graph(place, DemoSpec(node_types=1, loads=3, rows=3))
    listed = tmp_path / "graphs.yaml"
    listed.write_text(f"version: 1\ngraphs:\n  people:\n    target: {place}\n    approvals: {{approvers: [ana]}}\n")
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(listed))
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, context: self.assigned_users)
    graph = open_graph(str(place))
    ref = serde.to_json(sealed.store(graph.storage, plan_cleanup(graph, RetentionPolicy(keep_versions=1))))

    def go(user: str, run_type: str = "manual", **said: Any) -> Any:
        task = ApproveCleanupOperator(task_id="approve_cleanup", plan=ref, answer_within=timedelta(hours=1), **said)
        task.graph = str(place)
        run = SimpleNamespace(run_type=run_type, triggering_user_name=user, start_date=datetime.now(UTC))
        upstream = SimpleNamespace(upstream_task_ids={"plan_cleanup"})
        dag = SimpleNamespace(dag_id="omnigraph_cleanup")
        return task.execute({"ti": Instance(), "dag_run": run, "run_id": "r", "task": upstream, "dag": dag})

    return go


@pytest.mark.parametrize("said", [{"confirmed": True}, {"standing": BOUNDS}])
def test_the_form_of_somebody_else_approves_nothing(ask: Callable[..., Any], said: dict[str, Any]) -> None:
    assert ask("eve", **said) == [{"id": "ana", "name": "ana"}]
    assert ask("ana", **said) == APPROVED


def test_a_run_by_the_clock_has_the_standing_approval_of_the_file(ask: Callable[..., Any]) -> None:
    assert ask("", run_type="scheduled", standing=BOUNDS) == APPROVED
