"""What a run is told of the place where it is about to write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph_ops.coordination.environment import refuse_unsafe_store
from omnigraph_ops.storage.store import Storage

SOMEBODY = 1234


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A folder of somebody else, for a process that is root, or takes itself for that."""
    if os.geteuid() == 0:
        os.chown(tmp_path, SOMEBODY, SOMEBODY)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return Storage(str(tmp_path))


def test_root_is_told_once_that_a_graph_is_somebody_elses(place: Storage, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        refuse_unsafe_store(place)
    (told,) = caplog.messages
    owner = os.stat(place.root).st_uid
    assert told.startswith(f"{place.root} belongs to uid {owner}, and this run is root's")


def test_nobody_else_is_told(place: Storage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    refuse_unsafe_store(place)
    assert caplog.messages == []


def test_root_is_not_told_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has files that are root's")
    refuse_unsafe_store(Storage(str(tmp_path_factory.mktemp("mine"))))
    assert caplog.messages == []
