"""Freezes, tags, cleanups, expiries and kills in any order: a freeze that stands is whole, one that ended is gone."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import lance
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.freezes import sweep_ended, unfreeze
from omnigraph_ops.coordination.holds import freezes, hold_path, read_hold, write_hold
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import GraphFrozen
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.freeze import Freeze
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.freeze.files import cut_files
from omnigraph_ops.stages.freeze.observe import verify_cut
from omnigraph_ops.stages.freeze.take import extend_freeze, freeze_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.support.freezes import freeze_tags
from tests.support.kills import Killed, Killer, killing_tags
from tests.support.leases import bury_holders
from tests.support.orphans import KNOWS, PERSON
from tests.support.rows import digest_of, scan
from tests.support.writers import copies, delete_first, entry_of, write

pytestmark = pytest.mark.slow
_TABLES = st.sampled_from([(), (PERSON,), (KNOWS,)])


class FreezeMachine(RuleBasedStateMachine):
    """One graph, the freezes that should stand on it, and what their readers saw when they were taken."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.standing: dict[str, Freeze] = {}
        self.seen: dict[str, dict[tuple[str, str | None, int], str]] = {}
        self.number = 0

    @initialize(stamp=st.sampled_from([3, 6]))
    def begin(self, stamp: int) -> None:
        spec = DemoSpec(stamp=stamp, node_types=1, loads=2, rows=4, written_branches=1, lazy_branches=1)
        write_demo_graph(str(self.folder / "g.omni"), spec)

    def graph(self) -> Graph:
        return open_graph(str(self.folder / "g.omni"), Settings(concurrency=1))

    def covered(self, key: str) -> bool:
        return any(not f.tables or key in f.tables for f in self.standing.values())

    @rule(key=st.sampled_from([PERSON, KNOWS]))
    def load(self, key: str) -> None:
        self.number += 1
        write(self.graph(), key, copies(f"n{self.number}-"))

    @rule(key=st.sampled_from([PERSON, KNOWS]))
    def delete(self, key: str) -> None:
        graph = self.graph()
        if graph.open_pinned(entry_of(graph, key)).count_rows() > 1:
            write(graph, key, delete_first())

    @rule(tables=_TABLES)
    def freeze(self, tables: tuple[str, ...]) -> None:
        graph = self.graph()
        taken = freeze_graph(graph, tables=tables)
        self.standing[taken.freeze_id] = taken
        self.seen[taken.freeze_id] = _rows(graph, taken)

    @rule(tables=_TABLES, calls=st.integers(0, 8))
    def freeze_and_die(self, tables: tuple[str, ...], calls: int) -> None:
        graph = self.graph()
        known = {h.hold_id for h in freezes(graph.storage)}
        tags = count()
        killer = Killer(root=Path(graph.uri), when=lambda point: point.call == "tag" and next(tags) == calls)
        with killing_tags(killer), suppress(Killed):
            taken = freeze_graph(graph, tables=tables)
            self.standing[taken.freeze_id] = taken
            self.seen[taken.freeze_id] = _rows(graph, taken)
        for hold in freezes(graph.storage):
            if hold.hold_id not in known and hold.pid:
                write_hold(graph.storage, replace(hold, pid=2**22 + 1))
        bury_holders(graph.storage)

    @precondition(lambda self: self.standing)
    @rule(pick=st.integers(0, 9))
    def unfreeze(self, pick: int) -> None:
        unfreeze(self.graph(), self._drop(pick))

    @precondition(lambda self: self.standing)
    @rule(pick=st.integers(0, 9))
    def expire(self, pick: int) -> None:
        graph = self.graph()
        hold = read_hold(graph.storage, self._drop(pick))
        assert hold is not None
        write_hold(graph.storage, replace(hold, expires_at=time.time() - 1))

    @precondition(lambda self: self.standing)
    @rule(pick=st.integers(0, 9))
    def extend(self, pick: int) -> None:
        extend_freeze(self.graph(), sorted(self.standing)[pick % len(self.standing)], 7200)

    @precondition(lambda self: self.standing)
    @rule(pick=st.integers(0, 9))
    def lose_the_record(self, pick: int) -> None:
        """The tags go on protecting; only their name ends them."""
        graph, freeze_id = self.graph(), self._drop(pick)
        graph.storage.delete(hold_path(freeze_id))
        sweep_ended(graph)
        assert any(freeze_id in tag for tag in freeze_tags(graph.uri))
        unfreeze(graph, freeze_id)

    @rule()
    def optimize(self) -> None:
        whole = any(not f.tables for f in self.standing.values())
        try:
            report = optimize_all(self.graph())
        except GraphFrozen:
            assert whole
            return
        assert not whole
        for table in report.tables:
            # A frozen table with nothing to do is not even refused.
            assert table.error is None or self.covered(table.table_key), table
            assert not (table.committed and self.covered(table.table_key)), table

    @rule()
    def cleanup(self) -> None:
        try:
            graph = self.graph()
            report = cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1)))
        except GraphFrozen:
            assert any(not f.tables for f in self.standing.values())
            return
        assert not [t for t in report.tables if self.covered(t.table_key) and t.old_versions_removed]

    @rule()
    def somebody_elses_cleanup(self) -> None:
        graph = self.graph()
        for key in (PERSON, KNOWS):
            head = lance.dataset(graph.table_uri(entry_of(graph, key)))
            pins = [s.get(key) for s in (graph.state(b) for b in graph.branches())]
            lowest = min([head.version, *(e.version for e in pins if e is not None and e.branch is None)])
            old = [v["version"] for v in head.versions() if v["version"] < lowest]
            if old:
                head.cleanup_old_versions(versions=old, error_if_tagged_old_versions=False)

    @invariant()
    def what_stands_is_whole(self) -> None:
        graph = self.graph() if (self.folder / "g.omni").exists() else None
        for freeze_id, freeze in self.standing.items() if graph is not None else ():
            assert graph is not None
            assert verify_cut(graph, freeze) == ()
            assert _rows(graph, freeze) == self.seen[freeze_id]
            cut_files(graph, freeze)

    def teardown(self) -> None:
        if (self.folder / "g.omni").exists():
            graph = self.graph()
            for freeze_id in list(self.standing):
                unfreeze(graph, freeze_id)
            sweep_ended(graph)
            assert freeze_tags(graph.uri) == set()
            assert freezes(graph.storage) == ()
            assert not optimize_all(graph).failed
        shutil.rmtree(self.folder)

    def _drop(self, pick: int) -> str:
        freeze_id = sorted(self.standing)[pick % len(self.standing)]
        del self.standing[freeze_id], self.seen[freeze_id]
        return freeze_id


def _rows(graph: Graph, freeze: Freeze) -> dict[tuple[str, str | None, int], str]:
    """What a reader of each pinned table version sees."""
    return {
        (p.path, p.branch, p.version): digest_of(
            scan(graph.lance.open(graph.storage.uri(p.path), branch=p.branch, version=p.version))
        )
        for p in freeze.cut.pins
        if p.role == "table"
    }


FreezeMachine.TestCase.settings = settings(
    max_examples=6,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    # Shrinking runs a graph through hundreds of histories; the failing one is short enough to read.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
TestFreezeMachine = FreezeMachine.TestCase
