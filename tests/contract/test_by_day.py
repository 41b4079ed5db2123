"""What `make test` leaves to `make test-night`."""

from __future__ import annotations

from itertools import product

import pytest

from tests.support.by_day import Values, without_combinations

pytest_plugins = ("pytester",)
CASES = """
import pytest

def test_by_day(): pass

@pytest.mark.night
def test_at_night(): pass

@pytest.mark.night("combinations")
@pytest.mark.parametrize("n", range(4))
@pytest.mark.parametrize("stamp", [3, 6])
def test_many(n, stamp): pass

@pytest.mark.night("all but one")
@pytest.mark.parametrize("stamp", [3, 6])
def test_two(stamp): pass
"""


@pytest.fixture
def marked(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder of tests with our hooks."""
    pytester.makeini("[pytest]\nmarkers = night: see by_day.py\npythonpath = .")
    pytester.makeconftest("from tests.support.by_day import pytest_addoption, pytest_collection_modifyitems")
    pytester.makepyfile(CASES)
    return pytester


def test_by_day_what_is_marked_is_left_out_and_every_value_stays(marked: pytest.Pytester) -> None:
    assert marked.runpytest_inprocess("--by-day").parseoutcomes() == {"passed": 1 + 4 + 1, "deselected": 1 + 4 + 1}


@pytest.mark.parametrize("name", ["two", "other"])
def test_one_stamp_leaves_one_case_for_all_other_parameters(marked: pytest.Pytester, name: str) -> None:
    marked.makepyfile(
        f"""
        import pytest

        @pytest.fixture(params=[3, 6])
        def stamp(request): return request.param

        @pytest.mark.parametrize("n", range(4))
        def test_{name}(n, stamp): pass

        @pytest.mark.parametrize("n", range(4))
        def test_none(n): pass
        """
    )
    assert marked.runpytest_inprocess("--one-stamp").parseoutcomes() == {"passed": 4 + 4, "deselected": 4}


def test_without_the_option_everything_runs(marked: pytest.Pytester) -> None:
    assert marked.runpytest_inprocess().parseoutcomes() == {"passed": 1 + 1 + 8 + 2}


@pytest.mark.parametrize("sizes", [(1,), (7,), (2, 3), (3, 2), (5, 4, 2), (2, 2, 2)])
def test_every_value_of_each_parameter_stays_and_no_more_cases_than_the_longest_has(sizes: tuple[int, ...]) -> None:
    every = product(*map(range, sizes))
    cases: dict[str, Values] = {str(case): frozenset((str(n), value) for n, value in enumerate(case)) for case in every}
    kept = without_combinations(cases)
    assert set().union(*(cases[case] for case in kept)) == set().union(*cases.values())
    assert len(kept) == max(sizes)
