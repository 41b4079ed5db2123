"""A stage that is one line in the registry has its button and the pages of its plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph_ops.coordination import sealed
from omnigraph_ops.stages.registry import BY_NAME
from tests.conftest import DemoGraph
from tests.support.page import DIGEST, Client, get
from tests.support.toy_stage import Toy, ToyRequest

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]


def test_the_page_shows_its_button_and_its_plan(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(loads=1)
    graphs_file(people=graph.uri)
    plan = Toy().plan(graph, ToyRequest(marks=3, color="red"), print)
    sealed.store(graph.storage, plan)
    assert "no stage" in get(client(), f"/graphs/people/plans/toy/{DIGEST}", 404)
    monkeypatch.setitem(BY_NAME, "toy", Toy())
    shown = get(client(), f"/graphs/people/plans/toy/{plan.digest}")
    assert all(text in shown for text in ("Plan of some marks", "red-0", "red-2", plan.digest))
    assert "Mark the graph" in get(client(), "/graphs/people")
