"""What a submit that measures rewrites leaves for the process that submitted it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """How long each rewrite of a submit took, in the order of its arguments."""

    of_each: tuple[float, ...]
