"""Nights beside what a killed run left: finished first, by nobody, and the night goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.coordination.state import CLONES_DIR, HOLDS_DIR, RUNS_DIR
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import COMMITS_DIR, SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes import history
from omnigraph_ops.outcomes.results import Snapshot
from omnigraph_ops.outcomes.runs import RecordedRun
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.history import header
from tests.support.kills import AFTER, BEFORE, kill_at
from tests.support.leases import bury_runs
from tests.support.operators import Run, disk_of
from tests.support.rewrites import clones
from tests.support.rows import rows_everywhere
from tests.support.runs import Finished
from tests.support.sidecars import arm, audit_rows, move, take_back
from tests.support.stages import operator
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


@pytest.mark.night("combinations")
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


def test_a_night_gives_back_what_another_engine_took_back(dag: Any, demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=6, loads=3, rows=20, node_types=1, written_branches=1)
    take_back(graph, PERSON)
    (branch,) = graph.branches()
    graph.open_pinned(entry_of(graph, PERSON, branch)).restore()
    rows = rows_everywhere(graph)
    done = night(dag, graph)
    assert done.state == "success", done.tasks
    after = open_graph(graph.uri)
    assert (sidecar_names(after.storage), check(after).status) == (frozenset(), CheckStatus.CLEAN)
    assert pins(after) == heads(after)
    on_branch = entry_of(after, PERSON, branch)
    assert after.open_newest(on_branch).version == on_branch.version
    assert rows_everywhere(after) == rows


@pytest.mark.night("combinations")
@pytest.mark.parametrize("dag_id", ["omnigraph_repair", "omnigraph_cleanup"])
def test_beside_a_schema_apply_a_run_is_red_and_the_graph_untouched(
    dags: Any, demo_graph: DemoGraph, stamp: int, dag_id: str
) -> None:
    graph = demo_graph(stamp=stamp, loads=3, rows=12, node_types=2, drift_tables=("edge:Knows",))
    graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
    first = disk_of(graph.uri)
    done = Finished(dags[dag_id].test(run_conf={"graph": graph.uri, "confirm": True}))
    assert (done.state, done.of("check_recovery")) == ("failed", ["failed"])
    assert done.report["failed"][0].startswith("check_recovery: the schema-apply lock is held: wait for the schema")
    assert first.changed(disk_of(graph.uri)) == set()


def killed_cleanup(graph: Graph) -> None:
    """Leave the journal of a run of the shell that was killed before its first removal. Writes."""
    entry = entry_of(graph, PERSON)
    doomed = tuple(range(1, entry.version))
    unit = Unit(name="1", stage="cleanup", table_key=PERSON, table_path=entry.path, versions=doomed)
    RecordedRun(graph, header("cli/killed"), Snapshot()).begins(unit)
    bury_runs(graph.storage)


def test_what_a_run_removes_is_not_booked_to_a_run_of_the_shell_that_was_killed_before(
    dags: Any, demo_graph: DemoGraph
) -> None:
    graph = demo_graph(loads=3, rows=12, node_types=1)
    killed_cleanup(graph)
    conf = {"graph": graph.uri, "confirm": True, "keep": 1, "older_than": None}
    done = Finished(dags["omnigraph_cleanup"].test(run_conf=conf))
    assert done.of("check_recovery") == ["success"]
    killed = next(run for run in history.read_runs(graph) if run.run_id == "cli/killed")
    assert killed.work.versions_removed == 0


def test_a_run_of_the_shell_that_cannot_be_recorded_stops_no_check(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, denied = demo_graph(loads=3, rows=12, node_types=1), raising(StorageError("permission denied"))
    RecordedRun(graph, header(), Snapshot()).begins(Unit(name="1", stage="optimize", table_key=PERSON, version=1))
    bury_runs(graph.storage)
    asked = when_asked(monkeypatch, Storage, "create", denied, about=f"^{RUNS_DIR}/lease-")
    run = Run(graph)
    assert run.execute(operator(run, "check_recovery")).state == "success"
    assert len(asked) == 1


def test_each_night_sweeps_what_killed_ones_left(demo_graph: DemoGraph) -> None:
    graph = demo_graph(loads=3, rows=12, node_types=1)
    kill_at(graph, lambda g: optimize_table(g, PERSON), f"shallow_clone {CLONES_DIR}", AFTER)
    assert (len(clones(graph)), check(graph).status) == (1, CheckStatus.CLEAN)
    run = Run(graph)
    assert run.execute(operator(run, "check_recovery")).state == "success"
    assert (clones(graph), graph.storage.list(HOLDS_DIR)) == (set(), ())


@pytest.mark.parametrize(("age", "state"), [(5.0, "retry"), (3600.0, "failed")])
def test_a_load_that_may_still_be_at_work_is_asked_about_again_and_an_old_one_is_for_a_person(
    demo_graph: DemoGraph, age: float, state: str
) -> None:
    graph = demo_graph(loads=2, rows=5, node_types=1)
    arm(graph, age_seconds=age, change=lambda document: document.update(writer_kind="Load"))
    run = Run(graph)
    ended = run.execute(operator(run, "check_recovery"))
    assert (ended.state, "open the graph read-write once with omnigraph" in ended.sentence) == (state, True)


def test_a_sidecar_that_a_person_has_to_look_at_keeps_recover_from_no_other(demo_graph: DemoGraph) -> None:
    graph = demo_graph(loads=3, rows=12, node_types=2)
    left = arm(graph, "node:Company", change=lambda document: document.update(writer_kind="Load"))
    arm(graph, PERSON)
    head = move(graph, PERSON)
    run = Run(graph)
    ended = run.execute(operator(run, "check_recovery"))
    assert (ended.state, f"{left}.json" in ended.sentence) == ("failed", True)
    assert (sidecar_names(graph.storage), pins(graph)[PERSON]) == ({f"{left}.json"}, head)


def test_what_cannot_be_read_is_looked_at_again(demo_graph: DemoGraph) -> None:
    """The store may only have been slow."""
    graph = demo_graph(stamp=3, loads=3, rows=12, node_types=1)
    versions = Path(graph.uri, COMMITS_DIR, "_versions")
    min(versions.glob("*.manifest")).write_bytes(b"")
    run = Run(graph)
    ended = run.execute(operator(run, "check_recovery"))
    assert (ended.state, COMMITS_DIR in ended.sentence) == ("retry", True)
