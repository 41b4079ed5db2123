"""The store answers a commit with an error, and does later what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.crash.harness_scenarios import S3_SCENARIOS
from tests.crash.harness_state import QUICK
from tests.support.rows import rows_everywhere
from tests.support.s3 import upload_graph

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
