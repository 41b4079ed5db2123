"""The store answers a commit with an error, and does later what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

import pytest

from omnigraph_ops.coordination.state import LEASE_PATH
from omnigraph_ops.errors import LeaseHeld, OpsError, StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.crash.harness_scenarios import S3_SCENARIOS
from tests.crash.harness_state import QUICK
from tests.support.fault_proxy import Fault, faulty
from tests.support.rows import rows_everywhere
from tests.support.s3 import upload_graph
from tests.support.waits import stop_lease_clock

pytestmark = pytest.mark.s3
ONE_WINDOW = S3_SCENARIOS[0]


@pytest.mark.night("combinations")
@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_files_of_a_commit_that_may_still_land_stay(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp: int, which: int
) -> None:
    ONE_WINDOW.build(str(tmp_path / "graph"), stamp)
    uri = upload_graph(tmp_path / "graph")
    graph = open_graph(uri, QUICK)
    rows, late, real = rows_everywhere(graph), list[Callable[[], bool]](), Storage.prepared
    seen: list[str] = []

    @contextmanager
    def lost(self: Storage, path: str, data: bytes) -> Iterator[Callable[[], bool]]:
        with real(self, path, data) as put:
            seen.append(path)
            if len(seen) - 1 != which:
                yield put
                return

            def times_out() -> bool:
                late.append(lambda: self.create(path, data))
                raise StorageError("the store timed out")

            yield times_out

    with monkeypatch.context() as patch, suppress(OpsError):
        patch.setattr(Storage, "prepared", lost)
        ONE_WINDOW.run(graph)
    for put in late:
        put()
    assert len(late) == 1, "no commit was tried"
    assert recover(open_graph(uri, QUICK), grace_seconds=0).status is CheckStatus.CLEAN
    assert check(open_graph(uri, QUICK)).drift == ()
    assert rows_everywhere(open_graph(uri, QUICK)) == rows


@pytest.mark.parametrize("late", ["__manifest/_refs/branches/", "__recovery/"])
def test_nothing_is_committed_when_the_lease_is_gone_by_the_last_answer(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """The store is asked several things at once, and answers one of them after another run took the lease over."""
    ONE_WINDOW.build(str(tmp_path / "graph"), 6)
    uri, clock, armed = upload_graph(tmp_path / "graph"), stop_lease_clock(monkeypatch), list[str]()
    direct, before = Storage(uri), _heads(uri)

    def hold_back(request: str) -> None:
        if request.startswith("PUT "):
            armed.append(request)
        elif len(armed) == 1:
            armed.append(request)
            sleep(1.0)  # the other answers are there by then
            direct.write(f"{LEASE_PATH}-{99:020d}.json", b"{}")
            clock.seconds += QUICK.lease_ttl_seconds

    with faulty(s3) as proxy, monkeypatch.context() as patch:
        proxy.faults.append(Fault(matches=rf"^(PUT .*/__recovery/|GET .*{late})", before=hold_back))
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with pytest.raises(LeaseHeld):
            ONE_WINDOW.run(open_graph(uri, QUICK))
    assert len(armed) >= 2
    assert _heads(uri) == before


def _heads(uri: str) -> dict[str, int]:
    graph = open_graph(uri, QUICK)
    return {entry.table_key: int(graph.open_head(entry).version) for entry in graph.state().entries}
