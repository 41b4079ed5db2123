"""What a look costs on a store, where every request is one more round trip, most of them under the committer lease."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from omnigraph_ops.coordination.holds import FreezeTerms, HeldVersion, HoldKind, freezes, place_hold
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.storage.inventory import WORKERS, look_again
from omnigraph_ops.storage.store import Storage
from tests.support.fault_proxy import Fault, faulty

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


def test_as_many_files_are_looked_at_at_once_as_there_are_threads_for_it(
    storage: Storage, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_there = threading.Barrier(WORKERS)
    with faulty(s3) as proxy, monkeypatch.context() as patch:
        proxy.faults.append(Fault(matches="^HEAD ", before=lambda _: all_there.wait(timeout=60) and None))
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        found = look_again(Storage(storage.root), [f"folder/{number}" for number in range(WORKERS)])
    assert found == [None] * WORKERS


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


_LOOKS = {
    "the schema-apply lock": r"^GET .*prefix=.*/__manifest/_refs/branches/",
    "the lease's number": r"^GET .*prefix=.*/__maintenance/&",
    "the lease": r"^GET .*/__maintenance/lease-",
    "sidecars": r"^GET .*prefix=.*/__recovery/",
}


class _RoundTrips:
    """Holds back what is asked between two requests of a window until all of it was asked."""

    def __init__(self) -> None:
        self.rounds: list[frozenset[str]] = []
        self.one_by_one = 0
        self._armed = False
        self._asked, self._changed = set[str](), threading.Condition()

    def see(self, request: str) -> None:
        with self._changed:
            if re.search(r"^PUT .*/__recovery/", request):
                self._armed = True
            elif re.search(r"^(PUT .*/_versions/|HEAD)", request):
                self.rounds += [frozenset(self._asked)] if self._asked else []
                self._asked.clear()
            elif re.search(r"^DELETE .*/__recovery/", request):
                self._armed = False
            look = next((name for name, pattern in _LOOKS.items() if re.search(pattern, request)), None)
            if self._armed and look is not None:
                self._asked.add(look)
                self._changed.notify_all()
                self.one_by_one += not self._changed.wait_for(lambda: len(self._asked) >= 3, timeout=60)


def test_what_is_looked_at_in_an_armed_window_is_one_round_trip(
    s3: str, s3_graph: Callable[[DemoSpec], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, seen = s3_graph(DemoSpec(node_types=1, loads=2, rows=6)), _RoundTrips()
    with faulty(s3) as proxy, monkeypatch.context() as patch:
        proxy.faults.append(Fault(matches=r"^(GET|PUT|HEAD|DELETE) ", before=seen.see))
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        assert optimize_table(open_graph(uri), "node:Person").committed
    before_a_commit, before_the_publish = frozenset(_LOOKS), frozenset(_LOOKS) - {"the schema-apply lock"}
    assert (seen.rounds[0], seen.rounds[-1]) == (before_a_commit, before_the_publish)
    assert seen.one_by_one == 0
