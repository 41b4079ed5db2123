"""Plain Lance on s3://: a database and one of its datasets, and parts of a graph at the root of a bucket."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.guards import quiet_state
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import NotAGraph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.storage.location import AMBIENT
from tests.support import plain
from tests.support.rows import digest_of
from tests.support.s3 import s3_client, upload_graph

pytestmark = pytest.mark.s3


def content(uri: str) -> str:
    return digest_of(lance.dataset(uri, storage_options=AMBIENT.lance(uri)).to_table(scan_in_order=True))


def test_a_database_in_a_bucket(s3: str, tmp_path: Path) -> None:
    for name, stable in (("my items", True), ("users", False)):
        plain.indexed(tmp_path / "db" / f"{name}.lance", stable=stable)
    uri = upload_graph(tmp_path / "db")
    rows = [content(f"{uri}/{name}.lance") for name in ("my items", "users")]
    settings = Settings(small_table_bytes=0)
    one = open_graph(f"{uri}/my items.lance", settings)
    assert [t.committed for t in optimize_all(one).tables] == [True]
    graph = open_graph(uri, settings)
    assert quiet_state(graph, 0)[0]
    assert [t.committed for t in optimize_all(graph).tables] == [False, True]
    report = cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1)))
    assert not report.failed, report.failed
    assert report.versions_removed > 20
    assert check(graph).drift == ()
    assert plan_orphans(graph).unknown == ()
    assert [content(f"{uri}/{name}.lance") for name in ("my items", "users")] == rows


def test_a_text_search_keeps_its_hits_in_a_bucket(s3: str, tmp_path: Path) -> None:
    words = pa.table({"id": range(300), "text": [f"common word{i}" for i in range(300)]})
    path = tmp_path / "db" / "my docs.lance"
    dataset = lance.write_dataset(words, str(path), enable_stable_row_ids=True, max_rows_per_file=50)
    dataset.create_scalar_index("text", "INVERTED", name="text_idx")
    dataset.delete("id % 3 = 0")
    lance.dataset(str(path)).optimize.compact_files()
    uri = upload_graph(tmp_path / "db")

    def found() -> int:
        there = lance.dataset(f"{uri}/my docs.lance", storage_options=AMBIENT.lance(uri))
        search = there.scanner(full_text_query="common", limit=20, columns=["id", "_score"])
        return int(search.to_table().num_rows)

    assert found() < 20
    assert not optimize_all(open_graph(uri)).failed
    assert found() == 20
    assert not any(table.committed for table in optimize_all(open_graph(uri)).tables)


def test_a_table_of_a_graph_that_fills_its_bucket_is_not_taken_alone(s3: str, tmp_path: Path) -> None:
    write_demo_graph(str(tmp_path / "graph"), DemoSpec(loads=1, rows=4, node_types=1))
    client, bucket = s3_client(), "wholegraph"
    client.create_bucket(Bucket=bucket)
    for file in (tmp_path / "graph").rglob("*"):
        if file.is_file():
            client.upload_file(str(file), bucket, str(file.relative_to(tmp_path / "graph")))
    path = open_graph(f"s3://{bucket}").state().entries[0].path
    with pytest.raises(NotAGraph, match="is a part of the graph"):
        open_graph(f"s3://{bucket}/{path}")
