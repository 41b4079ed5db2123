"""What becomes of each task of a journal, from what it replaces, what it made and what the table holds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from omnigraph_ops.lance.rewrites import Sources


class Fate(StrEnum):
    """What becomes of a task."""

    COMMITTED = "committed"
    """Its result is in the table: it is never committed again."""
    FINISHED = "finished"
    """Its result can be committed as it is."""
    TODO = "todo"
    """Nothing usable was finished, and its fragments are all still there: it executes."""
    LOST = "lost"
    """Its fragments changed: what is there now is planned anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAttempt:
    """One finished execution as it is found: the files it made, and whether they are all there with their sizes."""

    attempt: str
    files: tuple[str, ...]
    intact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTask:
    """One task of a journal with every finished execution of it."""

    index: int
    sources: Sources
    attempts: tuple[SeenAttempt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFate:
    """The decision about one task."""

    index: int
    fate: Fate
    chosen: str | None = None
    """The attempt that is committed, or whose result is used."""
    losers: tuple[str, ...] = ()
    """Attempts whose files nobody will ever read."""


def decide(task: SeenTask, accepts: Callable[[Sources], bool], referenced: Collection[str]) -> TaskFate:
    """The fate of one task. Pure.

    Args:
        accepts: whether the current version still holds these fragments as they were.
        referenced: the files, among those that the journal names, that some version refers to.
    """
    committed = next((a for a in task.attempts if any(f in referenced for f in a.files)), None)
    if committed is not None:
        return _fate(task, Fate.COMMITTED, committed)
    if not accepts(task.sources):
        return _fate(task, Fate.LOST, None)
    usable = next((a for a in task.attempts if a.intact), None)
    return _fate(task, Fate.TODO if usable is None else Fate.FINISHED, usable)


def summary(fates: Sequence[TaskFate]) -> str:
    """The decisions in a few words, for the log. Pure."""
    counts = {fate: sum(1 for f in fates if f.fate is fate) for fate in Fate}
    return ", ".join(f"{number} {fate}" for fate, number in counts.items() if number) or "nothing planned"


def _fate(task: SeenTask, fate: Fate, chosen: SeenAttempt | None) -> TaskFate:
    return TaskFate(
        index=task.index,
        fate=fate,
        chosen=chosen.attempt if chosen is not None else None,
        losers=tuple(a.attempt for a in task.attempts if a is not chosen),
    )
