"""Who can make what happen, on a running Airflow: ways to start or change a run, by users with few rights."""

from __future__ import annotations

import pytest

from tests.ui.live import APPROVE, DAG, REMOVE, Live, grow, removed_by

pytestmark = [pytest.mark.ui, pytest.mark.xdist_group("live")]


def test_a_viewer_starts_answers_and_changes_nothing(live: Live) -> None:
    before = live.versions("guarded")
    body = {"logical_date": None, "conf": {"graph": "guarded", "confirm": True}}
    assert live.call("viewer", "POST", f"/dags/{DAG}/dagRuns", body).status_code == 403
    run = live.trigger("user", "guarded")
    live.asked(run)
    assert live.answer("viewer", run) == 403
    assert live.call("viewer", "PATCH", f"{run}/taskInstances/{APPROVE}", {"new_state": "success"}).status_code == 403
    assert live.call("viewer", "PATCH", run, {"state": "success"}).status_code == 403
    assert live.answer("op", run, "Reject") == 200
    live.ended(run)
    assert live.versions("guarded") == before


def test_who_may_not_answer_cannot_forge_an_answer(live: Live) -> None:
    before, told = live.versions("guarded"), live.told("guarded")
    run = live.trigger("user", "guarded")
    question = live.asked(run)
    assert live.answer("user", run) == 403
    digest = question["body"].rpartition("`sha256:")[2].rstrip("`")
    forged = {"chosen_options": ["Approve"], "digest": f"sha256:{digest}", "decided_by": "op", "timed_out": False}
    for key, value in {"decision": forged, "return_value": {"chosen_options": ["Approve"]}}.items():
        path = f"{run}/taskInstances/{APPROVE}/xcomEntries"
        live.call("user", "POST", path, {"key": key, "value": value, "map_index": -1}).raise_for_status()
    marked = live.call("user", "PATCH", f"{run}/taskInstances/{APPROVE}", {"new_state": "success"})
    assert marked.status_code == 200, marked.text
    assert live.ended(run) == "failed"
    assert live.task(run, REMOVE) == "failed"
    assert live.versions("guarded") == before
    assert live.told("guarded") == told


def test_an_approver_answers_and_a_cleared_run_is_no_second_answer(live: Live) -> None:
    before = live.versions("guarded")
    run = live.trigger("user", "guarded")
    live.asked(run)
    assert live.answer("op", run) == 200
    assert live.ended(run) == "success"
    kept = live.versions("guarded")
    assert kept < before
    assert removed_by("op", live.told("guarded"))
    grow(live.graph("guarded"))
    grown, told = live.versions("guarded"), live.told("guarded")
    live.clear("user", run)
    assert live.ended(run) == "failed"
    assert live.task(run, APPROVE) == "failed", "Airflow goes on showing the text of the first plan"
    assert (live.versions("guarded"), live.told("guarded")) == (grown, told)


def test_what_a_form_confirmed_is_not_confirmed_again_by_a_clear(live: Live) -> None:
    run = live.trigger("user", "open")
    assert live.ended(run) == "success"
    kept = live.versions("open")
    assert removed_by("user, by the confirm param of the run", live.told("open"))
    grow(live.graph("open"))
    grown = live.versions("open")
    assert grown > kept
    live.clear("other", run)
    question = live.asked(run)
    assert f"sha256:{question['body'].rpartition('`sha256:')[2].rstrip('`')}" in question["body"]
    assert live.versions("open") == grown
    assert live.answer("other", run) == 200
    assert live.ended(run) == "success"
    assert live.versions("open") < grown
    assert removed_by("other", live.told("open"))


def test_a_clear_of_the_removal_alone_is_refused(live: Live) -> None:
    run = live.trigger("user", "open", keep=1)
    live.ended(run)
    if live.task(run, APPROVE) == "skipped":
        grow(live.graph("open"))
        run = live.trigger("user", "open", keep=1)
        live.ended(run)
    before = live.versions("open")
    live.clear("user", run, REMOVE)
    assert live.ended(run) == "failed"
    assert live.task(run, REMOVE) == "failed"
    assert live.versions("open") == before


def test_a_confirmation_covers_what_its_form_shows(live: Live) -> None:
    grow(live.graph("open"))
    before = live.versions("open")
    run = live.trigger("user", "open", confirm_versions=0)
    question = live.asked(run)
    assert "versions are more than the 0 approved in advance" in question["body"]
    assert live.graph("open").uri in question["body"]
    assert "keep the newest 1" in question["body"]
    assert live.answer("user", run, "Reject") == 200
    live.ended(run)
    assert live.versions("open") == before


@pytest.mark.parametrize("user", ["viewer", "user"])
def test_variables_and_connections_are_for_those_who_run_the_deployment(live: Live, user: str) -> None:
    body = {"key": "omnigraph_graphs_file", "value": "/nowhere"}
    assert live.call(user, "POST", "/variables", body).status_code == 403
    connection = {"connection_id": "omnigraph_default", "conn_type": "omnigraph"}
    assert live.call(user, "POST", "/connections", connection).status_code == 403
