"""A graph that is put back to the same place before every kill."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from omnigraph_ops.graph.graph import open_graph
from tests.crash.harness_kill import CrashPoint, Killed, Killer, killing
from tests.crash.harness_scenarios import Scenario
from tests.crash.harness_state import QUICK, Rows, check_converged, check_readable, converge, observed_rows
from tests.support.s3 import s3, s3_server

__all__ = ["s3", "s3_server"]


@dataclass(slots=True, kw_only=True)
class Stage:
    """One scenario on one stamp: the place of its graph, and what it looked like before the run."""

    scenario: Scenario
    root: str
    rows: Rows
    reset: Callable[[], None]
    """Puts the graph back, at its one path: branch manifests record it. Writes."""
    killer: Callable[..., Killer]

    def record(self) -> list[CrashPoint]:
        """Run once undisturbed; every mutating call in order. Writes."""
        self.reset()
        killer = self.killer()
        with killing(killer):
            self.scenario.run(self.scenario.open(self.root))
        return killer.points

    def kill(self, point: CrashPoint, mode: str) -> None:
        """Run from the start and die at that point. Writes."""
        self.reset()
        killer = self.killer(when=lambda p: p.index == point.index, mode=mode)
        with killing(killer), pytest.raises(Killed):
            self.scenario.run(self.scenario.open(self.root))
        assert killer.points[-1] == point, "the run is not the same twice"

    def survives(self, point: CrashPoint, mode: str) -> list[str]:
        """Kill there, look, converge, look again; what went wrong, in words. Writes."""
        try:
            self.kill(point, mode)
            check_readable(self.root, self.rows)
            converge(self.root, self.scenario.again)
            check_readable(self.root, self.rows)
            check_converged(self.root)
        except Exception:
            return [f"{mode} {point}:\n{traceback.format_exc(limit=-3)}"]
        return []


def _restore(root: Path, pristine: Path) -> None:
    before = {path.relative_to(pristine): path for path in pristine.rglob("*")}
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


def _stamp(path: Path) -> tuple[int, int] | None:
    found = path.stat() if path.exists() else None
    return (found.st_mtime_ns, found.st_size) if found else None


def build_stage(folder: Path, scenario: Scenario, stamp: int) -> Stage:
    """The graph of a scenario below `folder`. Writes."""
    root, pristine = folder / "graph", folder / "pristine"
    scenario.build(str(root), stamp)
    shutil.copytree(root, pristine)
    return Stage(
        scenario=scenario,
        root=str(root),
        rows=observed_rows(open_graph(str(root), QUICK)),
        reset=partial(_restore, root, pristine),
        killer=partial(Killer, root=root),
    )


@pytest.fixture
def stage(tmp_path: Path) -> Callable[[Scenario, int], Stage]:
    """Builds the graph of a scenario."""
    return lambda scenario, stamp: build_stage(tmp_path, scenario, stamp)
