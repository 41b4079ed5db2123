"""Every service is up and does what it is there for; who may do what in the UI."""

from __future__ import annotations

import pytest

from tests.stack.client import DAG_ID, Client, Refused
from tests.stack.compose import load
from tests.stack.conftest import SEEDED, as_user, spark_master
from tests.stack.machine import instances
from tests.stack.running import Stack


def test_every_check_of_the_file_passes(stack: Stack) -> None:
    watched = [name for s in load(stack.variables).values() if s.health for name in instances(s)]
    assert [name for name in watched if not stack.healthy(name)] == []
    assert {name: stack.processes[name].poll() for name in ("init", "seed")} == {"init": 0, "seed": 0}


def test_seeding_again_leaves_the_graph_alone(stack: Stack) -> None:
    stack.start(stack.services["seed"], "seed")
    assert stack.processes["seed"].wait(120) == 0, stack.log("seed")
    assert stack.log("seed").splitlines()[-1] == f"{SEEDED} is there already"


def test_airflow_is_whole(stack: Stack) -> None:
    health = as_user(stack, "viewer").call("GET", "/api/v2/monitor/health")
    parts = {part: health[part]["status"] for part in ("metadatabase", "scheduler", "triggerer", "dag_processor")}
    assert set(parts.values()) == {"healthy"}
    assert as_user(stack, "admin").call("GET", "/api/v2/importErrors")["import_errors"] == []


def test_the_cluster_has_two_workers(stack: Stack) -> None:
    assert [worker["state"] for worker in spark_master(stack)["workers"]].count("ALIVE") == 2


def test_a_stranger_gets_nothing(stack: Stack) -> None:
    stranger = object.__new__(Client)
    stranger._url, stranger._token = f"http://127.0.0.1:{stack.machine.port('api-server', 8080)}", ""
    for path in ("/api/v2/dags", "/api/v2/connections", f"/api/v2/dags/{DAG_ID}/dagRuns"):
        with pytest.raises(Refused) as refused:
            stranger.call("GET", path)
        assert refused.value.status == 401


def test_a_viewer_looks_and_an_operator_knows_no_connections(stack: Stack) -> None:
    viewer, operator = as_user(stack, "viewer"), as_user(stack, "operator")
    assert viewer.runs()
    with pytest.raises(Refused) as refused:
        viewer.trigger({})
    assert refused.value.status == 403
    for user in (viewer, operator):
        with pytest.raises(Refused) as refused:
            user.call("GET", "/api/v2/connections")
        assert refused.value.status == 403
