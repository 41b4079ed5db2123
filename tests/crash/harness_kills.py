"""One run to its end, and on the way everything that a process leaves behind which dies at one of its effects."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph_ops.graph.layout import RECOVERY_DIR
from tests.support.kills import AFTER, BEFORE, HALF_WRITTEN, CrashPoint, Killer, torn
from tests.support.leases import is_lease
from tests.support.places import Place, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A death at one effect, and what is left of it."""

    point: CrashPoint
    mode: str
    state: State = field(repr=False)

    def __str__(self) -> str:
        return f"{self.mode} {self.point}"

    @property
    def armed(self) -> bool:
        """Whether a sidecar is left."""
        return any(name.startswith(f"{RECOVERY_DIR}/") for name in self.state)


EVERY_DEATH = os.environ.get("OMNIGRAPH_CRASH_ALL") == "1"


def sample(deaths: Sequence[Death], first: int, every: int) -> list[Death]:
    """One in so many from the first one on; all of them for `make test-crash`. Pure.

    Args:
        first: differs between the stamps, so that together they sample more densely. With fewer deaths: the last one.
    """
    return list(deaths if EVERY_DEATH else deaths[min(first, len(deaths) - 1) :: every])


@dataclass(slots=True, kw_only=True)
class Witness(Killer):
    """Kills nobody: it notes for every effect what each death at it leaves.

    A process that dies does nothing more, so what is there at that moment is what it leaves: one run shows all deaths
    for which it would have to run once each.
    """

    place: Place
    deaths: list[Death] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """What changed outside of the noted effects."""
    _seen: State = field(default_factory=dict)
    _since: str = ""

    def begin(self) -> None:
        """From now on nothing may change outside of effects. Reads."""
        self._seen, self._since = self.place.look(), "the start"

    def quiet(self, moment: str) -> State:
        """What is there, which nothing has changed since the last effect. Reads."""
        now = self.place.look()
        # A thread renews the leases, of the graph and of a table, whenever it likes.
        changed = sorted({n for n, _ in now.items() ^ self._seen.items() if not is_lease(n)})
        if changed:
            self.broken.append(f"between {self._since} and {moment}: {changed[:3]}")
        return now

    def _act(self, point: CrashPoint, act: Callable[[], Any], half: Callable[[], Any]) -> Any:
        states = {BEFORE: self.quiet(f"before {point}")}
        if HALF_WRITTEN in point.modes:
            half()
            states[HALF_WRITTEN] = self.place.look()
            self.place.put(states[BEFORE], spared=is_lease)
        result = act()
        states[AFTER] = self._seen = self.place.look()
        self._since = f"after {point}"
        for mode in point.modes:
            state = states.get(mode) or torn(states[BEFORE], states[AFTER], mode)
            self.deaths.append(Death(point=point, mode=mode, state=state))
        return result
