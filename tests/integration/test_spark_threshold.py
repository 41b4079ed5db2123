"""The threshold that `calibrate` prints decides where `plan` sends a rewrite."""

from __future__ import annotations

import json

import pytest

from omnigraph_ops.calibration.jobs import Calibration, calibration_view
from omnigraph_ops.calibration.rewrites import Line
from omnigraph_ops.cli import main
from omnigraph_ops.graph import Graph
from tests.conftest import DemoGraph

TABLE = "node:Person"


def planned(graph: Graph, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert main(["plan", graph.uri, "--json", "--quiet"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    return next(t for t in tables if t["table_key"] == TABLE)


@pytest.mark.slow
def test_the_printed_variable_steers_plan(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = demo_graph(node_types=1, loads=3, rows=20)
    size = int(str(planned(graph, capsys)["rewrite_bytes"]))
    assert size > 0
    some = Line(fixed_seconds=1, bytes_per_second=1)
    for threshold, executor in ((size, "spark"), (size + 1, "in_process"), (None, "in_process")):
        found = Calibration(master="local[2]", in_process=some, spark=some, threshold_bytes=threshold)
        name, _, value = dict(calibration_view(found).facts)["Set"].partition("=")
        monkeypatch.setenv(name, value)
        assert planned(graph, capsys)["executor"] == executor
