"""One run to its end, and on the way everything that a process leaves behind which dies at one of its effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.crash.harness_disk import Place, State
from tests.support.kills import AFTER, BEFORE, HALF_WRITTEN, NO_VERSION, ONE_VERSION_SHORT, CrashPoint, Killer
from tests.support.leases import is_lease

_HINT = "latest_version_hint.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A death at one effect, and what is left of it."""

    point: CrashPoint
    mode: str
    state: State = field(repr=False)

    def __str__(self) -> str:
        return f"{self.mode} {self.point}"


@dataclass(slots=True, kw_only=True)
class Witness(Killer):
    """Kills nobody: it notes for every effect what each death at it leaves.

    A process that dies does nothing more, so what is there at that moment is what it leaves: one run shows all deaths
    for which it would have to run once each.
    """

    place: Place
    kills: list[Kill] = field(default_factory=list)
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
            self.kills.append(Kill(point=point, mode=mode, state=state))
        return result


def torn(before: State, after: State, mode: str) -> State:
    """What a Lance commit leaves without its last versions, or without the hint at them. Pure."""
    manifests = {n for n in after.keys() - before.keys() if n.endswith(".manifest") and "_versions/" in n}
    # V2 names count down, so the newest version sorts first.
    fresh = sorted(manifests, key=lambda name: name.rpartition("/")[2])
    lost = set(fresh[: {NO_VERSION: len(fresh), ONE_VERSION_SHORT: 1}.get(mode, 0)])
    state = {name: value for name, value in after.items() if name not in lost}
    for folder in {name.rpartition("/")[0] for name in fresh}:
        hint = f"{folder}/{_HINT}"
        state.pop(hint, None)
        if hint in before:
            state[hint] = before[hint]
        if not any(name.startswith(f"{folder}/") for name in state):
            state.pop(folder, None)
    return state
