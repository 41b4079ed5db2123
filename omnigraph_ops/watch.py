"""How a stage and whoever runs it speak while it is at work: the units it does, and the wish to stop."""

from __future__ import annotations

import time

from omnigraph_ops.models.runs import Unit, UnitValue


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and does so where nothing is half done."""


class Run:
    """A run that nobody records and nobody stops: what a graph has unless its opener gives it another one."""

    @property
    def stopping(self) -> bool:
        """Whether no further unit may begin."""
        return False

    def begins(self, unit: Unit) -> None:
        """Called right before the first effect of a unit.

        Raises:
            StorageError: it could not be written down; the unit must not begin.
            Stopped: the run was asked to stop.
        """

    def ended(self, unit: Unit, value: UnitValue | None) -> None:
        """Called right after its last effect, with what came of it; None: nothing."""

    def notes(self, value: object) -> None:
        """Called with a plan, a report or a row of one, for whoever tells of the run."""

    def check(self) -> None:
        """Raise `Stopped` if the run was asked to stop."""
        if self.stopping:
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Wait so long; raise `Stopped` as soon as the run is asked to stop."""
        time.sleep(seconds)
