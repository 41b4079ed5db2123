"""A graph that is put back to the same place before every kill."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph_ops.graph.graph import open_graph
from tests.crash.harness_kill import CrashPoint, Killed, Killer, killing
from tests.crash.harness_scenarios import Scenario
from tests.crash.harness_state import QUICK, Rows, observed_rows


@dataclass(slots=True, kw_only=True)
class Stage:
    """One scenario on one stamp: the place of its graph, and what it looked like before the run."""

    scenario: Scenario
    root: str
    pristine: Path
    rows: Rows

    def reset(self) -> None:
        """Put the graph back, at its one path: branch manifests record it. Writes."""
        shutil.rmtree(self.root)
        shutil.copytree(self.pristine, self.root, symlinks=True)

    def record(self) -> list[CrashPoint]:
        """Run once undisturbed; every mutating call in order. Writes."""
        self.reset()
        killer = Killer(root=Path(self.root))
        with killing(killer):
            self.scenario.run(self.scenario.open(self.root))
        return killer.points

    def kill(self, point: CrashPoint, mode: str) -> None:
        """Run from the start and die at that point. Writes."""
        self.reset()
        killer = Killer(root=Path(self.root), when=lambda p: p.index == point.index, mode=mode)
        with killing(killer), pytest.raises(Killed):
            self.scenario.run(self.scenario.open(self.root))
        assert killer.points[-1] == point, "the run is not the same twice"


def build_stage(folder: Path, scenario: Scenario, stamp: int) -> Stage:
    """The graph of a scenario below `folder`. Writes."""
    root = folder / "graph"
    scenario.build(str(root), stamp)
    shutil.copytree(root, folder / "pristine")
    rows = observed_rows(open_graph(str(root), QUICK))
    return Stage(scenario=scenario, root=str(root), pristine=folder / "pristine", rows=rows)


@pytest.fixture
def stage(tmp_path: Path) -> Callable[[Scenario, int], Stage]:
    """Builds the graph of a scenario."""
    return lambda scenario, stamp: build_stage(tmp_path, scenario, stamp)
