"""A graph that is put back to the same place before every kill."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import store_check
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.opening import open_graph
from tests.crash.harness_disk import Contents, Quiet, files_in, restore
from tests.crash.harness_scenarios import Scenario
from tests.crash.harness_state import QUICK, check_converged, check_readable, converge
from tests.support.kills import BEFORE, CrashPoint, Killed, Killer, killing
from tests.support.rows import Rows, rows_everywhere


def forget_clocks() -> None:
    """Every run stands for a new process, which has not compared its clock yet."""
    store_check._known().clear()


@dataclass(slots=True, kw_only=True)
class Stage:
    """One run on one graph, again and again: the place of the graph, and what it looked like before."""

    root: str
    rows: dict[str | None, Rows]
    settings: Settings
    run: Callable[[Graph], object]
    reset: Callable[[], None]
    """Puts the graph back, at its one path: branch manifests record it. Writes."""
    look: Callable[[], Contents]
    killer: Callable[..., Killer]
    again: Callable[[Graph], object] = lambda _graph: None
    guard: Callable[[Killer], AbstractContextManager[object]] = killing

    def record(self) -> list[CrashPoint]:
        """Run once undisturbed; every mutating call in order. Outside of them nothing is written. Writes."""
        self.reset()
        forget_clocks()
        quiet = Quiet(self.look)
        killer = self.killer(on_quiet=quiet)
        with self.guard(killer):
            self.run(open_graph(self.root, self.settings))
        quiet("before the end")
        assert not quiet.broken, "\n".join(quiet.broken)
        assert killer.points, "the run has nothing to kill"
        return killer.points

    def kills(self) -> list[tuple[CrashPoint, str]]:
        """Every point with every way to die there, each state once. Writes.

        Nothing is written between two calls, so to die before one is to have died after the one before it.
        """
        return [(p, mode) for p in self.record() for mode in p.modes if mode != BEFORE or p.index == 0]

    def kill(self, point: CrashPoint, mode: str) -> None:
        """Run from the start and die at that point. Writes."""
        self.reset()
        forget_clocks()
        killer = self.killer(when=lambda p: p.index == point.index, mode=mode)
        with self.guard(killer), pytest.raises(Killed):
            self.run(open_graph(self.root, self.settings))
        assert killer.points[-1] == point, "the run is not the same twice"

    def survives(self, point: CrashPoint, mode: str) -> list[str]:
        """Kill there, look, converge, look again; what went wrong, in words. Writes."""
        try:
            self.kill(point, mode)
            check_readable(self.root, self.rows)
            converge(self.root, self.again)
            check_readable(self.root, self.rows)
            check_converged(self.root)
        except Exception:
            return [f"{mode} {point}:\n{traceback.format_exc(limit=-3)}"]
        return []


def stage_of(root: Path, run: Callable[[Graph], object], settings: Settings = QUICK) -> Stage:
    """A stage for the graph as it is now at `root`; a copy of it goes beside. Writes."""
    pristine = root.with_name("pristine")
    shutil.copytree(root, pristine)
    return Stage(
        root=str(root),
        rows=rows_everywhere(open_graph(str(root), QUICK)),
        settings=settings,
        run=run,
        reset=partial(restore, root, pristine, files_in(pristine)),
        look=partial(files_in, root),
        killer=partial(Killer, root=root),
    )


def build_stage(folder: Path, scenario: Scenario, stamp: int) -> Stage:
    """The graph of a scenario below `folder`. Writes."""
    root = folder / "graph"
    scenario.build(str(root), stamp)
    return replace(stage_of(root, scenario.run, scenario.settings), again=scenario.again)


@pytest.fixture
def stage(tmp_path: Path) -> Callable[[Scenario, int], Stage]:
    """Builds the graph of a scenario."""
    return lambda scenario, stamp: build_stage(tmp_path, scenario, stamp)
