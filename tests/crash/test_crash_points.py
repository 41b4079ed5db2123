"""Kill optimize, repair and recover at mutating calls; nothing is lost and the next run finishes.

A sample of the calls, denser while a sidecar is there, and for the two stamps not the same one; every call in
`make test-crash`. Outside of a window a death leaves only files that nothing refers to.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.conftest import Stage
from tests.crash.harness_kills import sample
from tests.crash.harness_scenarios import SCENARIOS, Scenario

MakeStage = Callable[[Scenario, int], Stage]
STAMPS = (3, 6)
CASES = [pytest.param(s, stamp, id=f"{s.name}-{stamp}") for s in SCENARIOS for stamp in s.stamps]


@pytest.mark.crash
@pytest.mark.parametrize(("scenario", "stamp"), CASES)
def test_a_kill_at_any_call_is_finished_by_the_next_run(stage: MakeStage, scenario: Scenario, stamp: int) -> None:
    built = stage(scenario, stamp)
    kills = built.kills()
    armed = [kill for kill in kills if kill.armed]
    around = [kill for kill in kills if not kill.armed]
    first = STAMPS.index(stamp)
    # A recovery is short, and a death in it is the second one.
    every = 4 if scenario.name.startswith("recover") else 6
    chosen = sample(armed, first * every // 2, every) + sample(around, first, every=12) if armed else kills
    problems = [p for kill in chosen for p in built.survives(kill)]
    assert not problems, "\n".join(problems)
