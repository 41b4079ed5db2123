"""What a task of the job `orphans` does with what it cannot read, and with what it cannot write."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import StorageError
from omnigraph_ops.spark.orphans_tasks import read_references_of
from tests.conftest import DemoGraph
from tests.support.sidecars import TABLE
from tests.support.writers import entry_of

NUMBERS = [pa.RecordBatch.from_pydict({"id": [0]})]


def test_a_part_that_cannot_be_written_is_no_dataset_that_cannot_be_read(demo_graph: DemoGraph) -> None:
    """Else the plan would be empty, and the command would end well: on a full disk, of all places."""
    graph = demo_graph()
    Path(graph.uri, "file").touch()
    with pytest.raises(StorageError):
        list(read_references_of(graph.uri, Settings(), "file", [entry_of(graph, TABLE).path], NUMBERS))


def test_a_dataset_that_cannot_be_read_is_left_out_of_the_plan(demo_graph: DemoGraph) -> None:
    graph = demo_graph()
    path = entry_of(graph, TABLE).path
    for manifest in Path(graph.uri, path, "_versions").iterdir():
        manifest.write_bytes(b"damaged")
    (found,) = list(read_references_of(graph.uri, Settings(), "parts", [path], NUMBERS))
    (row,) = found.column(0).to_pylist()
    assert json.loads(row)["problem"]
