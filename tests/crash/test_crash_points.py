"""Kill optimize, repair and recover at mutating calls; nothing is lost and the next run finishes.

At every call while a sidecar is there, and at every call of a run that needs none. Before and after a window a death
leaves files that nothing refers to: of these a sample runs, and all of them in `make test-crash`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.conftest import Stage
from tests.crash.harness_kills import sample
from tests.crash.harness_scenarios import SCENARIOS, Scenario

MakeStage = Callable[[Scenario, int], Stage]
STAMPS = (3, 6)
_BY_NAME = {s.name: s for s in SCENARIOS}


@pytest.mark.crash
@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("name", sorted(_BY_NAME))
def test_a_kill_at_any_call_is_finished_by_the_next_run(stage: MakeStage, name: str, stamp: int) -> None:
    built = stage(_BY_NAME[name], stamp)
    kills = built.kills()
    armed = [kill for kill in kills if kill.armed]
    around = [kill for kill in kills if not kill.armed]
    chosen = armed + sample(around, first=STAMPS.index(stamp), every=4) if armed else kills
    problems = [p for kill in chosen for p in built.survives(kill)]
    assert not problems, "\n".join(problems)
