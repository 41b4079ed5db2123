"""Kill optimize, repair and recover at every mutating call; nothing is lost and the next run finishes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.lease import LEASE_PATH
from tests.crash.conftest import Stage, build_stage
from tests.crash.harness_kill import AFTER, Killer, killing
from tests.crash.harness_scenarios import SCENARIOS, Scenario

MakeStage = Callable[[Scenario, int], Stage]
STAMPS = (3, 6)
_BY_NAME = {s.name: s for s in SCENARIOS}


@pytest.mark.crash
@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("name", sorted(_BY_NAME))
def test_a_kill_at_any_call_is_finished_by_the_next_run(stage: MakeStage, name: str, stamp: int) -> None:
    built = stage(_BY_NAME[name], stamp)
    points = built.record()
    problems = [p for point in points for mode in point.modes for p in built.survives(point, mode)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_kill_right_after_each_call_of_an_optimize(stage: MakeStage, stamp: int) -> None:
    built = stage(_BY_NAME["one-window"], stamp)
    problems = [p for point in built.record() for p in built.survives(point, AFTER)]
    assert not problems, "\n".join(problems)


@pytest.mark.crash
@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("name", sorted(_BY_NAME))
def test_nothing_is_written_between_the_enumerated_calls(stage: MakeStage, name: str, stamp: int) -> None:
    """The enumeration is complete: files change inside a recorded call or not at all."""
    built = stage(_BY_NAME[name], stamp)
    built.reset()
    seen: list[tuple[str, dict[str, int]]] = [("the start", _files(built.root))]
    unexpected: list[str] = []

    def look(moment: str) -> None:
        now = _files(built.root)
        if moment.startswith("before") and now != seen[-1][1]:
            changed = sorted(set(now.items()) ^ set(seen[-1][1].items()))
            unexpected.append(f"between {seen[-1][0]} and {moment}: {changed[:3]}")
        seen.append((moment, now))

    killer = Killer(root=Path(built.root), on_quiet=look)
    with killing(killer):
        built.scenario.run(built.scenario.open(built.root))
    look("before the end")
    assert not unexpected, "\n".join(unexpected)


@pytest.mark.crash
def test_the_number_of_crash_points(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    total, lines = 0, []
    for scenario in SCENARIOS:
        for stamp in STAMPS:
            built = build_stage(tmp_path_factory.mktemp("count"), scenario, stamp)
            kills = sum(len(p.modes) for p in built.record())
            total += kills
            lines.append(f"  {scenario.name}, stamp {stamp}: {kills}")
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join([*lines, f"crash points: {total}", ""]))
    assert total >= 300


def _files(root: str) -> dict[str, int]:
    """Every file with its modification time, without the lease, which a thread renews."""
    return {
        path: os.stat(path).st_mtime_ns
        for folder, _, names in os.walk(root)
        for path in (os.path.join(folder, name) for name in names)
        if not path.endswith(LEASE_PATH)
    }
