"""A graph that is put back to the same place for every kill."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import environment
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.opening import open_graph
from tests.crash.harness_kills import Death, Witness
from tests.crash.harness_scenarios import Scenario
from tests.crash.harness_state import QUICK, check_converged, check_readable, converge
from tests.support.kills import BEFORE, Killer, killing
from tests.support.places import Folder, Place, State
from tests.support.rows import Rows, rows_everywhere


def forget_clocks() -> None:
    """Every run stands for a new process, which has not compared its clock yet."""
    environment._KNOWN.clear()


@dataclass(slots=True, kw_only=True)
class Stage:
    """One run on one graph: the place of the graph, and what it looked like before."""

    root: str
    rows: dict[str | None, Rows]
    settings: Settings
    run: Callable[[Graph], object]
    place: Place
    """The one path of the graph: branch manifests record it."""
    pristine: State
    witness: Callable[..., Witness]
    again: Callable[[Graph], object] = lambda _graph: None
    guard: Callable[[Killer], AbstractContextManager[object]] = killing

    def reset(self) -> None:
        """Put the graph back as it was before the run. Writes."""
        self.place.put(self.pristine)
        forget_clocks()

    def deaths(self) -> list[Death]:
        """Run to the end; every effect with every way to die there, in order. Writes."""
        self.reset()
        witness = self.witness(place=self.place)
        witness.begin()
        with self.guard(witness):
            self.run(open_graph(self.root, self.settings))
        witness.quiet("before the end")
        assert not witness.broken, "\n".join(witness.broken)
        assert witness.deaths, "the run has nothing to kill"
        return witness.deaths

    def kills(self) -> list[Death]:
        """As `deaths`, each state once. Writes.

        Nothing is written between two effects, so to die before one is to have died after the one before it.
        """
        return [death for death in self.deaths() if death.mode != BEFORE or death.point.index == 0]

    def kill(self, death: Death) -> None:
        """Make the graph what that death leaves of it. Writes."""
        self.place.put(death.state)
        forget_clocks()

    def survives(self, death: Death) -> list[str]:
        """Kill there, look, converge, look again; what went wrong, in words. Writes."""
        try:
            self.kill(death)
            check_readable(self.root, self.rows)
            converge(self.root, self.again)
            check_readable(self.root, self.rows)
            check_converged(self.root)
        except Exception:
            return [f"{death}:\n{traceback.format_exc(limit=-3)}"]
        return []


def stage_of(root: Path, run: Callable[[Graph], object], settings: Settings = QUICK) -> Stage:
    """A stage for the graph as it is now at `root`. Reads."""
    place = Folder(root)
    return Stage(
        root=str(root),
        rows=rows_everywhere(open_graph(str(root), QUICK)),
        settings=settings,
        run=run,
        place=place,
        pristine=place.look(),
        witness=partial(Witness, root=root),
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
