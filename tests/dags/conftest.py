"""Hermetic Airflow for these tests: its own database in its own home, set before the first airflow import."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ["AIRFLOW_HOME"])
os.environ.update(
    AIRFLOW__CORE__DAGS_FOLDER=str(ROOT / "dags"),
    AIRFLOW__CORE__PLUGINS_FOLDER=str(ROOT / "plugins"),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS="True",
    AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING",
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{HOME}/airflow.db",
    # spark-submit of the environment that runs the tests
    PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[2]"}',
)
PENDING = {"response_received": False, "state": "awaiting_input"}
DAG_ID = "omnigraph_maintenance"


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """A fresh metadata database."""
    from airflow.utils import db

    db.initdb()


@pytest.fixture(scope="session")
def api(airflow_db: None) -> Any:
    """The public REST API in this process: no server, no port."""
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    client = TestClient(create_app(apps="core"), base_url="http://testserver")
    token = client.get("/auth/token").json()["access_token"]
    client.headers["authorization"] = f"Bearer {token}"
    return client


@pytest.fixture(autouse=True)
def _no_idling() -> Iterator[None]:
    """`dag.test()` sleeps a whole second whenever a skip has to travel; a tenth is enough."""
    sleep = time.sleep
    with pytest.MonkeyPatch.context() as patch:  # one of its own: tests undo theirs
        patch.setattr(time, "sleep", lambda seconds: sleep(0.1 if seconds == 1 else seconds))
        yield


@pytest.fixture(scope="session", autouse=True)
def _schemas_checked_once() -> Iterator[None]:
    """Airflow checks the schema of every param of every task again each time it looks at it: a tenth of these tests."""
    real, good = Draft202012Validator.check_schema, set[str]()

    def check(schema: Any, **options: Any) -> None:
        known = json.dumps(schema, sort_keys=True, default=repr)
        if known not in good:
            real(schema, **options)
            good.add(known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draft202012Validator, "check_schema", check)
        yield


@pytest.fixture(autouse=True)
def _java_of_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment names its Java; these tests need none of the machine's."""
    from omnigraph_ops.spark.java import java_home

    monkeypatch.setenv("JAVA_HOME", java_home())


def _parsed() -> Any:
    """Every DAG by its id, parsed the way the DAG processor does it."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(str(ROOT / "dags"))
    assert not bag.import_errors
    return bag.dags


@pytest.fixture
def dags(airflow_db: None) -> Any:
    """Every DAG by its id, fresh: `dag.test(run_conf=...)` leaves its values in the DAG's params."""
    return _parsed()


@pytest.fixture(scope="session")
def dag(airflow_db: None) -> Any:
    """The nightly DAG."""
    return _parsed()[DAG_ID]


@pytest.fixture
def answer_hitl(api: Any) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Answers approvals of a running `dag.test()` through the REST API, from a thread, as a person would."""
    stop, answers, seen = threading.Event(), dict[str, tuple[str, dict[str, Any]]](), list[dict[str, Any]]()
    sleep, idled = time.sleep, list[float]()

    def noted(seconds: float) -> None:
        if seconds == 1:  # as `dag.test()` does where nothing is left to run
            idled.append(seconds)
        sleep(seconds)

    def loop() -> None:
        first: dict[str, int] = {}
        while not stop.is_set():
            pending = api.get("/api/v2/dags/~/dagRuns/~/hitlDetails", params=PENDING).json()
            asked = {request["task_instance"]["id"]: request for request in pending["hitl_details"]}
            # `dag.test()` overwrites an answer that comes while it still writes that the task waits.
            first = {number: first.get(number, len(idled)) for number in asked}
            for number, request in asked.items():
                ti = request["task_instance"]
                if ti["task_id"] in answers and len(idled) > first[number]:
                    run = quote(ti["dag_run_id"], safe="")
                    path = f"/api/v2/dags/{ti['dag_id']}/dagRuns/{run}/taskInstances/{ti['task_id']}"
                    option, form = answers[ti["task_id"]]
                    body = {"chosen_options": [option], "params_input": form}
                    seen.append(request)
                    api.patch(f"{path}/{ti['map_index']}/hitlDetails", json=body).raise_for_status()
            time.sleep(0.2)

    def add(task_id: str, option: str, **form: Any) -> list[dict[str, Any]]:
        answers[task_id] = (option, form)
        return seen

    thread = threading.Thread(target=loop, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", noted)
        thread.start()
        yield add
        stop.set()
        thread.join(60)


@pytest.fixture(scope="session")
def unanswered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], None]]:
    """Makes a `spark-submit` that says and returns what Spark does where no master answers.

    Spark asks for a whole minute, and no setting makes that shorter: it does so beside the tests that come before.
    """
    from omnigraph_ops.spark.submit import APPLICATION, spark_submit
    from tests.support.spark_cluster import environment

    log = tmp_path_factory.mktemp("unanswered") / "log"
    words = ("orphans", "--graph", str(log.with_name("nothing")), "--plan-id", "1")
    with log.open("wb") as output:
        asking = subprocess.Popen(
            [spark_submit("the test"), "--master", "spark://127.0.0.1:1", str(APPLICATION), *words],
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def replay(binary: Path) -> None:
        code = asking.wait(600)
        binary.write_text(f"#!/bin/sh\ncat '{log}'\nexit {code}\n")
        binary.chmod(0o755)

    yield replay
    if asking.poll() is None:
        os.killpg(asking.pid, signal.SIGKILL)
        asking.wait()
