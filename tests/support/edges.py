"""What happens where an edge is asked for something: the store, the gateway to Lance, pylance, or a client below them.

A fault, somebody else who comes between, or only a note of what was asked for. Which function of the tool asks is of no
concern, so a test stays as it is when that moves.
"""

from __future__ import annotations

import inspect
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

import pytest
from lance.dataset import MergeInsertBuilder

from omnigraph_ops.lance import tables as lance_tables
from omnigraph_ops.storage.store import Storage

Act = Callable[[], object]


class When(TypedDict, total=False):
    """Which calls are the moment; without any of these the first one."""

    about: str
    """An expression that is found in the paths, addresses and names that the call is about."""
    skip: int
    """So many calls come before the first that counts."""
    times: int | None
    """At how many calls; None: at every one."""
    after: bool
    """Right after the call instead of before it."""


@dataclass(kw_only=True)
class _Moment:
    """The calls that count, and what is done at some of them. For any thread."""

    act: Act
    about: str = ""
    skip: int = 0
    times: int | None = 1
    after: bool = False
    asked: list[str] = field(default_factory=list)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _acting: threading.local = field(default_factory=threading.local)
    """What `act` itself asks for passes by."""

    def call(self, what: str, real: Callable[[], Any]) -> Any:
        """Make the call, and act if this is the moment."""
        if getattr(self._acting, "now", False) or not re.search(self.about, what):
            return real()
        with self._counting:
            self.asked.append(what)
            number = len(self.asked) - self.skip
        acts = number > 0 and (self.times is None or number <= self.times)
        if acts and not self.after:
            self._act()
        result = real()
        if acts and self.after:
            self._act()
        return result

    def _act(self) -> None:
        self._acting.now = True
        try:
            self.act()
        finally:
            self._acting.now = False


def nothing() -> None:
    """Do nothing: the call is only noted."""


def when_asked(
    patch: pytest.MonkeyPatch,
    edge: Any,
    call: str,
    act: Act = nothing,
    **when: Unpack[When],
) -> list[str]:
    """Call `act` right before a call of an edge; an error that it raises is that of the call.

    Args:
        edge: a class or module, such as `Storage`.

    Returns:
        What all calls were about, so far.
    """
    moment = _Moment(act=act, **when)
    real = getattr(edge, call)

    def asking(*arguments: Any, **named: Any) -> Any:
        return moment.call(_about((*arguments, *named.values())), lambda: real(*arguments, **named))

    is_static = isinstance(inspect.getattr_static(edge, call), staticmethod)
    patch.setattr(edge, call, staticmethod(asking) if is_static else asking)
    return moment.asked


def when_committed(patch: pytest.MonkeyPatch, act: Act = nothing, **when: Unpack[When]) -> list[str]:
    """As `when_asked`, at the short step that makes a prepared version of a table visible."""
    moment = _Moment(act=act, **when)
    real = Storage.prepared

    @contextmanager
    def prepared(self: Storage, path: str, data: bytes) -> Iterator[Callable[[], Any]]:
        with real(self, path, data) as step:
            yield lambda: moment.call(path, step)

    patch.setattr(Storage, "prepared", prepared)
    return moment.asked


def when_published(patch: pytest.MonkeyPatch, act: Act = nothing, **when: Unpack[When]) -> list[str]:
    """As `when_asked`, at the swap of the graph manifest, for which everything was read."""
    return when_asked(patch, MergeInsertBuilder, "execute", act, **when)


def tasks_around(around: Callable[[str, Callable[[], Any]], Any]) -> type:
    """Pylance's task of a compaction, with something around its execution: of that class nothing can be replaced.

    Args:
        around: gets the address of the dataset, and what executes the task.
    """
    real = lance_tables._CompactionTask

    class Task:
        def __init__(self, task: Any) -> None:
            self._task = task

        @staticmethod
        def from_json(payload: str) -> Task:
            return Task(real.from_json(payload))

        def execute(self, dataset: Any) -> Any:
            return around(dataset.uri, lambda: self._task.execute(dataset))

    return Task


def commits_around(around: Callable[[str, Callable[[], Any]], Any]) -> type:
    """As `tasks_around`, with something around the commit of the results."""
    real = lance_tables._Compaction

    class Compaction:
        plan = staticmethod(real.plan)

        @staticmethod
        def commit(dataset: Any, results: Any, *options: Any) -> Any:
            return around(dataset.uri, lambda: real.commit(dataset, results, *options))

    return Compaction


def when_rewritten(patch: pytest.MonkeyPatch, act: Act = nothing, **when: Unpack[When]) -> list[str]:
    """As `when_asked`, at each task of a compaction that pylance executes in this process."""
    moment = _Moment(act=act, **when)
    patch.setattr(lance_tables, "_CompactionTask", tasks_around(moment.call))
    return moment.asked


def when_compacted(patch: pytest.MonkeyPatch, act: Act = nothing, **when: Unpack[When]) -> list[str]:
    """As `when_asked`, at the first commit of a compaction by pylance itself: of a dataset that no graph has."""
    moment = _Moment(act=act, **when)
    patch.setattr(lance_tables, "_Compaction", commits_around(moment.call))
    return moment.asked


def raising(error: BaseException) -> Act:
    """A fault. What it is raised from is that of the call."""

    def fail() -> None:
        raise error

    return fail


def _about(arguments: tuple[Any, ...]) -> str:
    """The names among the arguments, alone or in a list, and the addresses of datasets."""
    every = [one for argument in arguments for one in (argument if isinstance(argument, list) else (argument,))]
    named = (one if isinstance(one, str) else getattr(one, "uri", None) for one in every)
    return " ".join(name for name in named if isinstance(name, str))


def contention() -> Act:
    """Another writer won the swap of the graph manifest, as Lance tells it."""
    return raising(OSError("Too many concurrent writers"))


def one_after_the_other(*acts: Act) -> Act:
    """Another act each time."""
    left = iter(acts)

    def act() -> None:
        next(left)()

    return act


def when_copied(patch: pytest.MonkeyPatch, act: Act = nothing, **when: Unpack[When]) -> list[str]:
    """As `when_asked`, where a whole file that was copied locally gets its name; `copied` tells which."""
    when["about"] = rf"\.part .*{when.get('about', '')}"
    return when_asked(patch, os, "replace", act, **when)


def copied(asked: list[str]) -> list[str]:
    """The places of the files that `when_copied` saw."""
    return [what.partition(".part ")[2] for what in asked]
