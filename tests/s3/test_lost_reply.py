"""The store did what it was asked and the reply never came: nothing is lost, nothing is done twice."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from omnigraph_ops.coordination.fence import current_lock, drop_stale_fence, fenced
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import open_graph
from tests.crash.harness_kills import EVERY_DEATH
from tests.crash.harness_scenarios import S3_SCENARIOS
from tests.crash.harness_state import QUICK, check_converged, check_readable, converge
from tests.support.fault_proxy import losing_one_reply
from tests.support.fences import noted
from tests.support.rows import rows_everywhere
from tests.support.s3 import upload_graph

pytestmark = pytest.mark.s3
ONE_WINDOW = S3_SCENARIOS[0]
_TABLE_COMMIT, _GRAPH_COMMIT = "^PUT .*/nodes/.*/_versions/", "^PUT .*/__manifest/_versions/"
# Which request loses its reply: the pattern, and the how-manieth match. The table's commits are one
# for its configuration, one for its indexes, one for the rewrite.
LOSSES = {
    "lease": ("^PUT .*/__maintenance/lease", 1),
    "journal": ("^PUT .*/__maintenance/operations/", 1),
    "sidecar": ("^PUT .*/__recovery/", 1),
    "table-config": (_TABLE_COMMIT, 1),
    "table-index": (_TABLE_COMMIT, 2),
    "table-rewrite": (_TABLE_COMMIT, 3),
    "graph-config": (_GRAPH_COMMIT, 1),
    "graph-publish": (_GRAPH_COMMIT, 2),
    "disarm": ("^DELETE .*/__recovery/", 1),
}
# Stamp 6 has its lineage in the graph manifest.
_STAMP_3 = {"lineage": ("^PUT .*/_graph_commits.lance/_versions/", 1)}


BY_DAY = {"sidecar", "table-rewrite", "graph-publish"}
# The stamps differ in what a publish is; before it, one of the two in turn is enough.
CASES = [
    pytest.param(lost, stamp, marks=() if lost in BY_DAY else pytest.mark.night)
    for n, lost in enumerate(LOSSES)
    for stamp in (3, 6)
    if lost == "graph-publish" or stamp == (3, 6)[n % 2] or EVERY_DEATH
] + [pytest.param(lost, 3, marks=pytest.mark.night) for lost in _STAMP_3]


@pytest.mark.parametrize(("lost", "stamp"), CASES)
def test_a_lost_reply_loses_nothing(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, stamp: int
) -> None:
    ONE_WINDOW.build(str(tmp_path / "graph"), stamp)
    uri = upload_graph(tmp_path / "graph")
    rows = rows_everywhere(open_graph(uri, QUICK))
    with losing_one_reply(s3, *(LOSSES | _STAMP_3)[lost]) as proxy, monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        # Success or an error of ours; any other exception would be an outcome that nobody decided.
        with suppress(OpsError):
            ONE_WINDOW.run(open_graph(uri, QUICK))
    assert len(proxy.lost) == 1, "the request never came"
    check_readable(uri, rows)
    converge(uri)
    check_readable(uri, rows)
    check_converged(uri)


def test_a_lost_reply_leaves_no_fence_that_nobody_owns(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's writers would be refused until somebody removed it by force."""
    write_demo_graph(str(tmp_path / "graph"), DemoSpec(node_types=1, loads=1, rows=5))
    uri = upload_graph(tmp_path / "graph")
    with (
        losing_one_reply(s3, "^PUT .*/__manifest/_refs/branches/", 1) as proxy,
        monkeypatch.context() as patch,
    ):
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with suppress(OpsError), fenced(open_graph(uri, QUICK)):
            pass
        assert proxy.lost
    graph = open_graph(uri, QUICK)
    drop_stale_fence(graph)
    assert (current_lock(graph), noted(graph)) == (None, None)
    with fenced(graph) as alone:
        assert alone.is_alone()
