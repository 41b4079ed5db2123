"""For every accepted `s3://` address Lance and s3fs see the same keys, and the store has exactly those."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.storage.location import locate
from tests.support.addresses import KEYS, assert_one_place

pytestmark = pytest.mark.s3


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=KEYS)
@example(key="")
@example(key="/")
@example(key="a[b]*{c}")
@example(key="a b/é")
def test_an_s3_address_is_one_place(bucket: str, key: str) -> None:
    try:
        place = locate(f"{bucket}/{key}")
    except InvalidInput:
        return
    assert place.root == f"{bucket}/{key}".rstrip("/"), "the key is taken as it is"
    assert_one_place(place)
