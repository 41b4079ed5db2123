"""Which tests `make test` leaves to `make test-night`: those that a mark `night` names.

`@pytest.mark.night` leaves a whole test to the night: one that costs as much as a hundred others, where a cheaper one
shows what it is about. `@pytest.mark.night("combinations")` leaves the combinations of its parameters: by day every
value of each parameter runs at least once. `@pytest.mark.night("all but one")` leaves all of its cases but one: they
show the same, or each of them costs very much.

`make check` also runs one stamp only of a test that has a parameter `stamp`: not the same one for all tests.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import pytest

Values = frozenset[tuple[str, int]]
"""The values of the parameters of one case: (name, identity of the value, which all its cases share)."""


def without_combinations(cases: Mapping[str, Values]) -> set[str]:
    """Cases that together have every value of each parameter: always one with the most values that are new. Pure."""
    missing: set[tuple[str, int]] = set().union(*cases.values())
    kept = set[str]()
    while missing:
        best = max(cases, key=lambda case: len(cases[case] & missing))
        kept.add(best)
        missing -= cases[best]
    return kept


def only_one(name: str, cases: Collection[str]) -> set[str]:
    """One case, chosen by the name: of many tests with a case for each stamp, not all keep the same one. Pure."""
    return {list(cases)[zlib.crc32(name.encode()) % len(cases)]}


def left_to_the_night(items: Iterable[pytest.Item]) -> set[str]:
    """The ids of the tests and cases that do not run by day. Pure."""
    left, cases = set[str](), defaultdict[tuple[str, str], dict[str, Values]](dict)
    for item in items:
        if (mark := item.get_closest_marker("night")) is None:
            continue
        if mark.args and isinstance(item, pytest.Function):
            values = frozenset((name, id(value)) for name, value in item.callspec.params.items())
            cases[item.nodeid.partition("[")[0], mark.args[0]][item.nodeid] = values
        else:
            left.add(item.nodeid)
    for (name, what), of_one in cases.items():
        left.update(of_one.keys() - (only_one(name, of_one) if what == "all but one" else without_combinations(of_one)))
    return left


def other_stamps(items: Iterable[pytest.Item]) -> set[str]:
    """The ids of the cases that differ from another one in the stamp alone, but for one of them. Pure."""
    cases = defaultdict[tuple[str, Values], list[str]](list)
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "stamp" in params:
            others = frozenset((name, id(value)) for name, value in params.items() if name != "stamp")
            cases[item.nodeid.partition("[")[0], others].append(item.nodeid)
    return {node for (name, _), of_one in cases.items() for node in set(of_one) - only_one(name, of_one)}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that `make test` and `make check` give."""
    parser.addoption("--by-day", action="store_true", help="leave out what is marked `night`, as `make test` does")
    parser.addoption("--one-stamp", action="store_true", help="run one stamp of each test, as `make check` does")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With an option, take out what it leaves out; pytest counts it as deselected."""
    left = left_to_the_night(items) if config.getoption("by_day") else set()
    if config.getoption("one_stamp"):
        left |= other_stamps(item for item in items if item.nodeid not in left)
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]
