"""pytest-xdist keeps the tests of a group on one worker; with some releases of pytest it spreads them and is silent."""

from __future__ import annotations

import pytest

_GROUP = "a-group"


@pytest.mark.xdist_group(_GROUP)
def test_a_group_is_known_to_the_scheduler(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("tests are not dealt by group in this run")
    # The suffix is what the scheduler goes by.
    assert request.node.nodeid.endswith(f"@{_GROUP}")
