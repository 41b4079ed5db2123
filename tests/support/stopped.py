"""A run that is asked to stop while it waits."""

from __future__ import annotations

from omnigraph_ops.progress import Run, Stopped


class LeavesPauses(Run):
    """Does its units, and stops at the first pause between them."""

    def pause(self, seconds: float) -> None:
        raise Stopped
