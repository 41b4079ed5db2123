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
        before = {path.relative_to(self.pristine): path for path in self.pristine.rglob("*")}
        root = Path(self.root)
        # Deepest first, so that folders are empty when their turn comes. Only differences are
        # touched: a full copy would cost more than the run.
        for path in sorted(root.rglob("*"), reverse=True):
            if path.relative_to(root) not in before:
                path.rmdir() if path.is_dir() else path.unlink()
        for relative, saved in sorted(before.items()):
            if saved.is_dir():
                (root / relative).mkdir(exist_ok=True)
            elif _stamp(root / relative) != _stamp(saved):
                shutil.copy2(saved, root / relative)

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


def _stamp(path: Path) -> tuple[int, int] | None:
    found = path.stat() if path.exists() else None
    return (found.st_mtime_ns, found.st_size) if found else None


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
