"""Who gets what of the page, and what every answer forbids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from omnigraph_airflow import PAGES

from tests.conftest import DemoGraph
from tests.support.page import ROLES, ROUTES, Client, Tags, get

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]


def test_nobody_gets_nothing(client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph) -> None:
    graphs_file(people=demo_graph(loads=1).uri)
    anonymous = client(None)
    for path in ROUTES:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
            answer = anonymous.request(method, PAGES + path, follow_redirects=False)
            assert answer.status_code == 401, (method, path)
            assert "people" not in answer.text and "location" not in answer.headers
    anonymous.headers["authorization"] = "Bearer forged"
    assert {anonymous.get(PAGES + path).status_code for path in ROUTES} == {403}


@pytest.mark.parametrize("role", ROLES)
def test_who_may_read_dags_may_read_and_who_may_trigger_gets_buttons(
    role: str, client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph
) -> None:
    graphs_file(people=demo_graph(loads=1).uri)
    who = client(role)
    assert "people" in get(who, "/")
    page = get(who, "/graphs/people")
    links = {attrs.get("href") for tag, attrs in Tags(page).found if tag == "a" and "data-airflow" in attrs}
    wanted = {f"/dags/{d}" for d in ("omnigraph_maintenance__people", "omnigraph_repair", "omnigraph_cleanup")}
    assert (wanted <= links) is (role != "viewer")
    assert bool(links) is (role != "viewer")


@pytest.mark.parametrize(
    ("mine", "advice"),
    [
        (("omnigraph_cleanup", "omnigraph_orphans"), "for Clean up versions, Remove orphans choose"),
        (("omnigraph_maintenance__people",), None),
    ],
)
def test_the_forms_that_need_the_graph_are_those_that_are_offered(
    mine: tuple[str, ...],
    advice: str | None,
    *,
    client: Callable[..., Client],
    graphs_file: Any,
    demo_graph: DemoGraph,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    def starts_mine(self: Any, *, method: str, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        return method != "POST" or details.id in mine

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", starts_mine)
    graphs_file(people=demo_graph(loads=1).uri)
    page = get(client(), "/graphs/people")
    assert "opens the form" in page
    assert advice in page if advice else "as the graph" not in page


def test_a_graph_is_as_visible_as_its_dag(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    asked = []

    def only_orders(self: Any, *, method: str, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        asked.append((method, access_entity, details and details.id))
        return details is None or details.id is None or details.id == "omnigraph_maintenance__orders"

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", only_orders)
    graphs_file(people=demo_graph(loads=1).uri, orders=demo_graph(loads=1, name="orders").uri)
    viewer = client("viewer")
    listed = get(viewer, "/")
    assert "orders" in listed and "people" not in listed
    get(viewer, "/graphs/orders")
    unknown = get(viewer, "/graphs/nothing", 404)
    for path in ROUTES[1:5]:
        assert get(viewer, path, 404) == unknown, "a graph that may not be seen is told from one that is not there"
    assert ("GET", DagAccessEntity.XCOM, "omnigraph_maintenance__people") in asked
    asked.clear()
    get(viewer, "/graphs/orders")
    assert "omnigraph_maintenance__people" not in {dag_id for _, _, dag_id in asked}, "nobody asked for that graph"


def test_who_may_see_no_dag_gets_no_page(client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", lambda self, **asked: False)
    who = client("viewer")
    for path in ROUTES:
        assert "may not see this" in get(who, path, 403)


def test_every_answer_forbids_scripts_from_elsewhere_and_other_frames(client: Callable[..., Client]) -> None:
    for who in (client(None), client("admin")):
        for path in ROUTES:
            headers = who.get(PAGES + path).headers
            policy = headers["content-security-policy"]
            assert "unsafe" not in policy and "default-src 'none'" in policy and "frame-ancestors 'self'" in policy
            assert headers["x-frame-options"] == "SAMEORIGIN" and headers["x-content-type-options"] == "nosniff"


def test_only_get_and_no_redirects(client: Callable[..., Client]) -> None:
    admin = client()
    for path in ("/", "/graphs/deployment", "/nothing"):
        assert admin.post(PAGES + path).status_code == 405
    for path in ("//example.com/", "/graphs/x/", "/https://example.com", "/graphs/deployment/table?next=//example.com"):
        assert admin.get(PAGES + path, follow_redirects=False).status_code == 404
