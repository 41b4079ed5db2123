"""A schema apply drops or renames a table while an optimize of it is armed, whose process is killed then.

Engine 0.9 looks for the table of a sidecar by its identity and refuses one that has another name by now. It restores a
table that is not published any more to version 0, and so does 0.7.2 by its source. So every open fails, unless
`recover` settles the sidecar.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import SCHEMA_IR_FILE, SCHEMA_STATE_FILE
from omnigraph_ops.graph.publish import merge_rows
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.graph.state import MANIFEST_SCHEMA_6
from omnigraph_ops.models.health import CheckStatus, SidecarClass
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.crash.harness_state import QUICK
from tests.support.orphans import drop
from tests.support.rows import rows_everywhere
from tests.support.sidecars import EDGE, arm, audit_rows, move
from tests.support.writers import entry_of

pytestmark = pytest.mark.slow
RENAMED = "edge:Likes"


@pytest.fixture
def graph(demo_graph: Callable[..., Graph], stamp: int) -> Graph:
    """Fragmented tables and nothing pending."""
    return demo_graph(stamp=stamp, loads=3, rows=8, settings=QUICK)


def evolved(graph: Graph, change: Callable[[list[dict[str, Any]]], None]) -> Graph:
    """The graph with a changed list of edge types in its schema. Writes."""
    ir, state = (json.loads(graph.storage.read(name)) for name in (SCHEMA_IR_FILE, SCHEMA_STATE_FILE))
    change(ir["edges"])
    text = json.dumps(ir, separators=(",", ":"), ensure_ascii=False)
    state["schema_ir_hash"] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    graph.storage.write(SCHEMA_IR_FILE, text.encode())
    graph.storage.write(SCHEMA_STATE_FILE, json.dumps(state).encode())
    return open_graph(graph.uri, QUICK)


def without_knows(edges: list[dict[str, Any]]) -> None:
    edges[:] = [edge for edge in edges if edge["name"] != "Knows"]


def knows_as_likes(edges: list[dict[str, Any]]) -> None:
    for edge in edges:
        edge["name"] = "Likes" if edge["name"] == "Knows" else edge["name"]


@pytest.mark.parametrize("moved", [False, True], ids=["armed", "committed"])
def test_a_dropped_table_takes_its_sidecar_along(graph: Graph, moved: bool) -> None:
    arm(graph, EDGE)
    if moved:
        move(graph, EDGE)
    drop(graph, EDGE)
    graph = evolved(graph, without_knows)
    rows = rows_everywhere(graph)
    (finding,) = check(graph).sidecars
    assert (finding.classification, finding.recoverable) == (SidecarClass.ROLL_BACK, True)
    report = recover(graph)
    assert ([o.action for o in report.outcomes], report.status) == (["rolled_back"], CheckStatus.CLEAN)
    assert not sidecar_names(graph.storage)
    assert [(row["recovery_kind"], row["per_table_outcomes_json"]) for row in audit_rows(graph)] == [
        ("RolledBack", "[]")
    ]
    assert rows_everywhere(graph) == rows


@pytest.mark.parametrize("moved", [False, True], ids=["armed", "committed"])
def test_a_renamed_table_is_found_by_its_identity(demo_graph: Callable[..., Graph], moved: bool) -> None:
    graph = demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)
    arm(graph, EDGE)
    head = move(graph, EDGE) if moved else entry_of(graph, EDGE).version
    manifest = graph.manifest()
    registered = manifest.to_table(filter=f"object_type = 'table' AND table_key = '{EDGE}'").to_pylist()
    merge_rows(manifest, pa.Table.from_pylist([registered[0] | {"table_key": RENAMED}], MANIFEST_SCHEMA_6))
    graph = evolved(graph, knows_as_likes)
    report = recover(graph)
    action = "rolled_forward" if moved else "rolled_back"
    assert ([o.action for o in report.outcomes], report.status) == ([action], CheckStatus.CLEAN)
    assert entry_of(graph, RENAMED).version == head
    assert not sidecar_names(graph.storage)
