"""Check a cron expression with the parser that Airflow's scheduler uses."""

from __future__ import annotations

from datetime import datetime

from croniter import CroniterBadDateError, croniter

from omnigraph_ops.errors import InvalidInput

_PRESETS = {"@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"}
_FIELDS = ("minute", "hour", "day of month", "month", "day of week")


def check_cron(text: str) -> None:
    """Raise `InvalidInput` for what is no cron expression, or for one whose day never comes. Pure."""
    if text in _PRESETS:
        return
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise InvalidInput(f"'{text}' is not a cron expression of five fields")
    for place, (title, said) in enumerate(zip(_FIELDS, fields, strict=True)):
        alone = ["*"] * len(_FIELDS)
        alone[place] = said
        # croniter reads `r` as a random value: every parse of the DAG would give it another schedule.
        if said.lower().startswith("r") or not croniter.is_valid(" ".join(alone)):
            raise InvalidInput(f"'{said}' does not fit the {title} of a cron expression")
    try:
        croniter(text, datetime(2000, 1, 1)).get_next()
    except CroniterBadDateError:
        raise InvalidInput(f"'{text}' never comes: no month that it names has such a day") from None
