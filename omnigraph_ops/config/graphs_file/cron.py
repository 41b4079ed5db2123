"""Cron expressions as Airflow's croniter takes them: five fields or a preset, on a day that comes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from omnigraph_ops.errors import InvalidInput

_PRESETS = {"@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"}
_PART = re.compile(r"(\*|\w+(?:-\w+)?)(?:/0*([1-9]\d{0,3}))?", re.ASCII)
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Days of each month; February in a leap year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """One of the five, and what may stand there."""

    title: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Words for the values from `low` on."""

    def values(self, text: str) -> frozenset[int]:
        """What the field lists; `InvalidInput` where it does not fit."""
        parts = [self._part(part) for part in text.split(",")]
        if not all(parts):
            raise InvalidInput(f"'{text}' does not fit the {self.title} of a cron expression")
        return frozenset(value for part in parts for value in part)

    def _part(self, text: str) -> tuple[int, ...]:
        """The values of `3`, `mon-fri`, `sat-sun`, `*/5`, `10/5`; empty for anything else."""
        found = _PART.fullmatch(text)
        if found is None:
            return ()
        said = [self.low, self.high] if found[1] == "*" else [self._value(word) for word in found[1].split("-")]
        first, last = said[0], said[-1] if len(said) > 1 or not found[2] else self.high
        if not all(self.low <= value <= self.high for value in said):
            return ()
        # A range whose end comes first goes on from the beginning.
        listed = (*range(first, self.high + 1), *range(self.low, last + 1)) if last < first else range(first, last + 1)
        return tuple(listed)[:: int(found[2] or 1)]

    def _value(self, text: str) -> int:
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.low
        return int(text) if text.isascii() and text.isdigit() and len(text) < 3 else -1


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    _Field(title="minute", low=0, high=59),
    _Field(title="hour", low=0, high=23),
    _Field(title="day of month", low=1, high=31),
    _Field(title="month", low=1, high=12, names=_MONTHS),
    _Field(title="day of week", low=0, high=7, names=_WEEKDAYS),
)


def check_cron(text: str) -> None:
    """Raise `InvalidInput` for what is no cron expression, or for one whose day never comes. Pure."""
    if text in _PRESETS:
        return
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise InvalidInput(f"'{text}' is not a cron expression of five fields")
    _, _, days, months, _ = (field.values(said) for field, said in zip(_FIELDS, fields, strict=True))
    # With a day of the week beside it, either of the two is enough.
    any_weekday = "*" in fields[-1].split(",")
    if any_weekday and all(day > _LONGEST[month - 1] for day in days for month in months):
        raise InvalidInput(f"'{text}' never comes: no month that it names has such a day")
