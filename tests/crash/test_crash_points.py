"""Kill optimize, repair and recover at every mutating call; nothing is lost and the next run finishes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.conftest import Stage
from tests.crash.harness_scenarios import SCENARIOS, Scenario

MakeStage = Callable[[Scenario, int], Stage]
STAMPS = (3, 6)
_BY_NAME = {s.name: s for s in SCENARIOS}


@pytest.mark.crash
@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("name", sorted(_BY_NAME))
def test_a_kill_at_any_call_is_finished_by_the_next_run(stage: MakeStage, name: str, stamp: int) -> None:
    built = stage(_BY_NAME[name], stamp)
    problems = [p for kill in built.kills() for p in built.survives(kill)]
    assert not problems, "\n".join(problems)
