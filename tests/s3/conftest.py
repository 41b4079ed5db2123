"""Graphs on a real S3 server, one server per worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from omnigraph_ops.demo import DemoSpec, write_demo_graph

SERVER = Path(__file__).parent / "locked_moto.py"


def _start(folder: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    port_file = folder / "port"
    process = subprocess.Popen([sys.executable, str(SERVER), str(port_file), *arguments])
    deadline = time.monotonic() + 60
    while not (port_file.exists() and port_file.read_text()):
        if time.monotonic() > deadline or process.poll() is not None:
            raise RuntimeError("the S3 server did not start")
        time.sleep(0.05)
    return process, f"http://127.0.0.1:{port_file.read_text()}"


@pytest.fixture(scope="module", params=[()], ids=["s3"])
def s3_server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    process, url = _start(tmp_path_factory.mktemp("s3"), *request.param)
    try:
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The endpoint, with the environment that the engine and this tool read."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_server,
    }.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def s3_graph(s3: str, tmp_path: Path) -> Callable[[DemoSpec], str]:
    """Write a demo graph locally and put it into a bucket, key by key."""
    client = boto3.client("s3", endpoint_url=s3, region_name="us-east-1")

    def make(spec: DemoSpec) -> str:
        bucket = f"b{os.urandom(6).hex()}"
        local = tmp_path / bucket
        write_demo_graph(str(local), spec)
        client.create_bucket(Bucket=bucket)
        for file in local.rglob("*"):
            if file.is_file() and file.name != "latest_version_hint.json":
                client.upload_file(str(file), bucket, f"graphs/kb.omni/{file.relative_to(local)}")
        return f"s3://{bucket}/graphs/kb.omni"

    return make
