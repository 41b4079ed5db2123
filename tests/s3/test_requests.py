"""What a look costs on a store, where every request is one more round trip, most of them under the committer lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph_ops.coordination.holds import FreezeTerms, HeldVersion, HoldKind, freezes, place_hold
from omnigraph_ops.storage.store import Storage

Counted = Callable[[Callable[[], object]], int]


@pytest.fixture
def storage(bucket: str) -> Storage:
    storage = Storage(f"{bucket}/g")
    storage.write("folder/file", b"content")
    return storage


@pytest.fixture
def requests_of(storage: Storage) -> Counted:
    sent: list[str] = []

    def note(model: Any, **_: Any) -> None:
        sent.append(model.name)

    storage.filesystem.s3.meta.events.register("before-call", note)

    def count(action: Callable[[], object]) -> int:
        sent.clear()
        action()
        return len(sent)

    return count


def test_each_look_is_one_request(storage: Storage, requests_of: Counted) -> None:
    def is_missing() -> None:
        with pytest.raises(FileNotFoundError):
            storage.stat("folder/none")

    assert requests_of(lambda: storage.read("folder/file")) == 1
    assert requests_of(lambda: storage.stat("folder/file")) == 1
    assert requests_of(is_missing) == 1
    assert requests_of(lambda: storage.list("folder")) == 1
    assert requests_of(lambda: storage.list("none")) == 1


def test_a_listing_has_the_files_and_neither_folders_nor_the_mark_of_one(storage: Storage) -> None:
    for name in ("folder/deeper/file", "folder/another", "folder.beside/file"):
        storage.write(name, b"content")
    bucket, _, key = storage.full("folder/").partition("/")
    storage.filesystem.call_s3("put_object", Bucket=bucket, Key=key, Body=b"")
    assert storage.list("folder") == ("another", "file")


def test_a_listing_has_all_of_its_pages(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    names = tuple(f"{number:02}" for number in range(7))
    for name in names:
        storage.write(f"many/{name}", b"content")
    real = storage.filesystem.call_s3

    def call(method: str, **arguments: Any) -> Any:
        return real(method, **arguments, MaxKeys=3) if method == "list_objects_v2" else real(method, **arguments)

    monkeypatch.setattr(storage.filesystem, "call_s3", call)
    assert storage.list("many") == names


def test_a_hold_that_is_no_freeze_is_read_once(storage: Storage, requests_of: Counted) -> None:
    held = (HeldVersion(table_path="nodes/1", version=1),)
    for _ in range(3):
        place_hold(storage, held, kind=HoldKind.PLAN, reason="test", ttl_seconds=60)
    frozen = place_hold(
        storage, held, kind=HoldKind.FREEZE, reason="test", ttl_seconds=60, freeze=FreezeTerms(tables=())
    )
    assert requests_of(lambda: freezes(storage)) == 5
    assert requests_of(lambda: freezes(storage)) == 2
    assert freezes(storage) == (frozen,)
