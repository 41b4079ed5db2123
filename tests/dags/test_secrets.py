"""A whole night on S3 with credentials that only a connection has: it works, and they are written nowhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.demo import DemoSpec
from tests.support.runs import Finished
from tests.support.s3 import REAL_STORE, s3_client

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.s3,
    pytest.mark.xdist_group("airflow"),
    pytest.mark.skipif(REAL_STORE, reason="this store takes one key only"),
]
ROOT = Path(__file__).resolve().parents[2]
CANARY = "canary-5d1c0e7b"


def stored(bucket: str) -> Iterator[tuple[str, bytes]]:
    """Every object of a bucket."""
    client = s3_client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for item in page.get("Contents", []):
            yield item["Key"], client.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()


def written(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of Airflow: its database and its logs."""
    yield from ((str(path), path.read_bytes()) for path in folder.rglob("*") if path.is_file())


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize(
    "executor", [pytest.param("in_process", marks=pytest.mark.night), pytest.param("spark", marks=pytest.mark.spark)]
)
def test_a_night_by_the_connection_alone(
    executor: str,
    s3_graph: Callable[[DemoSpec], str],
    s3_server: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    uri = s3_graph(DemoSpec(node_types=1, loads=3, rows=20))
    night = _night(uri, s3_server, executor, tmp_path, monkeypatch)
    assert night.state == "success", night.tasks
    assert night.of("submit_rewrite" if executor == "spark" else "optimize_table")[0] == "success"
    out, err = capfd.readouterr()
    places: list[tuple[str, bytes]] = [("stdout", out.encode()), ("stderr", err.encode())]
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    places += [*written(Path(os.environ["AIRFLOW_HOME"])), *stored(uri.split("/")[2])]
    assert [where for where, content in places if CANARY.encode() in content] == []


def _night(uri: str, endpoint: str, executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Finished:
    from airflow.dag_processing.dagbag import DagBag

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    # Without it a client that finds no credentials asks the network for a role.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    extra = {"endpoint_url": endpoint, "session_token": CANARY}
    connection: dict[str, Any] = {"conn_type": "omnigraph", "login": CANARY, "password": CANARY, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    (tmp_path / "graphs.yaml").write_text(
        "version: 1\ngraphs:\n  people:\n"
        f"    target: {uri}\n    connection: lake\n    schedule: null\n    window: {{quiet_for: 0s}}\n"
        f"    retention: {{keep: 2}}\n    optimize: {{executor: {executor}}}\n"
        "    approvals: {cleanup: {max_versions: 1000, max_bytes: 1TiB}}\n"
    )
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(tmp_path / "graphs.yaml"))
    return Finished(DagBag(str(ROOT / "dags")).dags["omnigraph_maintenance__people"].test())
