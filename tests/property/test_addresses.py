"""For every address that is accepted, Lance and the store see the same files; every other one is refused in words."""

from __future__ import annotations

import os
import shutil
import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.storage.location import GraphLocation, locate
from tests.support.addresses import KEYS, assert_one_place

pytestmark = pytest.mark.slow


def accepted(address: str) -> GraphLocation | None:
    """The place of an address, None where it is refused; nothing else may come out. Reads."""
    try:
        place = locate(address)
    except InvalidInput as refused:
        odd = [c for c in str(refused) if unicodedata.category(c) in {"Cc", "Cs"}]
        assert not odd, "it could forge a line of a log"
        return None
    assert locate(place.root).root == place.root, "what is handed on is read as the same place"
    return place


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=KEYS, form=st.sampled_from(["{}", "./{}", "../{}", "{}/", "{}//", "file://{}", "{base}/{}", "/{base}/{}"]))
def test_a_local_address_is_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, form: str) -> None:
    # Deep enough that no key climbs out of it.
    base = Path(tempfile.mkdtemp(dir=tmp_path), "1", "2", "3", "4", "5", "6")
    base.mkdir(parents=True)
    monkeypatch.chdir(base)
    place = accepted(form.format(key, base=base))
    if place is None or not place.root.startswith(f"{tmp_path}/"):
        return
    assert place.is_local
    assert_one_place(place)
    assert os.path.isdir(os.path.dirname(place.root))
    shutil.rmtree(base.parents[5])


@settings(deadline=None, max_examples=400)
@given(st.one_of(st.text(), KEYS.map("s3://b/{}".format), KEYS.map("file:///{}".format), KEYS.map("s3://{}".format)))
def test_whatever_is_typed_is_a_place_or_refused(address: str) -> None:
    place = accepted(address)
    if place is None or place.is_local:
        return
    bucket, _, key = place.root.removeprefix("s3://").partition("/")
    assert bucket
    assert not key or not {"", ".", ".."}.intersection(key.split("/"))
    assert not set("%?#").intersection(key)
