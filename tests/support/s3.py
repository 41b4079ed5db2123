"""An S3 server per worker and graphs in it: LockedMoto, or versitygw where OMNIGRAPH_TEST_S3 says so."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
MOTO = ROOT / "tests" / "s3" / "locked_moto.py"
REAL_STORE = os.environ.get("OMNIGRAPH_TEST_S3") == "versitygw"
GRAPH_KEY = "graphs/kb.omni"
_START_SECONDS = 240
# The engine and this tool read these; moto takes any pair, versitygw is given this one.
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test-secret-123",
    "AWS_REGION": "us-east-1",
}


@contextmanager
def running_server(folder: Path, *arguments: str) -> Iterator[str]:
    """An S3 server with its data below `folder`; its endpoint. Writes."""
    # Only moto can be told to forget what it was asked.
    start = _versitygw if REAL_STORE and not arguments else _moto
    process, url = start(folder, *arguments)
    try:
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session", params=[()], ids=["s3"])
def s3_server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """The endpoint of a server of this worker; every test has buckets of its own."""
    with running_server(tmp_path_factory.mktemp("s3"), *request.param) as url:
        yield url


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The endpoint, with the environment that the engine and this tool read."""
    for name, value in (_ENVIRONMENT | {"AWS_ENDPOINT_URL": s3_server}).items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def bucket(s3: str) -> str:
    """The URI of a new bucket."""
    return f"s3://{_new_bucket()}"


@pytest.fixture
def s3_graph(s3: str, tmp_path: Path) -> Callable[[DemoSpec], str]:
    """Write a demo graph locally and put it into a bucket, key by key."""

    def make(spec: DemoSpec) -> str:
        local = tmp_path / os.urandom(6).hex()
        write_demo_graph(str(local), spec)
        return upload_graph(local)

    return make


def s3_client() -> Any:
    """A client of the server that the environment names. Reads the environment."""
    return _client(os.environ["AWS_ENDPOINT_URL"])


@functools.cache
def _client(url: str) -> Any:
    import boto3  # most runs need none, and all load this file

    return boto3.client("s3", endpoint_url=url, region_name="us-east-1")


def _new_bucket() -> str:
    name = f"b{os.urandom(6).hex()}"
    s3_client().create_bucket(Bucket=name)
    return name


def upload_graph(local: Path) -> str:
    """Put a local graph into a new bucket; its URI there. Writes."""
    client, bucket = s3_client(), _new_bucket()
    for file in local.rglob("*"):
        if file.is_file() and file.name != "latest_version_hint.json":
            client.upload_file(str(file), bucket, f"{GRAPH_KEY}/{file.relative_to(local)}")
    return f"s3://{bucket}/{GRAPH_KEY}"


def _moto(folder: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    port_file = folder / "port"
    process = subprocess.Popen([sys.executable, str(MOTO), str(port_file), *arguments])
    _wait(process, lambda: port_file.exists() and port_file.read_text() != "")
    return process, f"http://127.0.0.1:{port_file.read_text()}"


def _versitygw(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    binary = ROOT / ".stack" / "bin" / "versitygw"
    if not binary.exists():
        pytest.fail("versitygw is not installed; run `make test-stack`")
    data = folder / "data"
    data.mkdir()
    port = free_port()
    secrets = {
        "ROOT_ACCESS_KEY": _ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        "ROOT_SECRET_KEY": _ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
    }
    process = subprocess.Popen(
        [str(binary), "--quiet", "--health", "/_health", "--port", f"127.0.0.1:{port}", "posix", str(data)],
        env=os.environ | secrets,
        stdout=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    _wait(process, lambda: _answers(f"{url}/_health"))
    return process, url


def _wait(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not ready():
        if time.monotonic() > deadline or process.poll() is not None:
            process.kill()
            raise RuntimeError("the S3 server did not start")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
