"""What `make test` leaves to `make test-night`."""

from __future__ import annotations

import pytest

from tests.support.by_day import sampled

pytest_plugins = ("pytester",)
CASES = """
import pytest

def test_by_day(): pass

@pytest.mark.night
def test_at_night(): pass

@pytest.mark.night(every=3)
@pytest.mark.parametrize("n", range(7))
def test_many(n): pass
"""


@pytest.fixture
def marked(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder of tests with our hooks."""
    pytester.makeini("[pytest]\nmarkers = night: see by_day.py\npythonpath = .")
    pytester.makeconftest("from tests.support.by_day import pytest_addoption, pytest_collection_modifyitems")
    pytester.makepyfile(CASES)
    return pytester


def test_by_day_what_is_marked_is_left_out_and_one_case_in_so_many_stays(marked: pytest.Pytester) -> None:
    outcome = marked.runpytest_inprocess("--by-day").parseoutcomes()
    assert outcome["passed"] + outcome["deselected"] == 9
    assert outcome["passed"] in {3, 4}


def test_without_the_option_everything_runs(marked: pytest.Pytester) -> None:
    assert marked.runpytest_inprocess().parseoutcomes() == {"passed": 9}


@pytest.mark.parametrize("cases", [["a"], ["a", "b"], ["a", "b", "c", "d", "e", "f", "g"]])
def test_every_test_keeps_a_case_and_not_always_the_first(cases: list[str]) -> None:
    kept = [sampled(f"test_{n}", cases, 3) for n in range(20)]
    assert all(kept)
    assert {case for some in kept for case in some} == set(cases)
