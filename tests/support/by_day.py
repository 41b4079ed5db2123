"""Which tests `make test` leaves to `make test-night`: those that a mark `night` names.

`@pytest.mark.night` leaves the whole test to the night, `@pytest.mark.night(every=3)` all of its cases but one in
three. A test gets it when it costs as much as a hundred others and a cheaper one shows what it is about, or when its
cases are many of one kind.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest


def sampled(name: str, cases: Sequence[str], every: int) -> Sequence[str]:
    """One in so many cases of a test, at least one. Pure.

    Which is the first depends on the name, so that of many tests with two cases each not all run the same one.
    """
    return cases[zlib.crc32(name.encode()) % min(every, len(cases)) :: every]


def left_to_the_night(items: Iterable[pytest.Item]) -> set[str]:
    """The ids of the tests and cases that do not run by day. Pure."""
    left, cases = set[str](), defaultdict[tuple[str, int], list[str]](list)
    for item in items:
        if (mark := item.get_closest_marker("night")) is None:
            continue
        if every := mark.kwargs.get("every"):
            cases[item.nodeid.partition("[")[0], every].append(item.nodeid)
        else:
            left.add(item.nodeid)
    for (name, every), ids in cases.items():
        left.update(set(ids) - set(sampled(name, ids, every)))
    return left


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that `make test` gives."""
    parser.addoption("--by-day", action="store_true", help="leave out what is marked `night`, as `make test` does")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With the option, take out what is left to the night; pytest counts it as deselected."""
    if config.getoption("by_day"):
        left = left_to_the_night(items)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]
