"""A plan in the log of the task that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_ops.views.readable import safe

if TYPE_CHECKING:
    from omnigraph_airflow.operators.base import Log
    from omnigraph_ops.views.view import View

_MOST_LOGGED = 10_000


def log_view(log: Log, view: View) -> None:
    """Log a view, its sections folded; of very long ones the first rows. Writes the log."""
    log.info("%s", safe(view.title))
    for name, value in view.facts:
        log.info("%s: %s", name, safe(value))
    for section in view.sections:
        log.info("::group::%s", safe(section.title))
        lines = [*section.lines, *(" | ".join(row) for row in (section.header, *section.rows) if row)]
        for line in lines[:_MOST_LOGGED]:
            # A name must not end the fold, or begin another.
            log.info("  %s", safe(line))
        if len(lines) > _MOST_LOGGED:
            log.info("  and %d more, listed in the kept plan", len(lines) - _MOST_LOGGED)
        log.info("::endgroup::")
