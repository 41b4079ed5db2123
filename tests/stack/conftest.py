"""One stack for all of these tests, and the nights that it goes through."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from omnigraph_ops.demo import DemoSpec
from stack.fill_env import filled
from tests.stack.canary import Watch
from tests.stack.client import Client
from tests.stack.compose import LOADER, ROOT
from tests.stack.graphs import open_as, seeder
from tests.stack.images import VERSITYGW
from tests.stack.running import Stack, running
from tests.support.ports import free_port
from tests.support.rows import Rows, rows_of

SEEDED = "s3://lake/graphs/people.omni"
HEAVY = "s3://lake/graphs/heavy.omni"
SMALL = DemoSpec(stamp=6, node_types=1, loads=8, rows=50, deletes=5)
"""Two tables: each is a driver, and this machine may have two cores."""
LOST = "spark-worker-2"
WANTED = os.environ.get("OMNIGRAPH_TEST_STACK") == "1"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is part of `make test-stack`."""
    for item in items:
        if item.path.is_relative_to(ROOT / "tests" / "stack"):
            item.add_marker(pytest.mark.stack)
            # One stack, in one process; the other ones have five minutes of its waiting for other tests.
            item.add_marker(pytest.mark.xdist_group("stack"))
            if not WANTED:
                item.add_marker(pytest.mark.skip(reason="starts a whole stack: `make test-stack`"))


@pytest.fixture(scope="session")
def variables() -> dict[str, str]:
    """An .env as `make env` makes it, with another port for the UI."""
    return filled((ROOT / ".env.example").read_text()) | {"AIRFLOW_PORT": str(free_port())}


@pytest.fixture(scope="session")
def stack(variables: dict[str, str]) -> Iterator[Stack]:
    """Every service of docker-compose.yaml, healthy."""
    for program in (LOADER, VERSITYGW):
        if not program.exists():
            pytest.fail(f"{program.name} is not installed; run `make test-stack`")
    with running(variables) as started:
        yield started


@dataclass(frozen=True, slots=True, kw_only=True)
class Nights:
    """Three runs of the nightly DAG: by the clock, by hand for a heavy graph, and the same again."""

    clock: str
    heavy: str
    again: str
    states: dict[str, str]
    before: Rows
    """Rows of the heavy graph."""
    lost_at_work: bool
    """Whether a Spark worker was killed while an application ran."""
    watch: Watch
    operator: Client


@pytest.fixture(scope="session")
def nights(stack: Stack) -> Iterator[Nights]:
    """The runs, watched; questions are answered by the user operator."""
    operator, watch = as_user(stack, "operator"), Watch(stack)
    with pytest.MonkeyPatch.context() as environment, watch.running():
        seeder(stack, environment).seed("lake", HEAVY.removeprefix("s3://lake/"), SMALL)
        before = rows_of(open_as(stack, "MAINTAINER", HEAVY))
        (first,) = operator.runs()
        clock, states = str(first["dag_run_id"]), {}
        states[clock] = operator.follow(clock)
        lost: list[str] = []
        conf = {"graph": HEAVY, "quiet_seconds": 0, "spark_threshold": 0, "keep": 1, "older_than": None}
        heavy = operator.trigger(conf)
        states[heavy] = operator.follow(heavy, watch=lambda: _lose_a_worker(stack, lost))
        again = operator.trigger(conf)
        states[again] = operator.follow(again)
    yield Nights(
        clock=clock,
        heavy=heavy,
        again=again,
        states=states,
        before=before,
        lost_at_work=bool(lost),
        watch=watch,
        operator=operator,
    )


def as_user(stack: Stack, user: str) -> Client:
    """A session of one of the stack's users."""
    url = f"http://127.0.0.1:{stack.machine.port('api-server', 8080)}"
    return Client(url, user, stack.variables[f"AIRFLOW_{user.upper()}_PASSWORD"])


def spark_master(stack: Stack) -> dict[str, Any]:
    """What the Spark master says of itself. Reads."""
    with urllib.request.urlopen(f"http://127.0.0.1:{stack.machine.port('spark-master', 8081)}/json/") as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def _lose_a_worker(stack: Stack, lost: list[str]) -> None:
    """Kill a worker once, while an application runs; it comes back as a container would. Kills processes."""
    if not lost and any(app["state"] == "RUNNING" for app in spark_master(stack)["activeapps"]):
        stack.kill(LOST)
        stack.start(stack.services["spark-worker"], LOST)
        lost.append(LOST)
