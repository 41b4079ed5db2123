"""Approvers of the graphs file: neither a trigger form nor a DAG for any graph gets around them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from tests.support.runs import Instance, planned
from tests.support.templates import Templates

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
BOUNDS = {"max_versions": 10_000, "max_bytes": 2**40}
WITHIN = {"count": 10_000, "size": "1TiB"}
APPROVED = {"chosen_options": ["Approve"]}
ANA = [{"id": "ana", "name": "ana"}]


def list_graphs(folder: Path, monkeypatch: pytest.MonkeyPatch, target: Path) -> None:
    """Make it a deployment whose one graph ana approves."""
    listed = folder / "graphs.yaml"
    listed.write_text(f"version: 1\ngraphs:\n  people:\n    target: {target}\n    approvals: {{approvers: [ana]}}\n")
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(listed))


@pytest.fixture
def place(tmp_path: Path, templates: Templates) -> Path:
    templates.copy(DemoSpec(node_types=1, loads=3, rows=3), tmp_path / "g")
    return tmp_path / "g"


@pytest.fixture
def ask(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
    from omnigraph_airflow.operators.stages import ApproveStageOperator

    list_graphs(tmp_path, monkeypatch, place)
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, context: self.assigned_users)
    graph = open_graph(str(place))
    made = {keep: plan_cleanup(graph, RetentionPolicy(keep_versions=keep)) for keep in (1, 100)}

    def go(user: str, run_type: str = "manual", instance: Any = None, keep: int = 1, **said: Any) -> Any:
        instance = instance or Instance("approve_cleanup")
        task = ApproveStageOperator(
            task_id="approve_cleanup",
            stage="cleanup",
            plan=None,
            answer_within=timedelta(hours=1),
            within=WITHIN,
            **said,
        )
        task.graph = str(place)
        run = SimpleNamespace(
            run_type=run_type, triggering_user_name=user, start_date=datetime.now(UTC), clear_number=0
        )
        upstream = SimpleNamespace(upstream_task_ids={"plan_cleanup"})
        dag = SimpleNamespace(dag_id="omnigraph_cleanup")
        context: Any = {"ti": instance, "dag_run": run, "run_id": "r", "task": upstream, "dag": dag}
        task.plan = planned(context, graph, made[keep])
        return task.execute(context)

    return go


@pytest.mark.parametrize("said", [{"confirmed": True}, {"standing": BOUNDS}])
@pytest.mark.parametrize("user", ["eve", "ana"])
def test_no_form_approves_where_there_are_approvers(ask: Callable[..., Any], user: str, said: dict[str, Any]) -> None:
    """Of who sent it Airflow tells a name, which is not the id that its own route compares."""
    assert ask(user, **said) == ANA


@pytest.mark.parametrize("said", [{"confirmed": True}, {"standing": BOUNDS}])
@pytest.mark.parametrize("run_type", ["backfill", "asset_materialization", "operator_triggered"])
def test_whoever_starts_a_run_in_another_way_is_no_approver_either(
    ask: Callable[..., Any], run_type: str, said: dict[str, Any]
) -> None:
    assert ask("eve", run_type, **said) == ANA


def test_who_approved_in_advance_is_in_the_audit_log(
    ask: Callable[..., Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMNIGRAPH_GRAPHS_FILE")
    ask("ana", confirmed=True)
    ask("ana", standing=BOUNDS)
    ask("", run_type="asset_triggered", standing=BOUNDS)
    assert [entry.actor for entry in audit_log.log_of(open_graph(str(place)).storage, "").entries] == [
        "ana, by the confirm param of the run",
        "the standing approval, in a run that ana started",
        "the standing approval",
    ]


FAULTS = {
    "unreadable": "version: 1\ngraphs: [",
    "defaults": "version: 1\ndefaults: {owner: 3}\ngraphs:\n  people: {target: PLACE, approvals: {approvers: [ana]}}\n",
    "this entry": "version: 1\ngraphs:\n  people: {target: PLACE, keep: 3, approvals: {approvers: [ana]}}\n",
    "two entries": "version: 1\ngraphs:\n  people: {target: PLACE, approvals: {approvers: [ana]}}\n"
    "  again: {target: PLACE}\n",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_at_fault_does_not_make_everybody_an_approver(
    ask: Callable[..., Any], place: Path, tmp_path: Path, fault: str
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    (tmp_path / "graphs.yaml").write_text(FAULTS[fault].replace("PLACE", str(place)))
    instance = Instance("approve_cleanup")
    with pytest.raises(AirflowFailException, match=r"has faults, so nobody knows who may approve at .*first .*yaml:\d"):
        ask("eve", confirmed=True, instance=instance)
    told = instance.pushed["failure"][0]["message"]
    assert "nobody knows who may approve" in told
    # A person may have answered before the fault: the same sentence is their reply.
    assert "an answer that was given does not count; mend the faults, then clear this task" in told


def test_a_file_at_fault_stops_no_run_that_has_nothing_to_ask(
    ask: Callable[..., Any], place: Path, tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    (tmp_path / "graphs.yaml").write_text(FAULTS["defaults"].replace("PLACE", str(place)))
    with pytest.raises(AirflowSkipException, match="nothing to remove"):
        ask("eve", keep=100)


def test_a_fault_may_hide_that_a_place_has_approvers(ask: Callable[..., Any], place: Path, tmp_path: Path) -> None:
    """The entry at fault may be about the same place as one that names nobody."""
    from airflow.sdk.exceptions import AirflowFailException

    (tmp_path / "graphs.yaml").write_text(
        FAULTS["two entries"].replace("[ana]}}", "[ana]}, keep: 3}").replace("PLACE", str(place))
    )
    with pytest.raises(AirflowFailException, match="so nobody knows who may approve"):
        ask("eve", confirmed=True)


def test_one_dataset_that_is_listed_has_its_approvers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of plain Lance lies in the folder around its dataset."""
    from omnigraph_airflow.graphs import approvers_of

    lance.write_dataset(pa.table({"n": [1]}), str(tmp_path / "plain" / "y.lance"))
    list_graphs(tmp_path, monkeypatch, tmp_path / "plain" / "y.lance")
    for address in (tmp_path / "plain" / "y.lance", tmp_path / "plain"):
        assert approvers_of(open_graph(str(address)).target) == ("ana",)


