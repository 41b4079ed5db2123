"""What somebody can change about a run, and who may answer what (docs/reference/rights.md), on a running Airflow."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from tests.ui.live import APPROVE, DAG, REMOVE, Live, grow, xcom_of

pytestmark = [pytest.mark.ui, pytest.mark.xdist_group("live")]
PLAN = "plan_cleanup"


def test_only_who_is_listed_answers_an_admin_is_not(live: Live) -> None:
    before = live.versions("guarded")
    run = live.trigger("op", "guarded", confirm_versions=1_000_000, confirm_size="1TiB")
    live.asked(run)
    assert {live.answer(user, run) for user in ("viewer", "user", "admin")} == {403}
    assert live.answer("other", run, "Reject") == 200
    live.ended(run)
    assert live.versions("guarded") == before
    assert live.told("guarded")[-1] == ("rejected", "other")


@pytest.mark.parametrize("state", ["success", "failed"])
def test_marking_a_run_does_nothing_and_an_answer_that_comes_later_neither(live: Live, state: str) -> None:
    grow(live.graph("guarded"))
    before, told = live.versions("guarded"), live.told("guarded")
    run = live.trigger("user", "guarded")
    live.asked(run)
    live.call("user", "PATCH", run, {"state": state}).raise_for_status()
    assert live.ended(run) == state
    live.answer("op", run)
    live.clear("user", run, APPROVE)
    live.wait("the question again", lambda: live.task(run, APPROVE) in {"awaiting_input", "failed"})
    live.mark("user", run, APPROVE, "success")
    assert live.ended(run) == "failed"
    assert (live.versions("guarded"), live.told("guarded")) == (before, told)


def test_a_run_made_anew_under_the_same_id_has_no_answer(live: Live) -> None:
    grow(live.graph("guarded"))
    run = live.start("user", DAG, run_id="again", graph="guarded", keep=1, older_than=None, confirm=True)
    digest = digest_of(live.asked(run))
    assert live.answer("op", run) == 200
    assert live.ended(run) == "success"
    grow(live.graph("guarded"))
    before, told = live.versions("guarded"), live.told("guarded")
    live.call("user", "DELETE", run).raise_for_status()
    conf: dict[str, Any] = {"graph": "guarded", "confirm": True, "digest": digest}
    assert live.start("user", DAG, run_id=unquote(run.rpartition("/")[2]), **conf) == run
    # Before it can ask, so that the earlier answer to the very same plan is still there.
    live.mark("user", run, APPROVE, "success")
    assert live.ended(run) == "failed"
    assert "the run was cleared or made anew since approve_cleanup was answered" in live.failure(run, REMOVE)
    assert (live.versions("guarded"), live.told("guarded")) == (before, told)


def test_a_plan_that_is_written_over_the_approved_one_is_not_carried_out(live: Live) -> None:
    """The other one is harder, and kept in the graph by a run of its own."""
    grow(live.graph("guarded"))
    before = live.versions("guarded")
    preview = live.trigger("user", "guarded", confirm=False)
    live.ended(preview)
    run = live.trigger("user", "guarded", keep=before - 1)
    live.asked(run)
    plan = xcom_of(run, PLAN, "plan")
    mine, harder = live.xcom("user", "GET", plan), live.xcom("user", "GET", xcom_of(preview, PLAN, "plan"))
    assert mine["digest"] != harder["digest"]
    live.xcom("user", "PATCH", plan, harder)
    live.xcom("user", "PATCH", xcom_of(run, PLAN, "return_value"), [["node:Person", "edge:Knows"]])
    assert live.answer("op", run) == 200
    assert live.ended(run) == "failed"
    assert "was not made by this run; nothing was done" in live.failure(run, REMOVE)
    assert live.versions("guarded") == before
    assert live.told("guarded")[-1] == ("approved", "op")


def test_without_the_xcom_of_its_plan_a_run_does_not_get_past_its_question(live: Live) -> None:
    grow(live.graph("guarded"))
    before, told = live.versions("guarded"), live.told("guarded")
    run = live.trigger("user", "guarded")
    live.asked(run)
    live.xcom("user", "DELETE", xcom_of(run, PLAN, "plan"))
    assert live.answer("op", run) == 200
    live.wait("the attempt that finds no plan", lambda: live.task(run, APPROVE) in {"up_for_retry", "failed"})
    live.stop(run)
    live.ended(run)
    assert (live.versions("guarded"), live.told("guarded")) == (before, told)


def test_who_is_taken_from_the_list_may_not_answer_an_open_question(live: Live) -> None:
    grow(live.graph("guarded"))
    before = live.versions("guarded")
    run = live.trigger("user", "guarded")
    live.asked(run)
    sound = live.graphs_file.read_text()
    live.graphs_file.write_text(sound.replace("approvers: [op, other]", "approvers: [op]"))
    try:
        assert live.answer("other", run) == 200, "Airflow knows the list of the question"
        assert live.ended(run) == "failed"
    finally:
        live.graphs_file.write_text(sound)
    assert live.versions("guarded") == before
    assert live.told("guarded")[-1] == ("rejected", "other")


def test_a_file_at_fault_asks_known_approvers_and_lets_nothing_be_done_elsewhere(live: Live) -> None:
    for name in ("guarded", "open"):
        grow(live.graph(name))
    before = {name: (live.versions(name), live.told(name)) for name in ("guarded", "open")}
    sound = live.graphs_file.read_text()
    live.graphs_file.write_text(f'{sound}  fault: {{target: "/nowhere", keep: 3}}\n')
    try:
        unguarded = live.trigger("user", "open")
        assert live.ended(unguarded) == "failed"
        assert "so nobody knows who may approve" in live.failure(unguarded, APPROVE)
        guarded = live.trigger("user", "guarded")
        live.asked(guarded)
        assert live.answer("user", guarded) == 403
        live.stop(guarded)
        live.ended(guarded)
    finally:
        live.graphs_file.write_text(sound)
    assert {name: (live.versions(name), live.told(name)) for name in before} == before


def test_of_a_folder_and_a_dataset_in_it_both_lists_count(live: Live) -> None:
    for name in ("lake", "items"):
        run = live.trigger("user", name)
        live.asked(run)
        assert (live.answer("op", run), live.answer("other", run, "Reject")) == (403, 200)
        live.ended(run)


def test_a_variable_does_not_replace_the_file_that_the_environment_names(live: Live) -> None:
    """The other file knows no approvers."""
    other = live.root / "other.yaml"
    other.write_text(live.graphs_file.read_text().replace("approvers: [op, other]", "approvers: []"))
    variable = {"key": "omnigraph_graphs_file", "value": str(other)}
    assert live.call("user", "POST", "/variables", variable).status_code == 403
    live.call("op", "POST", "/variables", variable).raise_for_status()
    grow(live.graph("guarded"))
    before = live.versions("guarded")
    run = live.trigger("user", "guarded")
    live.asked(run)
    assert live.answer("user", run) == 403
    live.stop(run)
    live.ended(run)
    live.call("op", "DELETE", "/variables/omnigraph_graphs_file").raise_for_status()
    assert live.versions("guarded") == before


def digest_of(question: dict[str, Any]) -> str:
    """The digest of the plan that a question shows."""
    return "sha256:" + str(question["body"]).rpartition("`sha256:")[2].rstrip("`")
