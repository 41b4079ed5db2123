"""The history of a graph in a bucket, reached as the graph is: by the environment, or by access of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.outcomes import history
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.storage.location import StoreAccess
from tests.support import plain
from tests.support.history import record
from tests.support.s3 import upload_graph

pytestmark = pytest.mark.s3


def test_a_history_in_a_bucket(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.indexed(tmp_path / "db" / "items.lance", stable=True)
    uri = upload_graph(tmp_path / "db")
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    # A real store knows no others; the environment loses them below.
    access = StoreAccess(variables={name: os.environ[name] for name in names})
    graph = open_graph(uri, Settings(), access)
    told = f"denied for {access.variables[names[1]]}"
    for name in names:
        monkeypatch.delenv(name)
    for outcome in (RunOutcome.FAILED, RunOutcome.SUCCEEDED):
        history.append(graph, record("night", outcome=outcome, errors=(told,)))
    (run,) = history.read_runs(graph)
    assert (run.outcome, run.errors) == (RunOutcome.SUCCEEDED, ("denied for ***",))
    assert plan_orphans(graph).unknown == ()
