"""Graphs in the stack's store, as one of its accounts sees them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.storage.location import StoreAccess
from tests.stack.compose import ROOT
from tests.stack.running import Stack


def account(stack: Stack, role: str) -> dict[str, str]:
    """The variables by which the clients become an account: `MAINTAINER`, `READER`. Pure."""
    return {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{stack.machine.port('s3', 7070)}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": stack.variables[f"S3_{role}_ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": stack.variables[f"S3_{role}_SECRET_KEY"],
    }


def open_as(stack: Stack, role: str, uri: str) -> Graph:
    """A graph of the store. Reads."""
    return open_graph(uri, Settings(), StoreAccess(variables=account(stack, role)))


def shell(variables: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """One call of `omnigraph-ops`. May write."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        # No credentials but those given.
        "HOME": os.devnull,
        **variables,
    }
    command = [sys.executable, "-m", "omnigraph_ops", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def seeder(stack: Stack, monkeypatch: pytest.MonkeyPatch, **more: str) -> ModuleType:
    """`stack/seed.py` in this process, for this stack's store. Changes the environment."""
    store = {name: value for name, value in account(stack, "MAINTAINER").items() if "KEY" not in name}
    accounts = {name: value for name, value in stack.variables.items() if name.startswith("S3_")}
    for name, value in {**store, **accounts, **more}.items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("stack_seed", ROOT / "stack" / "seed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listing(seed: Any, bucket: str) -> dict[str, str]:
    """Every object of a bucket with its ETag, as root sees it. Reads."""
    pages = seed.client("ROOT").get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return {found["Key"]: found["ETag"] for page in pages for found in page.get("Contents", ())}
