"""What the tool is doing when it is killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest import mock

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import landing
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.coordination.pace import Patience
from omnigraph_ops.coordination.window import ArmedWindow
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph.graph import Graph, select_entries
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR
from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.lance.commits import RewriteChange
from omnigraph_ops.lance.tables import execute_task, plan_tasks
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.stages.optimize.units import optimize_internal
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.crash.harness_state import QUICK
from tests.support.kills import AFTER, BEFORE, kill_at
from tests.support.sidecars import cross, take_back
from tests.support.writers import copies, write

TABLE = "node:Doc"
DRIFTED = "node:Person"
TOGETHER = ("node:Person", "edge:Knows")
# Fewer tables to look at after each kill, where the kind of index does not matter.
LEAN = DemoSpec(node_types=1, loads=3, rows=12, deletes=2, updates=3, lazy_branches=1, written_branches=1)
SPEC = DemoSpec(loads=3, rows=12, deletes=2, updates=3, lazy_branches=1, written_branches=1)
# Far from ever due: the keys must go, and nothing may be collected before they are gone.
_AUTO_CLEANUP = {"lance.auto_cleanup.interval": "1000003", "lance.auto_cleanup.older_than": "14d"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A graph before the run, the run that is killed, and what finishes it."""

    name: str
    run: Callable[[Graph], object]
    spec: DemoSpec = LEAN
    table: str = DRIFTED
    """The table that is maintained while the kill happens."""
    settings: Settings = QUICK
    prepare: Callable[[Graph], object] = lambda _graph: None
    again: Callable[[Graph], object] = lambda _graph: None
    """What a person or the next night does beyond recover and optimize."""
    stamps: tuple[int, ...] = (3, 6)
    """Those that have it."""

    def build(self, root: str, stamp: int) -> None:
        """Write the graph before the run. Writes."""
        write_demo_graph(root, replace(self.spec, stamp=stamp))
        graph = open_graph(root, QUICK)
        # The other tables are done already: every kill is followed by an optimize of everything.
        others = [t.table_key for t in plan_optimize(graph).productive() if t.table_key != self.table]
        if others:
            optimize_all(graph, tables=others)
        self.prepare(graph)


def set_auto_cleanup(graph: Graph, table: str = TABLE) -> None:
    """Give the table and the internal tables the keys that must be stripped first. Writes."""
    write(graph, table, lambda head: head.update_config(_AUTO_CLEANUP))
    internal = [MANIFEST_DIR] + ([COMMITS_DIR] if graph.stamp == 3 else [])
    for path in internal:
        graph.lance.open(graph.storage.uri(path)).update_config(_AUTO_CLEANUP)


def _optimize_vectors(graph: Graph) -> object:
    return optimize_table(graph, TABLE)


def _optimize_people(graph: Graph) -> object:
    return optimize_table(graph, DRIFTED)


def _repair(graph: Graph) -> object:
    return apply_repair(graph, preview_repair(graph), force=True)


def _recover(graph: Graph) -> object:
    return recover(graph, grace_seconds=0)


def _optimize_together(graph: Graph) -> object:
    """What threads do whose windows wait for the same turn, one after the other: the same calls every time."""
    seats = []
    for key in TOGETHER:
        (entry,) = select_entries(graph, graph.state(), (key,))
        pinned = graph.open_pinned(entry)
        change = RewriteChange(results=tuple(execute_task(pinned, t.payload) for t in plan_tasks(pinned, 1 << 20)))
        window = ArmedWindow.open(graph, entry, "rewrite")
        drafts = window.draft([change])
        seats.append(landing._Seat(window=window, changes=[change], drafts=drafts, patience=Patience(graph)))
    # Side by side, a call would be part of one that another thread makes at the moment, and not be a point to die at.
    with mock.patch.object(landing, "_STEPS_AT_ONCE", 1), committer_turn(graph, "together") as keeper:
        landing._share_turn(seats, keeper)
    assert [seat.error for seat in seats if seat.error] == []
    return seats


def _load_more(graph: Graph) -> None:
    for key in TOGETHER:
        for load in range(2):
            write(graph, key, copies(f"more-{load}-"))


def _crashed(call: str, mode: str) -> Callable[[Graph], None]:
    return lambda graph: kill_at(graph, _optimize_people, call, mode)


SCENARIOS = (
    Scenario(name="small", run=_optimize_vectors, spec=SPEC, table=TABLE, prepare=set_auto_cleanup),
    Scenario(
        name="journalled",
        run=_optimize_vectors,
        spec=SPEC,
        table=TABLE,
        prepare=set_auto_cleanup,
        settings=QUICK.model_copy(update={"small_table_bytes": 0}),
    ),
    Scenario(name="build", run=_optimize_people, spec=replace(LEAN, index_after_load=0)),
    Scenario(name="together", run=_optimize_together, prepare=_load_more),
    Scenario(name="repair", run=_repair, spec=replace(LEAN, drift_tables=(DRIFTED, "edge:Knows")), again=_repair),
    Scenario(name="recover-moved", run=_recover, prepare=_crashed("merge_insert", BEFORE)),
    Scenario(name="recover-not-moved", run=_recover, prepare=_crashed("put", BEFORE)),
    Scenario(name="recover-published", run=_recover, prepare=_crashed("merge_insert", AFTER)),
    Scenario(name="recover-taken-back", run=_recover, prepare=take_back, stamps=(6,)),
    Scenario(name="recover-crossed", run=_recover, prepare=cross, stamps=(6,)),
    Scenario(name="internal", run=optimize_internal, settings=QUICK.model_copy(update={"exclusive": True})),
)
# On a store every call is a request: one table of the smallest history that has all units to run.
_TINY = DemoSpec(node_types=1, loads=2, rows=6, deletes=1, updates=1)
_ONE_WINDOW_S3 = Scenario(
    name="small",
    run=_optimize_people,
    spec=_TINY,
    prepare=lambda graph: set_auto_cleanup(graph, DRIFTED),
)
S3_SCENARIOS = (
    _ONE_WINDOW_S3,
    replace(_ONE_WINDOW_S3, name="journalled", settings=QUICK.model_copy(update={"small_table_bytes": 0})),
    Scenario(name="repair", run=_repair, spec=replace(_TINY, drift_tables=(DRIFTED, "edge:Knows")), again=_repair),
)
