"""A graph in a bucket whose connection has the keys: its driver gets them and its settings, and nobody sees them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.graph import open_graph
from tests.support.operators import Run
from tests.support.spark_cluster import environment

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("airflow")]
_DRIVER = """\
import json, os, pathlib, sys
from omnigraph_ops.spark import application
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps([sys.argv, dict(os.environ)]))
sys.exit(application.main())
"""


@pytest.mark.night
def test_a_driver_gets_the_keys_and_the_settings_of_its_graph(
    s3_graph: Callable[[DemoSpec], str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    from omnigraph_airflow.operators import spark_jobs
    from omnigraph_airflow.operators.stages import PlanStageOperator

    graph = open_graph(s3_graph(DemoSpec(node_types=1, loads=1, rows=5)))
    secret, driver = os.environ["AWS_SECRET_ACCESS_KEY"], tmp_path / "driver.py"
    connection = {
        "conn_type": "omnigraph",
        "login": os.environ["AWS_ACCESS_KEY_ID"],
        "password": secret,
        "extra": {
            "endpoint_url": os.environ["AWS_ENDPOINT_URL"],
            "region_name": os.environ["AWS_REGION"],
            "settings": {"spark_stages": ["orphans"], "history_days": 7},
        },
    }
    said = {"target": graph.uri, "connection": "store", "settings": {"plan_ttl": "3h"}}
    (tmp_path / "graphs.yaml").write_text(json.dumps({"version": 1, "graphs": {"mine": said}}))
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(tmp_path / "graphs.yaml"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setattr(spark_jobs, "APPLICATION", str(driver))
    driver.write_text(_DRIVER)
    caplog.set_level(logging.DEBUG)
    operator = PlanStageOperator(task_id="plan", stage="orphans", graph="mine")
    done = Run(graph).execute(operator)
    assert done.state == "success", done.sentence
    words, variables = json.loads(driver.with_suffix(".json").read_text())
    assert variables["AWS_SECRET_ACCESS_KEY"] == secret
    assert (variables["OMNIGRAPH_OPS_PLAN_TTL_SECONDS"], variables["OMNIGRAPH_OPS_HISTORY_DAYS"]) == ("10800", "7")
    fields = {name: getattr(operator, name) for name in operator.template_fields}
    shown = [*capfd.readouterr(), caplog.text, str(done), str(words), str(fields)]
    assert not [text for text in shown if secret in text]
