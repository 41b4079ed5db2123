"""Kill optimize, repair and recover at every mutating call; nothing is lost and the next run finishes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.conftest import Stage
from tests.crash.harness_scenarios import SCENARIOS, Scenario
from tests.support.kills import AFTER

MakeStage = Callable[[Scenario, int], Stage]
STAMPS = (3, 6)
_BY_NAME = {s.name: s for s in SCENARIOS}
_QUICK = ("small", AFTER)
"""What `make check` kills as well."""


@pytest.mark.crash
@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("name", sorted(_BY_NAME))
def test_a_kill_at_any_call_is_finished_by_the_next_run(stage: MakeStage, name: str, stamp: int) -> None:
    built = stage(_BY_NAME[name], stamp)
    kills = [(point, mode) for point, mode in built.kills() if (name, mode) != _QUICK]
    problems = [p for point, mode in kills for p in built.survives(point, mode)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_kill_right_after_each_call_of_an_optimize(stage: MakeStage, stamp: int) -> None:
    name, mode = _QUICK
    built = stage(_BY_NAME[name], stamp)
    problems = [p for point in built.record() for p in built.survives(point, mode)]
    assert not problems, "\n".join(problems)
