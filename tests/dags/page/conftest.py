"""Airflow's own application with real users and the page in it, and graphs files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from omnigraph_airflow import PAGES

from tests.support.page import ROLES, Client


@pytest.fixture(scope="module")
def airflow_app(airflow_db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Airflow's own application, with real users."""
    from airflow.api_fastapi.app import create_app

    passwords = tmp_path_factory.mktemp("users") / "passwords.json"
    passwords.write_text(json.dumps({role: role for role in ROLES}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", ",".join(f"{role}:{role}" for role in ROLES))
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", str(passwords))
        yield create_app(apps="core")


@pytest.fixture
def server(airflow_app: Any) -> Iterator[Any]:
    """The page mounted in Airflow's application, whether it is installed as a plugin or not; nothing read yet."""
    from omnigraph_airflow.page.app import create_page
    from starlette.routing import Mount

    airflow_app.router.routes.insert(0, Mount(PAGES, create_page()))
    yield airflow_app
    del airflow_app.router.routes[0]


@pytest.fixture
def client(server: Any) -> Callable[..., Client]:
    """A client signed in as the user of that role, or as nobody."""
    from fastapi.testclient import TestClient

    def make(role: str | None = "admin") -> Client:
        made = TestClient(server, base_url="http://testserver", raise_server_exceptions=False)
        if role is not None:
            body = {"username": role, "password": role}
            token = made.post("/auth/token", json=body).json()["access_token"]
            made.headers["authorization"] = f"Bearer {token}"
        return made

    return make


@pytest.fixture
def graphs_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes a graphs file: the targets of graphs by their names."""

    def write(**targets: str) -> None:
        path = tmp_path / "graphs.yaml"
        entries = {name: {"target": target} for name, target in targets.items()}
        path.write_text(json.dumps({"version": 1, "graphs": entries}))
        monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(path))

    return write