def test_a_fault_elsewhere_in_the_file_changes_nothing(ask: Callable[..., Any], tmp_path: Path) -> None:
    with (tmp_path / "graphs.yaml").open("a") as listed:
        listed.write("  other: {target: /g, keep: 3}\n")
    assert ask("eve", confirmed=True) == ANA
    assert ask("", run_type="scheduled", standing=BOUNDS) == APPROVED


def test_a_dag_and_a_file_that_name_nobody_in_common_are_told_with_what_to_do(ask: Callable[..., Any]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    said = "the DAG names bob, the graphs file ana; nothing was done; name somebody in both"
    with pytest.raises(AirflowFailException, match=said):
        ask("eve", approvers=["bob"])


def test_a_symbolic_link_leads_to_the_same_approvers(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_airflow.graphs import approvers_of

    (tmp_path / "link").symlink_to(place)
    list_graphs(tmp_path, monkeypatch, place)
    assert approvers_of(str(tmp_path / "link")) == ("ana",)
    list_graphs(tmp_path, monkeypatch, tmp_path / "link")
    assert approvers_of(str(place)) == ("ana",)
    assert approvers_of(str(tmp_path / "elsewhere")) == ()


def test_a_dataset_of_a_listed_folder_has_its_approvers_and_the_other_way_round(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_airflow.graphs import approvers_of

    list_graphs(tmp_path, monkeypatch, place)
    assert approvers_of(f"{place}/items.lance") == approvers_of(str(place.parent)) == ("ana",)
    assert approvers_of(f"{place}2") == ()
    listed = tmp_path / "graphs.yaml"
    two = "  items: {target: PLACE/items.lance, approvals: {approvers: [bob, BOTH]}}\n".replace("PLACE", str(place))
    text = listed.read_text()
    listed.write_text(text.replace("[ana]", "[ana, cem]") + two.replace("BOTH", "cem"))
    assert approvers_of(f"{place}/items.lance") == ("cem",)
    listed.write_text(text + two.replace(", BOTH", ""))
    with pytest.raises(InvalidInput, match="have nobody in common"):
        approvers_of(f"{place}/items.lance")


def test_a_run_by_the_clock_has_the_standing_approval_of_the_file(ask: Callable[..., Any]) -> None:
    assert ask("", run_type="scheduled", standing=BOUNDS) == APPROVED
