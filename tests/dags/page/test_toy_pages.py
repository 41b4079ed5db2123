"""A stage that is one line in the registry has its button and the pages of its plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph_ops.coordination import sealed
from omnigraph_ops.progress import SILENT
from tests.conftest import DemoGraph
from tests.support.page import DIGEST, Client, get
from tests.support.toy_stage import Shelve, ShelveRequest, register

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]


def test_the_page_shows_its_button_and_its_plan(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(loads=1)
    graphs_file(people=graph.uri)
    plan = Shelve().plan(graph, ShelveRequest(markers=3), SILENT)
    sealed.store(graph.storage, plan)
    assert "no stage" in get(client(), f"/graphs/people/plans/shelve/{DIGEST}", 404)
    register(monkeypatch)
    shown = get(client(), f"/graphs/people/plans/shelve/{plan.digest}")
    assert all(text in shown for text in ("3 markers", "marker-0", "marker-2", plan.digest))
    assert "Shelve markers" in get(client(), "/graphs/people")
