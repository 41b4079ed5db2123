"""Somebody else who does something between the last look of a stage and its effect."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph_ops.models.outcomes import StageReport
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Run


class Beside(Run):
    """Acts once, right before the first unit of a run, or the first one of a table."""

    def __init__(self, act: Callable[[], object], table_key: str | None = None) -> None:
        self._act: Callable[[], object] | None = act
        self._table_key = table_key
        self.units: list[Unit] = []
        """Those that began."""
        self.came: dict[str, StageReport | None] = {}
        """What each unit that ended came to, by its name."""

    def begins(self, unit: Unit) -> None:
        """Note it, and act, if this is the unit. As `act`."""
        self.units.append(unit)
        if self._act is not None and self._table_key in {None, unit.table_key}:
            act, self._act = self._act, None
            act()

    def ended(self, unit: Unit, did: StageReport | None) -> None:
        """Keep it. Pure."""
        self.came[unit.name] = did
