"""Row retention on a graph, with an engine that fails as told: retries, bounds, branches that must go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.holds import FreezeTerms, HoldKind, place_hold
from omnigraph_ops.coordination.state import EXPIRE_ROWS_LEASE_PATH, LEASE_PATH
from omnigraph_ops.engine import (
    EngineCli,
    EngineConflict,
    EngineFailure,
    EngineRecovery,
    EngineRelease,
    EngineRowConflict,
    EngineTimeout,
)
from omnigraph_ops.errors import (
    GraphFrozen,
    InvalidInput,
)
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import COMMITS_DIR, EXPIRY_BRANCH_PREFIX, SCHEMA_IR_FILE, branch_reference
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.schema import read_type_facts
from omnigraph_ops.graph.sidecars import sidecar_names, sidecar_path
from omnigraph_ops.graph.stamp3 import Stamp3
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.rows import RowBounds, RowPolicy, RowRetentionPlan
from omnigraph_ops.progress import Lines, Stopped
from omnigraph_ops.stages.expire_rows import plan as planning
from omnigraph_ops.stages.expire_rows.apply import expire_rows
from omnigraph_ops.stages.expire_rows.plan import plan_row_retention
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.leases import take_over
from tests.support.sidecars import arm, make_branch, on_branch
from tests.support.waits import shorten_waits
from tests.support.writers import copies, delete_first, drift, entry_of, write

pytestmark = pytest.mark.slow

DAY = 86_400
PERSON = "node:Person"
JOINED = RowPolicy(table_key=PERSON, property="joined", older_than_secs=DAY)
SMALL = {"loads": 2, "rows": 12, "node_types": 2}


class Stub(EngineCli):
    """An engine that branches for real, does nothing else and fails when told to."""

    def __init__(self, graph: Graph, failures: Mapping[str, list[EngineFailure]]) -> None:
        version = (0, 9, 0) if graph.stamp == 6 else (0, 7, 2)
        release = EngineRelease(version=version, stamp=graph.stamp)
        super().__init__(path="stub", release=release, timeout_seconds=1, environment={})
        object.__setattr__(self, "_told", (graph, {k: list(v) for k, v in failures.items()}, []))

    @property
    def calls(self) -> list[str]:
        found: list[str] = self._told[2]  # type: ignore[attr-defined]
        return found

    def _do(self, name: str) -> Graph:
        graph, failures, calls = self._told  # type: ignore[attr-defined]
        calls.append(name)
        if failures.get(name):
            raise failures[name].pop(0)
        return graph  # type: ignore[no-any-return]

    def create_branch(self, root: str, name: str, parent: str) -> None:
        graph = self._do("create")
        graph.manifest().create_branch(name)

    def delete_branch(self, root: str, name: str) -> None:
        graph = self._do("delete")
        graph.lance.delete_branch(graph.manifest(), name)

    def merge(self, root: str, source: str, target: str) -> None:
        self._do("merge")

    def load(self, root: str, branch: str, lines: Iterable[str]) -> None:
        self._do("load")

    def mutate(self, root: str, branch: str, query: str, params: Mapping[str, object]) -> int:
        self._do("mutate")
        return 0


Ids = dict[str, list[str]]
"""Of rows, by their tables."""


def expiring(graph: Graph, plan: RowRetentionPlan) -> Ids:
    """The rows of a plan, and the edges at them. Reads."""
    state = graph.state()
    rows = planning.Aged.of(graph, state, plan.tables[0]).ids()
    edges = planning.edges_at(graph, state, planning.edges_of(read_type_facts(graph.storage), PERSON), rows)
    return {PERSON: rows.to_pylist(), **{key: found.to_pylist() for key, found in edges.items()}}


def others(graph: Graph, table_key: str, besides: list[str], count: int) -> list[str]:
    """So many rows of a table that are not among those. Reads."""
    every = graph.open_head(entry_of(graph, table_key)).to_table(columns=["id"])["id"].to_pylist()
    found = [one for one in every if one not in set(besides)][:count]
    assert len(found) == count
    return found


class Deletes(Stub):
    """An engine that deletes these rows on its branch, at once, and merges for nobody."""

    def __init__(self, graph: Graph, rows: Ids, failures: Mapping[str, list[EngineFailure]] | None = None) -> None:
        super().__init__(graph, failures or {})
        object.__setattr__(self, "_rows", rows)

    def mutate(self, root: str, branch: str, query: str, params: Mapping[str, object]) -> int:
        graph, state = self._do("mutate"), self._told[0].state(branch)  # type: ignore[attr-defined]
        updates = []
        for table_key, ids in self._rows.items():  # type: ignore[attr-defined]
            entry = state.get(table_key)
            if entry.branch is None and ids:
                fork = graph.open_pinned(entry).create_branch(branch, entry.version)
                fork.delete(f"id in ({', '.join(map(repr, ids))})")
                on_branch = replace(entry, branch=branch)
                updates.append(replace(table_update(graph, on_branch, graph.open_newest(on_branch)), entry=on_branch))
        publish(graph, tuple(updates), actor=None, branch=branch)
        return 0


class TestThroughTheEngine:
    @pytest.fixture(autouse=True)
    def _no_pauses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shorten_waits(monkeypatch)

    def planned(self, demo_graph: DemoGraph, stamp: int, **settings: Any) -> tuple[Graph, RowRetentionPlan]:
        graph = demo_graph(stamp=stamp, settings=Settings(**settings), **SMALL)
        plan = plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1))
        assert plan.total_rows > 0
        return graph, plan

    def test_nothing_is_merged_that_does_not_count_right(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)
        engine = Stub(graph, {})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        rows = plan.tables[0].rows
        assert f"node:Person {rows} instead of {rows - plan.total_rows}" in (stats.error or "")
        assert "nothing was merged" in (stats.error or "")
        assert "merge" not in engine.calls
        assert graph.branches() == ()

    def test_a_row_of_any_other_table_that_went_stops_the_merge(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)
        company, companies = "node:Company", planning.rows_in(graph, graph.state())["node:Company"]
        engine = Deletes(graph, {**expiring(graph, plan), company: others(graph, company, [], 1)})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert f"(rows left: {company} {companies - 1} instead of {companies})" in (stats.error or "")
        assert "merge" not in engine.calls

    @pytest.mark.parametrize("wrong", ["rows", "edges", "others"])
    def test_each_of_the_proofs_stops_the_merge_alone(self, demo_graph: DemoGraph, wrong: str) -> None:
        """The engine deleted as many others, or others too."""
        graph = demo_graph(stamp=6, **SMALL)
        young = ", ".join(map(repr, others(graph, PERSON, [], 20)))
        write(graph, PERSON, lambda head: head.update({"joined": "cast(now() as date)"}, where=f"id in ({young})"))
        plan = plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1))
        doomed = expiring(graph, plan)
        rows, edges = plan.total_rows, sum(e.rows for e in plan.tables[0].edges)
        assert sum(map(len, doomed.values())) == rows + edges > rows
        spared = {"rows": [PERSON], "edges": [key for key in doomed if key != PERSON], "others": []}[wrong]
        told = doomed | {key: others(graph, key, doomed[key], len(doomed[key])) for key in spared}
        if wrong == "others":
            told["node:Company"] = others(graph, "node:Company", [], 1)
        (stats,) = expire_rows(graph, plan, engine=(engine := Deletes(graph, told))).tables
        left = (rows if wrong == "rows" else 0, edges if wrong == "edges" else 0)
        assert f"{left[0]} expired rows and {left[1]} of their edges" in (stats.error or "")
        assert ("as many as should be" in (stats.error or "")) is (wrong != "others")
        assert "merge" not in engine.calls

    def test_a_branch_that_another_process_undid_is_made_anew(
        self, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graph, plan = self.planned(demo_graph, 6)
        engine, gone = Stub(graph, {}), [raising(OSError("a file was not found"))]

        def undone() -> None:
            if gone and "create" in engine.calls:
                gone.pop()()

        about = f"{entry_of(graph, PERSON).path} "
        when_asked(monkeypatch, lance.LanceDataset, "to_table", undone, about=about, times=None)
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert not gone
        assert (engine.calls.count("create"), engine.calls.count("delete")) == (2, 2)
        assert "instead of" in (stats.error or ""), "the second attempt came as far as the proof"
        assert graph.branches() == ()

    def test_a_write_that_no_engine_can_settle_goes_with_its_branch(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)

        class Undone(Stub):
            def mutate(self, root: str, branch: str, query: str, params: Mapping[str, object]) -> int:
                arm(graph, change=on_branch(branch))
                return super().mutate(root, branch, query, params)

        stuck = EngineRecovery("recovery sidecar found original commit id but its manifest delta differs")
        engine = Undone(graph, {"mutate": [EngineConflict("stale view")], "delete": [stuck]})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert "instead of" in (stats.error or ""), "the second attempt came as far as the proof"
        assert engine.calls.count("delete") == 3
        assert (graph.branches(), sidecar_names(graph.storage)) == ((), frozenset())

    def test_a_branch_goes_that_no_engine_deletes_beside_its_sidecar(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)

        class Stuck(Stub):
            def mutate(self, root: str, branch: str, query: str, params: Mapping[str, object]) -> int:
                arm(graph, change=on_branch(branch))
                raise Stopped

            def delete_branch(self, root: str, name: str) -> None:
                if sidecar_names(graph.storage):
                    raise EngineRecovery("its manifest delta differs")
                super().delete_branch(root, name)

        expire_rows(graph, plan, engine=Stuck(graph, {}))
        assert (graph.branches(), sidecar_names(graph.storage)) == ((), frozenset())

    @pytest.mark.parametrize("kind", [EngineFailure, EngineRecovery])
    def test_what_the_engine_left_on_a_full_disk_goes_at_once(
        self, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, kind: type[EngineFailure]
    ) -> None:
        """Its sidecar, and the reference of a table to the branch, with which no engine deletes the branch."""
        graph, plan = self.planned(demo_graph, 6, recovery_grace_seconds=900.0)
        left: list[Path] = []

        class Full(Stub):
            def mutate(self, root: str, branch: str, query: str, params: Mapping[str, object]) -> int:
                arm(graph, age_seconds=0, change=on_branch(branch))
                left.append(Path(graph.uri, branch_reference(entry_of(graph, PERSON).path, branch)))
                left[-1].parent.mkdir(parents=True, exist_ok=True)
                left[-1].touch()
                raise kind("No space left on device")

            def delete_branch(self, root: str, name: str) -> None:
                assert not any(path.exists() for path in left)
                super().delete_branch(root, name)

        waited = raising(AssertionError("nothing is pending"))
        monkeypatch.setattr("omnigraph_ops.stages.expire_rows.delete.recover", lambda _graph: waited())
        (stats,) = expire_rows(graph, plan, engine=Full(graph, {})).tables
        assert "No space left on device" in (stats.error or "")
        assert (graph.branches(), sidecar_names(graph.storage)) == ((), frozenset())
        assert left and not any(path.exists() for path in left)

    def test_a_table_that_the_engine_forked_by_half_is_put_right_at_once(self, demo_graph: DemoGraph) -> None:
        """It was killed between the files of the Lance branch and the reference to them."""
        graph, plan = self.planned(demo_graph, 3, recovery_grace_seconds=900.0)
        left: list[Path] = []

        class Dies(Stub):
            def create_branch(self, root: str, name: str, parent: str) -> None:
                make_branch(self._do("create"), name)

            def mutate(self, root: str, branch: str, query: str, params: Mapping[str, object]) -> int:
                entry = entry_of(graph, PERSON)
                graph.open_pinned(entry).create_branch(branch, entry.version)
                Path(graph.uri, branch_reference(entry.path, branch)).unlink()
                left.append(Path(graph.uri, entry.path, "tree", branch))
                raise EngineFailure("killed")

            def delete_branch(self, root: str, name: str) -> None:
                super().delete_branch(root, name)
                graph.open_at(COMMITS_DIR).branches.delete(name)

        (stats,) = expire_rows(graph, plan, engine=Dies(graph, {})).tables
        assert "killed" in (stats.error or "")
        assert (graph.branches(), check(graph).status) == ((), CheckStatus.CLEAN)
        assert left and not any(path.exists() for path in left)

    def test_a_failure_names_an_empty_branch_reference(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)
        path = branch_reference(entry_of(graph, PERSON).path, "side")
        graph.storage.write(path, b"")
        engine = Stub(graph, {"create": [EngineFailure("EOF while parsing a value")]})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert (stats.error or "").startswith(f"EOF while parsing a value; {path} is an empty file")

    @pytest.mark.slow
    @pytest.mark.parametrize("step", ["create", "mutate"])
    def test_conflicts_are_retried_from_a_fresh_branch_and_bounded(self, demo_graph: DemoGraph, step: str) -> None:
        graph, plan = self.planned(demo_graph, 6)
        engine = Stub(graph, {step: [EngineConflict("stale view of x")] * 9})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert "5 attempts failed, the last one because stale view of x" in (stats.error or "")
        assert engine.calls.count(step) == 5
        assert graph.branches() == ()

    def test_a_table_that_is_stopped_after_its_merge_says_what_went(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)

        class Merges(Deletes):
            def merge(self, root: str, source: str, target: str) -> None:
                write(self._do("merge"), PERSON, lambda dataset: dataset.delete("true"))
                raise Stopped

        (stats,) = expire_rows(graph, plan, engine=Merges(graph, expiring(graph, plan))).tables
        assert (stats.rows_removed, stats.refused) == (plan.total_rows, None)
        assert stats.edges == plan.tables[0].edges

    def test_a_table_that_is_stopped_before_its_merge_lost_nothing(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)

        class Stops(Stub):
            def mutate(self, root: str, branch: str, query: str, params: Mapping[str, object]) -> int:
                raise Stopped

        (stats,) = expire_rows(graph, plan, engine=Stops(graph, {})).tables
        assert (stats.rows_removed, stats.rows_left) == (0, plan.total_rows)
        assert "no row was deleted" in (stats.refused or "")

    @pytest.mark.parametrize("step", ["create", "merge"])
    def test_rows_that_another_writer_renewed_do_not_count_as_deleted(self, demo_graph: DemoGraph, step: str) -> None:
        """Neither where nothing was merged, nor where what was to go is known precisely."""
        graph, plan = self.planned(demo_graph, 6)
        only = f"id = '{planning.Aged.of(graph, graph.state(), plan.tables[0]).ids()[0].as_py()}'"
        write(graph, PERSON, lambda dataset: dataset.update({"joined": "cast(now() as date)"}, where=only))
        engine = Deletes(graph, expiring(graph, plan), {step: [EngineFailure("no")]})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert (stats.rows_removed, stats.edges, stats.error) == (0, (), "no")
        assert stats.rows_left == plan.total_rows - 1
        assert engine.calls[-1] == ("delete" if step == "merge" else "create")

    @pytest.mark.parametrize("lease", [EXPIRE_ROWS_LEASE_PATH, LEASE_PATH])
    def test_a_run_whose_lease_was_taken_over_does_not_merge(
        self, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, lease: str
    ) -> None:
        """Its branches are removed by the one that took over, and the engine would finish what that one armed."""
        graph, plan = self.planned(demo_graph, 6, lease_wait_seconds=0.1)
        engine, armed = Deletes(graph, expiring(graph, plan)), list[object]()

        def in_the_turn_of_the_merge() -> None:
            if "mutate" in engine.calls and not armed:
                taken_over = partial(take_over, graph.storage, lease)
                armed.append(when_asked(monkeypatch, LanceGateway, "open", taken_over))

        when_asked(monkeypatch, Storage, "create", in_the_turn_of_the_merge, about=f"^{LEASE_PATH}-", times=None)
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert "was taken over by another run" in (stats.error or "")
        assert (stats.rows_removed, "merge" in engine.calls) == (0, False)

    @pytest.mark.parametrize(
        ("problem", "then", "words"),
        [
            (EngineConflict("merge conflicts"), "create", "no"),
            (EngineTimeout("took too long"), "create", "no"),
            (EngineConflict("merge conflicts"), "pending", "1 pending recovery sidecar"),
        ],
    )
    def test_a_refused_merge_took_nothing(
        self, demo_graph: DemoGraph, problem: EngineFailure, then: str, words: str
    ) -> None:
        """Whatever another writer renewed meanwhile, and whatever ends the next attempt."""
        graph, plan = self.planned(demo_graph, 6, lease_wait_seconds=0.3)
        only = f"id = '{planning.Aged.of(graph, graph.state(), plan.tables[0]).ids()[0].as_py()}'"

        class Refusing(Deletes):
            def merge(self, root: str, source: str, target: str) -> None:
                graph = self._do("merge")
                write(graph, PERSON, lambda dataset: dataset.update({"joined": "cast(now() as date)"}, where=only))
                self._told[1]["create"] = [EngineFailure("no")]  # type: ignore[attr-defined]
                if then == "pending":
                    graph.storage.write(sidecar_path("01J00000000000000000000000"), b"{}")
                raise problem

        (stats,) = expire_rows(graph, plan, engine=(engine := Refusing(graph, expiring(graph, plan)))).tables
        assert engine.calls.count("create") == (1 if then == "pending" else 2)
        assert (stats.rows_removed, stats.edges) == (0, ())
        assert words in (stats.error or "")

    @pytest.mark.parametrize(
        ("problem", "branches"),
        [(EngineConflict("stale view"), 1), (EngineRecovery("pending Load"), 2), (EngineRowConflict("merge"), 2)],
    )
    def test_a_branch_is_merged_again_unless_its_rows_were_changed(
        self, demo_graph: DemoGraph, problem: EngineFailure, branches: int
    ) -> None:
        graph, plan = self.planned(demo_graph, 6)
        rows = expiring(graph, plan)

        class Merges(Deletes):
            def merge(self, root: str, source: str, target: str) -> None:
                self._do("merge")
                for key in rows:
                    write(graph, key, lambda head, key=key: head.delete(f"id in ({', '.join(map(repr, rows[key]))})"))

        engine = Merges(graph, rows, {"merge": [problem]})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert (stats.error, stats.rows_removed, stats.attempts) == (None, len(rows[PERSON]), branches)
        assert (engine.calls.count("create"), engine.calls.count("merge")) == (branches, 2)

    def test_a_branch_that_another_engine_undid_before_a_merge_is_made_anew(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)

        class Undone(Deletes):
            def merge(self, root: str, source: str, target: str) -> None:
                self._do("merge")
                other = next(e for e in graph.state(source).entries if e.branch is None and e.row_count)
                graph.open_pinned(other).create_branch(source, other.version).delete("true")
                on_branch = replace(other, branch=source)
                update = replace(table_update(graph, on_branch, graph.open_newest(on_branch)), entry=on_branch)
                publish(graph, (update,), actor=None, branch=source)
                raise EngineConflict("stale view")

        engine = Undone(graph, expiring(graph, plan))
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert "another process undid what was deleted there" in (stats.error or "")
        assert (engine.calls.count("create"), engine.calls.count("merge"), graph.branches()) == (5, 5, ())

    def test_what_another_engine_discards_on_the_branch_is_deleted_anew(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)

        class Discarded(Stub):
            def load(self, root: str, branch: str, lines: Iterable[str]) -> None:
                self._do("load")
                raise EngineFailure(f"storage: LanceError(IO): Not found: g/tree/{branch}/data/1.lance")

        (stats,) = expire_rows(graph, plan, engine=(engine := Discarded(graph, {}))).tables
        assert "another process undid what was deleted" in (stats.error or "")
        assert engine.calls.count("load") == 5

    @pytest.mark.parametrize("renewed", [True, False], ids=["renewed", "as-it-was"])
    def test_a_renewed_row_that_went_is_named(self, demo_graph: DemoGraph, stamp: int, renewed: bool) -> None:
        """A merge of 0.7.2 deletes on top of a version that it did not plan on."""
        graph, plan = self.planned(demo_graph, stamp)
        before = planning.Aged.of(graph, graph.state(), plan.tables[0])
        gone = before.ids().slice(0, 1)
        only = f"id = '{gone[0].as_py()}'"
        value = "now()" if renewed else "joined"
        write(graph, PERSON, lambda dataset: dataset.update({"joined": f"cast({value} as date)"}, where=only))
        version = entry_of(graph, PERSON).version
        write(graph, PERSON, lambda dataset: dataset.delete(only))
        now = planning.Aged.of(graph, graph.state(), plan.tables[0])
        said = now.lost_renewals(graph, before.entry, gone)
        elsewhere = replace(before.entry, path="nodes/0000000000000000")
        assert now.lost_renewals(graph, elsewhere, gone) is None, "versions of another table tell nothing"
        if renewed:
            assert f"are gone ('{gone[0].as_py()}'); version {version} of the table" in (said or "")
        else:
            assert said is None

    def test_an_attempt_after_a_conflict_goes_on(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)
        engine = Stub(graph, {"mutate": [EngineConflict("x"), EngineRecovery("y"), EngineTimeout("z")]})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert "instead of" in (stats.error or ""), "the fourth attempt got as far as counting"
        assert engine.calls.count("create") == 4

    def test_other_failures_are_not_repeated(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)
        engine = Stub(graph, {"mutate": [EngineFailure("cardinality violated")]})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert stats.error == "cardinality violated"
        assert engine.calls.count("create") == 1

    def test_what_a_killed_run_left_is_swept(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)
        for name in (f"{EXPIRY_BRANCH_PREFIX}dead", "theirs"):
            graph.manifest().create_branch(name)
        expire_rows(graph, plan, engine=Stub(graph, {}))
        assert graph.branches() == ("theirs",)

    @pytest.mark.parametrize("words", ["no", "the engine deleted it without effect"])
    def test_a_branch_that_cannot_go_is_left_for_the_next_run(self, demo_graph: DemoGraph, words: str) -> None:
        graph, plan = self.planned(demo_graph, 6)
        said: list[str] = []

        class Idle(Stub):
            def delete_branch(self, root: str, name: str) -> None:
                self._do("delete")

        engine = Idle(graph, {"delete": [EngineFailure("no")] * (9 if words == "no" else 0)})
        expire_rows(graph, plan, engine=engine, progress=Lines(said.append))
        assert any(f"is still there: {words}" in text for text in said)
        assert [b for b in graph.branches() if b.startswith(EXPIRY_BRANCH_PREFIX)]

    def test_something_pending_is_waited_for_and_then_refused(self, demo_graph: DemoGraph, stamp: int) -> None:
        graph, plan = self.planned(demo_graph, stamp, lease_wait_seconds=0.3)
        Path(graph.uri, "__recovery").mkdir(exist_ok=True)
        Path(graph.uri, "__recovery", "01J00000000000000000000000.json").write_text("{}")
        engine, said = Stub(graph, {}), list[str]()
        (stats,) = expire_rows(graph, plan, engine=engine, progress=Lines(said.append)).tables
        assert "pending recovery sidecar" in (stats.error or "")
        assert engine.calls == []
        (waits,) = (line for line in said if "waits" in line)
        assert f"{PERSON}: waits for 0.3 s at most: " in waits
        assert "first 01J00000000000000000000000.json" in waits

    def test_a_frozen_graph_is_left_alone(self, demo_graph: DemoGraph, stamp: int) -> None:
        graph, plan = self.planned(demo_graph, stamp)
        terms = FreezeTerms(tables=("edge:Knows",))
        place_hold(graph.storage, (), kind=HoldKind.FREEZE, reason="backup", ttl_seconds=60, freeze=terms)
        with pytest.raises(GraphFrozen):
            expire_rows(graph, plan, engine=Stub(graph, {}))
        with pytest.raises(GraphFrozen):
            plan_row_retention(graph, [JOINED])

    def test_a_graph_that_is_frozen_during_an_attempt_is_left_alone(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)

        class Freezing(Stub):
            def create_branch(self, *arguments: str) -> None:
                super().create_branch(*arguments)
                terms = FreezeTerms(tables=())
                place_hold(graph.storage, (), kind=HoldKind.FREEZE, reason="backup", ttl_seconds=60, freeze=terms)

        (stats,) = expire_rows(graph, plan, engine=(engine := Freezing(graph, {}))).tables
        assert "this attempt deleted no row of node:Person" in (stats.error or "")
        assert (engine.calls, graph.branches()) == (["create", "delete"], ())

    def test_rows_that_came_since_the_plan_are_refused(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)
        write(graph, PERSON, copies("late-"))
        engine = Stub(graph, {})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert "below the cut and at most" in (stats.error or "")
        assert engine.calls == []

    def test_rows_that_came_right_before_the_branch_are_refused(self, demo_graph: DemoGraph) -> None:
        graph, plan = self.planned(demo_graph, 6)

        class Late(Stub):
            def create_branch(self, *arguments: str) -> None:
                write(graph, PERSON, copies("late-"))
                super().create_branch(*arguments)

        (stats,) = expire_rows(graph, plan, engine=(engine := Late(graph, {}))).tables
        assert "below the cut and at most" in (stats.error or "")
        assert engine.calls == ["create", "delete"]

    def test_another_branch_of_the_name_keeps_its_rows(self, demo_graph: DemoGraph) -> None:
        graph = demo_graph(stamp=6, index_after_load=0, **SMALL)
        graph.manifest().create_branch("twin")
        plan = plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1), branch="twin")
        assert plan.total_rows > 0
        graph.lance.delete_branch(graph.manifest(), "twin")
        graph.manifest().create_branch("twin")
        (stats,) = expire_rows(graph, plan, engine=(engine := Stub(graph, {}))).tables
        assert "branch 'twin' was deleted and made anew since it was looked at" in (stats.error or "")
        assert (stats.rows_removed, engine.calls) == (0, [])

    @pytest.mark.slow
    def test_a_table_that_was_put_in_the_place_keeps_its_rows(self, demo_graph: DemoGraph, stamp: int) -> None:
        graph, plan = self.planned(demo_graph, stamp)
        other = demo_graph(stamp=stamp, name="other.omni", **SMALL | {"rows": 13})
        (entry,) = [e for e in graph.state().entries if e.table_key == PERSON]
        place = Path(graph.uri, entry.path)
        shutil.rmtree(place)
        shutil.copytree(Path(other.uri, entry.path), place)
        (stats,) = expire_rows(graph, plan, engine=(engine := Stub(graph, {}))).tables
        assert "another table than the one that was counted" in (stats.error or "")
        assert (stats.rows_removed, engine.calls) == (0, [])

    def test_a_drifted_table_is_refused_in_the_plan(self, demo_graph: DemoGraph, stamp: int) -> None:
        graph = demo_graph(stamp=stamp, drift_tables=("edge:Knows",), drift_kind="delete", **SMALL)
        (table,) = plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1)).tables
        assert "edge:Knows has drifted" in (table.refused or "")

    def test_a_table_that_drifted_since_the_plan_loses_no_row(self, demo_graph: DemoGraph) -> None:
        """The engine would refuse the merge: so nothing is branched, and drift may go by itself."""
        graph, plan = self.planned(demo_graph, 6)
        drift(graph, "edge:Knows", delete_first())
        (stats,) = expire_rows(graph, plan, engine=(engine := Stub(graph, {}))).tables
        assert "5 attempts failed, the last one because edge:Knows has drifted" in (stats.error or "")
        assert (stats.rows_removed, engine.calls) == (0, [])

    @pytest.mark.parametrize("step", ["load", "merge"])
    def test_what_another_writer_lost_to_an_attempt_is_recovered(
        self, demo_graph: DemoGraph, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before the next attempt, and in the end: the engine refuses every write to a table that has drifted."""
        monkeypatch.setattr(Stamp3, "engines_lance", "lance 13.")
        graph, plan = self.planned(demo_graph, 3)

        class Lost(Deletes):
            def _do(self, name: str) -> Graph:
                if name == step:
                    drift(graph, "edge:Knows", delete_first())
                return super()._do(name)

        failures: dict[str, list[EngineFailure]] = {"load": [EngineConflict("stale view")] * (step == "load")}
        engine = Lost(graph, expiring(graph, plan), failures | {"merge": [EngineFailure("no")]})
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert engine.calls.count("create") == (2 if step == "load" else 1), stats.error
        assert check(graph).status is CheckStatus.CLEAN

    @pytest.mark.parametrize("refused", [False, True])
    def test_edges_that_another_engine_put_back_during_the_merge_go_after_all(
        self, demo_graph: DemoGraph, refused: bool
    ) -> None:
        graph, plan = self.planned(demo_graph, 6)
        rows = expiring(graph, plan)
        edges = {key: ids for key, ids in rows.items() if key != PERSON and ids}

        class Partly(Deletes):
            def merge(self, root: str, source: str, target: str) -> None:
                self._do("merge")
                is_first = self.calls.count("merge") == 1
                if refused and not is_first:
                    raise EngineConflict("stale view")
                for key in (PERSON,) if is_first else edges:
                    write(graph, key, lambda head, key=key: head.delete(f"id in ({', '.join(map(repr, rows[key]))})"))

        engine = Partly(graph, rows)
        (stats,) = expire_rows(graph, plan, engine=engine).tables
        assert (stats.rows_removed, graph.branches()) == (len(rows[PERSON]), ())
        assert {e.table_key: e.rows for e in stats.edges if e.rows} == (
            {} if refused else {k: len(edges[k]) for k in edges}
        )
        left = ", ".join(f"{len(ids):,} of {key}" for key, ids in edges.items())
        assert (f"edges of deleted nodes are left ({left})" in (stats.error or "")) == refused
        assert engine.calls.count("merge") == (6 if refused else 2)

    def test_edges_of_a_node_with_an_edge_that_came_during_the_merge_stay(self, demo_graph: DemoGraph) -> None:
        """Somebody was told that this edge is written: who loads the node again has its edges."""
        graph, plan = self.planned(demo_graph, 6)
        rows = expiring(graph, plan)
        key = next(key for key, ids in rows.items() if key != PERSON and ids)
        told = set[object]()

        class Beside(Deletes):
            def mutate(self, root: str, branch: str, query: str, params: Mapping[str, object]) -> int:
                if "merge" in self.calls:
                    told.update(params.values())
                return super().mutate(root, branch, query, params)

            def merge(self, root: str, source: str, target: str) -> None:
                self._do("merge")
                write(graph, key, copies("acknowledged-", 1))
                write(graph, PERSON, lambda head: head.delete(f"id in ({', '.join(map(repr, rows[PERSON]))})"))

        (stats,) = expire_rows(graph, plan, engine=Beside(graph, rows)).tables
        edges = graph.open_head(entry_of(graph, key)).to_table(columns=["id", "src", "dst"]).to_pylist()
        (ends,) = ({edge["src"], edge["dst"]} for edge in edges if edge["id"].startswith("acknowledged-"))
        assert told and not ends & told
        assert f"{len(edges):,} of {key}" in (stats.error or "")
        assert stats.rows_removed == len(rows[PERSON])

    def test_a_plan_without_an_engine_refuses_what_no_release_of_the_stamp_can_delete(
        self, demo_graph: DemoGraph, stamp: int
    ) -> None:
        graph = demo_graph(stamp=stamp, **SMALL)
        ir = json.loads(graph.storage.read(SCHEMA_IR_FILE))
        (person,) = (node for node in ir["nodes"] if node["name"] == "Person")
        for declared in person["properties"]:  # no plain string is left to mark rows in
            declared["prop_type"]["list"] |= declared["name"] == "bio"
        graph.storage.write(SCHEMA_IR_FILE, json.dumps(ir).encode())
        if stamp == 6:
            assert plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1)).total_rows > 0
            return
        with pytest.raises(InvalidInput, match=r"beside edges only by a mark, with omnigraph 0\.7\.2"):
            plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1))

    def test_a_plan_refuses_rows_with_a_required_blob_that_the_engine_would_have_to_mark(
        self, demo_graph: DemoGraph, stamp: int
    ) -> None:
        graph = demo_graph(stamp=stamp, **SMALL)
        ir = json.loads(graph.storage.read(SCHEMA_IR_FILE))
        (person,) = (node for node in ir["nodes"] if node["name"] == "Person")
        joined = next(p for p in person["properties"] if p["name"] == "joined")
        blob = {"scalar": "Blob", "nullable": False, "list": False, "enum_values": None}
        person["properties"].append(joined | {"name": "scan", "prop_type": joined["prop_type"] | blob})
        graph.storage.write(SCHEMA_IR_FILE, json.dumps(ir).encode())
        if stamp == 6:
            assert plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1)).total_rows > 0
            return
        with pytest.raises(InvalidInput, match="a row whose Blob 'scan' is required cannot be marked"):
            plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1))

    def test_a_plan_refuses_nodes_whose_edges_others_must_have(self, demo_graph: DemoGraph, stamp: int) -> None:
        graph = demo_graph(stamp=stamp, **SMALL)
        ir = json.loads(graph.storage.read(SCHEMA_IR_FILE))
        knows = next(edge for edge in ir["edges"] if edge["name"] == "Knows")
        knows["cardinality"] = {"min": 1, "max": None}
        graph.storage.write(SCHEMA_IR_FILE, json.dumps(ir).encode())
        (everybody,) = plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1)).tables
        assert (everybody.refused, everybody.expired) == (None, everybody.rows), "nobody stays who must have one"
        days = (time.time() - (everybody.newest_us or 0) / 1_000_000) // DAY
        some = replace(JOINED, older_than_secs=int(days + 1) * DAY)
        (table,) = plan_row_retention(graph, [some], bounds=RowBounds(max_share=1)).tables
        assert 0 < table.expired < table.rows
        if stamp == 6:
            assert "would be left with fewer edges of edge:Knows than the 1 that the schema" in (table.refused or "")
        else:
            assert table.refused is None, "its engine deletes them"

    def test_branches(self, demo_graph: DemoGraph, stamp: int) -> None:
        graph = demo_graph(stamp=stamp, lazy_branches=1, **SMALL)
        with pytest.raises(InvalidInput, match="no branch 'nowhere'"):
            plan_row_retention(graph, [JOINED], branch="nowhere")
        (name,) = graph.branches()
        plan = plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1), branch=name)
        if stamp == 3:
            with pytest.raises(InvalidInput, match="cannot write on a branch of a branch"):
                expire_rows(graph, plan, engine=Stub(graph, {}))

    @pytest.mark.parametrize("branches", ["lazy_branches", "written_branches"])
    def test_a_branch_with_inherited_indexes_is_refused(self, demo_graph: DemoGraph, stamp: int, branches: str) -> None:
        graph = demo_graph(stamp=stamp, **{branches: 1}, **SMALL)
        (name,) = graph.branches()
        (table,) = plan_row_retention(graph, [JOINED], bounds=RowBounds(max_share=1), branch=name).tables
        assert "that it inherited" in (table.refused or "")

    @pytest.mark.slow
    def test_a_plan_is_the_same_on_an_optimized_graph(self, demo_graph: DemoGraph, stamp: int) -> None:
        graph, plan = self.planned(demo_graph, stamp)
        optimize_all(graph)
        again = plan_row_retention(open_graph(graph.uri), [JOINED], bounds=RowBounds(max_share=1))
        assert [(t.expired, t.edges) for t in again.tables] == [(t.expired, t.edges) for t in plan.tables]


_ASKS = """
import sys
from omnigraph_ops.engine import EngineCli, EngineRelease
release = EngineRelease(version=(0, 9, 0), stamp=6)
EngineCli(path=sys.argv[1], release=release, timeout_seconds=60, environment={}).merge("root", "a", "main")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_the_engine_ends_with_the_process_that_asked_it(tmp_path: Path) -> None:
    binary, told = tmp_path / "engine", tmp_path / "pid"
    binary.write_text(f"#!/bin/sh\necho $$ > {told}.part; mv {told}.part {told}; exec sleep 600\n")
    binary.chmod(0o755)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    asking = subprocess.Popen([sys.executable, "-c", _ASKS, str(binary)], env=environment)
    deadline = time.monotonic() + 60
    while not told.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    status = Path("/proc", told.read_text().strip(), "status")
    assert _lives(status)
    asking.kill()
    asking.wait()
    while _lives(status):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _lives(status: Path) -> bool:
    """Whether a process is there, and not only what is left of it until somebody asks for its exit code. Reads."""
    try:
        return "(zombie)" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
