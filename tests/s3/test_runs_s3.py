"""The journal of a run in a bucket: gone with the run, settled when the run was cut off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph_ops.coordination.state import RUNS_DIR
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.outcomes import history
from omnigraph_ops.outcomes.runs import RecordedRun, settle
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.storage.inventory import below_folder
from tests.support.leases import bury_runs, is_lease
from tests.support.shell import Cli

pytestmark = pytest.mark.s3


def test_a_cleanup_in_a_bucket_is_recorded_whatever_ends_it(
    s3_graph: Callable[[DemoSpec], str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = open_graph(s3_graph(DemoSpec(stamp=6, node_types=1, loads=2, rows=6)))
    with monkeypatch.context() as patch:
        patch.setattr(RecordedRun, "ended", lambda *_: None)
        patch.setattr("omnigraph_ops.cli.recording.Recorder.finish", lambda *_: True)
        done = cli("cleanup --keep 1 --confirm --yes --json", graph.uri).json
    assert plan_orphans(graph).unknown == ()
    bury_runs(graph.storage)
    (record,) = settle(graph)
    assert (record.outcome, record.work.versions_removed) == (RunOutcome.INTERRUPTED, done["versions_removed"])
    assert record.work.bytes_reclaimed == sum(t["bytes_removed"] for t in done["tables"]) > 0
    assert cli("optimize --quiet", graph.uri).code == 0
    assert [run.outcome for run in history.read_runs(graph)] == [RunOutcome.SUCCEEDED, RunOutcome.INTERRUPTED]
    left = [f.path for f in below_folder(graph.storage, RUNS_DIR) if not is_lease(f.path)]
    assert left == []
