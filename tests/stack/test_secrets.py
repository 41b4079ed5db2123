"""After the nights: no secret is anywhere but in the environment and in the two files that keep accounts."""

from __future__ import annotations

import pytest

from tests.stack.canary import canaries, database_dump, found_in, found_in_files
from tests.stack.compose import VARIABLE
from tests.stack.conftest import HEAVY, Nights, as_user
from tests.stack.running import Stack

KEPT = ("volumes/auth/passwords.json", "volumes/accounts")
"""The UI's passwords and the store's accounts: each in a volume of its own."""
CONNECTION = {
    "connection_id": "lake",
    "conn_type": "omnigraph",
    "login": "nobody",
    "password": "c4a6e1f05bd24c0c9d7e",
    "host": HEAVY,
}


@pytest.fixture(scope="module")
def secrets(stack: Stack) -> dict[str, str]:
    """The secrets of this stack, which no other has."""
    return canaries(stack.variables)


def test_all_that_should_be_secret_is_looked_for(stack: Stack, secrets: dict[str, str]) -> None:
    open_ones = {"OMNIGRAPH_GRAPH", "AIRFLOW_PORT"} | {n for n in stack.variables if n.endswith("_ACCESS_KEY")}
    assert set(secrets) == set(stack.variables) - open_ones
    assert len(set(secrets.values())) == len(secrets)
    assert not VARIABLE.search("".join(secrets.values()))


def test_the_search_finds_what_is_there(stack: Stack, nights: Nights, secrets: dict[str, str]) -> None:
    found = found_in_files(stack.home, secrets)
    assert set(map(tuple, found.values())) >= {
        ("AIRFLOW_ADMIN_PASSWORD", "AIRFLOW_OPERATOR_PASSWORD", "AIRFLOW_VIEWER_PASSWORD"),
        ("S3_MAINTAINER_SECRET_KEY", "S3_READER_SECRET_KEY"),
    }


def test_no_file_of_the_stack_holds_a_secret(stack: Stack, nights: Nights, secrets: dict[str, str]) -> None:
    """Logs of Airflow, Spark and the store, work folders, the database's files, the graphs with their maintenance."""
    assert found_in_files(stack.home, secrets, but=KEPT) == {}
    searched = {path.relative_to(stack.home).parts[1] for path in stack.home.glob("volumes/*/**/*") if path.is_file()}
    assert {"logs", "objects", "database"} < searched
    assert any(path.is_file() for path in stack.home.glob("volumes/spark-worker-*/**/stderr"))
    assert any("__maintenance" in path.parts for path in stack.home.glob("volumes/objects/**/*"))


def test_no_row_of_the_metadata_database_holds_a_secret(stack: Stack, nights: Nights, secrets: dict[str, str]) -> None:
    """XComs, rendered fields, the log, params of runs, serialised DAGs."""
    admin = as_user(stack, "admin")
    admin.call("POST", "/api/v2/connections", CONNECTION)
    shown = admin.call("GET", "/api/v2/connections/lake")
    dump, secrets = database_dump(stack), {**secrets, "connection": str(CONNECTION["password"])}
    for table in ("xcom", "rendered_task_instance_fields", "log", "dag_run", "connection"):
        assert f"COPY public.{table} (" in dump
    assert nights.heavy in dump
    assert found_in(dump, secrets) == []
    assert found_in(str(shown), secrets) == []


def test_no_argument_and_no_page_of_spark_shows_a_secret(nights: Nights, secrets: dict[str, str]) -> None:
    arguments, pages = b"\n".join(nights.watch.arguments), "\n".join(nights.watch.pages.values())
    assert b"application.py" in arguments
    assert b"CoarseGrainedExecutorBackend" in arguments
    assert "sparkProperties" in pages
    assert found_in(arguments, secrets) == []
    assert found_in(pages, secrets) == []
