"""Nights of the whole stack: nobody's help, a standalone cluster that loses a worker, an approval over REST."""

from __future__ import annotations

import pytest

from omnigraph_ops.models.optimize import OptimizeDecision
from omnigraph_ops.stages.optimize.run import plan_optimize
from tests.stack.conftest import HEAVY, SEEDED, Nights, as_user, spark_master
from tests.stack.graphs import account, open_as, shell
from tests.stack.running import Stack
from tests.support.rows import rows_of


def test_every_night_is_green(nights: Nights) -> None:
    assert nights.states == dict.fromkeys([nights.clock, nights.heavy, nights.again], "success")


def test_the_first_night_came_by_the_clock_and_asked_nobody(nights: Nights) -> None:
    assert nights.clock.startswith("scheduled__")
    tasks, report = nights.operator.tasks(nights.clock), nights.operator.report(nights.clock)
    assert (tasks["approve_repair"], tasks["approve_cleanup"]) == ("skipped", "skipped")
    assert (report["outcome"], report["failed"]) == ("succeeded", [])


@pytest.mark.parametrize("uri", [SEEDED, HEAVY])
def test_the_graph_in_the_store_is_clean_and_has_nothing_left_to_do(stack: Stack, nights: Nights, uri: str) -> None:
    done = shell(account(stack, "READER"), "check", uri)
    assert (done.returncode, "clean" in done.stdout) == (0, True), done.stderr
    plans = plan_optimize(open_as(stack, "READER", uri)).tables
    assert {plan.decision for plan in plans if plan.table_key != "__manifest"} == {OptimizeDecision.NO_OP}


def test_heavy_tables_went_through_the_cluster_and_kept_their_rows(stack: Stack, nights: Nights) -> None:
    tasks = nights.operator.tasks(nights.heavy)
    submitted = [state for name, state in tasks.items() if name.startswith("submit_rewrite[")]
    assert (submitted, tasks["optimize_table"]) == (["success"], "skipped"), "small tables share one submit"
    done = [app["state"] for app in spark_master(stack)["completedapps"]]
    assert done.count("FINISHED") >= len(submitted)
    assert rows_of(open_as(stack, "READER", HEAVY)) == nights.before
    assert "spark" in nights.operator.report(nights.heavy)["markdown"]


def test_a_worker_was_lost_at_work(stack: Stack, nights: Nights) -> None:
    assert nights.lost_at_work
    assert [worker["state"] for worker in spark_master(stack)["workers"]].count("ALIVE") == 2


def test_the_approval_was_asked_answered_and_recorded(stack: Stack, nights: Nights) -> None:
    tasks, report = nights.operator.tasks(nights.heavy), nights.operator.report(nights.heavy)
    assert tasks["approve_cleanup"] == "success"
    assert "operator" in report["markdown"]
    audit = shell(account(stack, "READER"), "audit", HEAVY)
    assert "operator" in audit.stdout, audit.stderr
    state = open_as(stack, "READER", HEAVY)
    assert {len(state.open_head(entry).versions()) for entry in state.maintained(state.state())} == {1}


def test_the_same_again_is_nothing_to_do(nights: Nights) -> None:
    report = nights.operator.report(nights.again)
    assert (report["outcome"], report["failed"]) == ("nothing_to_do", [])


def test_a_viewer_may_read_the_report(stack: Stack, nights: Nights) -> None:
    assert as_user(stack, "viewer").report(nights.clock)["outcome"] == "succeeded"
