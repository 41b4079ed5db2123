"""What an open graph is worked on with: the settings of the run, the run itself, and the fence around it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.watch import Run


class HeldFence:
    """A schema-apply lock that this process put up. Another thread may take it down in the middle of a run."""

    def __init__(self, identifier: tuple[tuple[int, str], ...]) -> None:
        self.identifier = identifier
        """Of the lock branch's lifetime."""
        self._down = threading.Event()

    @property
    def is_up(self) -> bool:
        """Whether writers are still kept away, as far as this process does it."""
        return not self._down.is_set()

    def take_down(self) -> None:
        """Say that writers are not kept away any more; whoever says so removes the lock. Changes this object."""
        self._down.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """How one run works on a graph. Only the fence changes while it lasts, and it is asked each time."""

    settings: Settings
    """The deployment's, with what the run says otherwise."""
    run: Run = field(default_factory=Run)
    """Whom stages tell of their units and ask whether to stop."""
    fence: HeldFence | None = None

    @property
    def is_fenced(self) -> bool:
        """Whether this run's own fence keeps writers away right now."""
        return self.fence is not None and self.fence.is_up

    @property
    def exclusive(self) -> bool:
        """Whether nobody else publishes right now: so the settings say, or the fence sees to it."""
        return self.settings.exclusive or self.is_fenced
