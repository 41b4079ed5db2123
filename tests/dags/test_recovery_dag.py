"""Nights beside what a killed run left: finished first, by nobody, and the night goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.models import CheckStatus
from omnigraph_ops.optimize import optimize_table, plan_optimize
from omnigraph_ops.recovery import check
from tests.conftest import DemoGraph
from tests.support.kills import AFTER, BEFORE, kill_at
from tests.support.operators import disk_of
from tests.support.rows import rows_everywhere
from tests.support.runs import Finished
from tests.support.sidecars import audit_rows
from tests.support.tables import PERSON
from tests.support.writers import entry_of

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]


@dataclass(frozen=True)
class Crash:
    """Where an optimize of `PERSON` died, and what the night makes of it."""

    call: str
    mode: str
    ahead: bool
    """Whether the table's HEAD was left past its pin."""
    action: str


CRASHES = {
    "not moved": Crash("write __recovery", AFTER, ahead=False, action="rolled_back"),
    "moved": Crash("merge_insert", BEFORE, ahead=True, action="rolled_forward"),
    "published": Crash("merge_insert", AFTER, ahead=False, action="stale"),
}


def night(dag: Any, graph: Graph) -> Finished:
    conf = {"graph": graph.uri, "quiet_seconds": 0, "keep": 100, "older_than": None}
    return Finished(dag.test(run_conf=conf))


def heads(graph: Graph) -> dict[str, int]:
    return {e.table_key: graph.open_head(e).version for e in graph.state().entries}


def pins(graph: Graph) -> dict[str, int]:
    return {e.table_key: e.version for e in graph.state().entries}


@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
def test_a_night_finishes_what_a_killed_optimize_left(
    dag: Any, demo_graph: DemoGraph, stamp: int, crash: Crash
) -> None:
    graph = demo_graph(stamp=stamp, loads=3, rows=20, node_types=1)
    rows = rows_everywhere(graph)
    kill_at(graph, lambda g: optimize_table(g, PERSON), crash.call, crash.mode)
    assert len(sidecar_names(graph.storage)) == 1
    entry = entry_of(graph, PERSON)
    assert (graph.open_head(entry).version > entry.version) is crash.ahead

    done = night(dag, graph)
    assert done.state == "success", done.tasks
    assert done.xcom("check_recovery")["status"] == "clean"
    assert done.report["failed"] == []
    after = open_graph(graph.uri)
    assert sidecar_names(after.storage) == frozenset()
    assert check(after).status is CheckStatus.CLEAN
    assert pins(after) == heads(after)
    assert plan_optimize(after).productive() == ()
    assert rows_everywhere(after) == rows
    (audit,) = audit_rows(after)
    assert audit["recovery_kind"] == ("RolledBack" if crash.action == "rolled_back" else "RolledForward")


@pytest.mark.parametrize("dag_id", ["omnigraph_repair", "omnigraph_cleanup"])
def test_beside_a_schema_apply_a_run_is_red_and_the_graph_untouched(
    dags: Any, demo_graph: DemoGraph, stamp: int, dag_id: str
) -> None:
    graph = demo_graph(stamp=stamp, loads=3, rows=12, node_types=2, drift_tables=("edge:Knows",))
    graph.lance.create_branch(graph.manifest(), SCHEMA_APPLY_LOCK)
    first = disk_of(graph.uri)
    done = Finished(dags[dag_id].test(run_conf={"graph": graph.uri, "confirm": True}))
    assert (done.state, done.of("check_recovery")) == ("failed", ["failed"])
    assert done.report["failed"][0].startswith("check_recovery: the schema-apply lock is held: wait for the schema")
    assert first.changed(disk_of(graph.uri)) == set()
