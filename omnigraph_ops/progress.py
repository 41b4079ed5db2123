"""How long work tells how far it is, whoever shows it."""

from __future__ import annotations

from typing import Literal, Protocol

Unit = Literal["bytes", "files", "tables", "rows"]


class Progress(Protocol):
    """Takes what a stage says while it is at work."""

    def __call__(self, text: str, /) -> None:
        """A sentence about what was done or is about to begin."""

    def at(self, what: str, done: int, total: int | None, unit: Unit) -> None:
        """How much of a piece of work is done.

        Args:
            what: names the piece: `copying`; of no other that is shown at the same time.
            total: None while that is not known.
        """


class Silent:
    """Shows nothing."""

    def __call__(self, text: str, /) -> None:
        """Drop the sentence."""

    def at(self, what: str, done: int, total: int | None, unit: Unit) -> None:
        """Drop the figure."""


SILENT: Progress = Silent()
