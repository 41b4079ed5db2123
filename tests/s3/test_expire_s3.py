"""Rows expire on a store whose reply to the commit is lost: what the commit refers to stays."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.rows import RowBounds, RowPolicy
from omnigraph_ops.spark.expire_job import delete_on_worker
from omnigraph_ops.stages.expire_rows.apply import DeletesDone, SubmittedDelete, delete_here, expire_rows
from omnigraph_ops.stages.expire_rows.plan import plan_row_retention
from omnigraph_ops.storage.location import AMBIENT
from tests.support.events import ITEMS, items
from tests.support.fault_proxy import losing_one_reply
from tests.support.s3 import upload_graph

pytestmark = [pytest.mark.s3, pytest.mark.spark]
POLICY = RowPolicy(table_key=ITEMS, property="at", older_than_secs=30 * 86_400)


def one_task(job: str, words: Sequence[str], value: type[Any], check: Callable[[], None]) -> Any:
    """The job with one task, which is this process."""
    said = dict(zip((w.removeprefix("--") for w in words[::2]), words[1::2], strict=True))
    arguments = Namespace(**said | {"version": int(said["version"])})
    return DeletesDone(tasks=(delete_on_worker(arguments, range(3)),))


@pytest.mark.night("combinations")
@pytest.mark.parametrize("status", [None, 500, 503])
@pytest.mark.parametrize("on_spark", [True, False])
def test_a_commit_without_a_reply_keeps_its_files(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_spark: bool, status: int | None
) -> None:
    items(tmp_path / "data", [0, 10, 29, 31, 60, None, 61, 62, 5], rows_per_file=3)
    uri = upload_graph(tmp_path / "data")
    with losing_one_reply(s3, r"^PUT .*/items.lance/_versions/", status=status) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        graph = open_graph(uri, Settings())
        delete = delete_here
        if on_spark:
            delete = SubmittedDelete(submit=one_task, graph=graph)
        plan = plan_row_retention(graph, [POLICY], bounds=RowBounds(max_share=1.0))
        (stats,) = expire_rows(graph, plan, engine=None, delete=delete).tables
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    assert len(proxy.lost) == 1
    dataset = lance.dataset(f"{uri}/items.lance", storage_options=AMBIENT.lance(uri))
    assert sorted(dataset.to_table().column("id").to_pylist()) == [0, 1, 2, 5, 8]
    assert (stats.rows_removed, stats.rows_left) == (4, 0)
