"""The stages on s3://, against a real server: the same results, the same refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.environment import refuse_unsafe_store
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import BucketMissing, RecoveryPending, StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import MAINTENANCE_DIR
from omnigraph_ops.graph.sidecars import write_sidecar
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.optimize import OptimizeDecision
from omnigraph_ops.models.repair import Classification, EvidenceTier
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from omnigraph_ops.storage.store import Storage
from tests.support.index_files import repeat_entries
from tests.support.leases import is_free, is_lease, most_holders
from tests.support.s3 import upload_graph
from tests.support.shell import Cli, assert_refused
from tests.support.tables import PERSON
from tests.support.writers import copies, entry_of, write

pytestmark = pytest.mark.s3
Make = Callable[[DemoSpec], str]
SPEC = DemoSpec(node_types=1, loads=3, rows=20, deletes=2)


def row_sets(graph: Graph) -> dict[str, object]:
    return {e.table_key: graph.open_pinned(e).to_table(with_row_id=True).to_pylist() for e in graph.state().entries}


@pytest.mark.night("all but one")
@pytest.mark.parametrize("stamp", [3, 6])
def test_optimize_and_cleanup_on_s3(s3_graph: Make, stamp: int) -> None:
    uri = s3_graph(DemoSpec(stamp=stamp, node_types=1, loads=3, rows=20, deletes=2))
    graph = open_graph(uri, Settings(exclusive=True))
    rows = row_sets(graph)
    with fenced(graph) as behind_fence:
        assert not optimize_all(behind_fence).failed
    assert row_sets(graph) == rows
    assert not plan_optimize(graph).productive()
    assert check(graph).status is CheckStatus.CLEAN
    report = cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=3)))
    assert not report.failed
    removed = {t.table_key: t.old_versions_removed for t in report.tables}
    assert removed["node:Person"] > 0
    assert removed["__manifest"] > 0
    assert row_sets(graph) == rows


def test_entries_of_updated_rows_are_found_on_s3(s3: str, tmp_path: Path) -> None:
    write_demo_graph(str(tmp_path / "g"), DemoSpec(stamp=3, node_types=1, loads=3, rows=20))
    local = open_graph(str(tmp_path / "g"))
    optimize_table(local, PERSON)
    repeat_entries(local.open_pinned(entry_of(local, PERSON)), "id_idx")
    write(local, PERSON, copies("x"))
    graph = open_graph(upload_graph(tmp_path / "g"))
    assert "id_idx has wrong entries of updated rows" in plan_optimize(graph, tables=(PERSON,)).tables[0].reason
    optimize_table(graph, PERSON)
    assert not plan_optimize(graph, tables=(PERSON,)).productive()


@pytest.mark.parametrize("stamp", [3, 6])
def test_published_rows_name_the_object(s3_graph: Make, stamp: int) -> None:
    """`manifest_path` is the key without its bucket, `e_tag` what the store answers."""
    graph = open_graph(s3_graph(DemoSpec(stamp=stamp, node_types=1, loads=2, rows=10)))
    optimize_table(graph, "node:Person")
    (row,) = [
        r
        for r in graph.manifest().to_table().to_pylist()
        if r["table_key"] == "node:Person" and r["table_version"] == graph.open_head(graph.state().entries[-1]).version
    ]
    metadata = json.loads(row["metadata"])
    assert metadata["manifest_path"].startswith("graphs/kb.omni/nodes/")
    info = graph.storage.stat(metadata["manifest_path"].removeprefix("graphs/kb.omni/"))
    assert (metadata["manifest_size"], metadata["e_tag"]) == (info.size, info.e_tag)
    assert info.e_tag is not None


def test_repair_reads_transactions_on_s3(s3_graph: Make) -> None:
    graph = open_graph(s3_graph(DemoSpec(node_types=1, loads=3, rows=20, drift_tables=("node:Person",))))
    preview = preview_repair(graph, evidence=EvidenceTier.FULL)
    assert [r.classification for r in preview.drifted] == [Classification.VERIFIED_MAINTENANCE]
    assert [r.evidence and (r.evidence.content_equal, r.evidence.problem) for r in preview.drifted] == [(True, None)]
    assert apply_repair(graph, preview).manifest_version is not None
    assert not preview_repair(graph).drifted


def test_pending_sidecar_on_s3_stops_and_recovers(s3_graph: Make) -> None:
    graph = open_graph(s3_graph(SPEC))
    entry = graph.state().entries[0]
    write_sidecar(graph, entry, "01ARZ3NDEKTSV4RRFFQ69G5FAV", graph.uri)
    with pytest.raises(RecoveryPending):
        optimize_all(graph)
    assert recover(graph, grace_seconds=0).status is CheckStatus.CLEAN


def test_two_runs_share_a_graph_on_s3(s3_graph: Make) -> None:
    """Two whole runs at once: the lease takes them in turn, the second finds nothing left or plans again."""
    uri = s3_graph(SPEC)
    rows = row_sets(open_graph(uri))
    reports = []
    threads = [threading.Thread(target=lambda: reports.append(optimize_all(open_graph(uri)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 2
    graph = open_graph(uri)
    optimize_all(graph)
    assert [t.table_key for t in plan_optimize(graph).tables if t.decision is OptimizeDecision.OPTIMIZE] == []
    assert row_sets(graph) == rows
    assert all(map(is_lease, graph.storage.list(MAINTENANCE_DIR))) and is_free(graph.storage)


@pytest.mark.night
def test_six_waiters_for_a_dead_holder_never_become_two_on_s3(s3_graph: Make) -> None:
    uri = s3_graph(DemoSpec(node_types=1, loads=1, rows=5))
    assert most_holders(lambda: Storage(uri), waiters=6, rounds=12) == [1] * 12


def test_good_store_passes_the_check(s3_graph: Make) -> None:
    uri = s3_graph(DemoSpec(node_types=1, loads=1, rows=5))
    storage = Storage(uri)
    refuse_unsafe_store(storage)
    assert storage.list(MAINTENANCE_DIR) == ()


@pytest.mark.parametrize("s3_server", [("--forgetful",)], indirect=True, ids=["forgetful"])
def test_store_without_conditional_put_is_refused(s3_graph: Make) -> None:
    uri = s3_graph(DemoSpec(node_types=1, loads=2, rows=5))
    graph = open_graph(uri)
    before = row_sets(graph)
    with pytest.raises(StorageError, match="conditional put"):
        optimize_table(graph, "node:Person")
    assert row_sets(graph) == before


def test_a_bucket_that_does_not_exist_is_said(s3_graph: Make, cli: Cli) -> None:
    uri = s3_graph(DemoSpec(node_types=1, loads=1, rows=4))
    said = "s3://nobody-made-this/x: its bucket does not exist; create it or correct the address"
    assert_refused(cli("backup", uri, "s3://nobody-made-this/x"), said)
    assert_refused(cli("check", "s3://nobody-made-this/x"), said)
    assert_refused(cli("backups", "s3://nobody-made-this/x"), said)
    assert_refused(cli("check", f"{uri}-gone"), f"there is nothing at {uri}-gone; nothing was written; check the path")
    with pytest.raises(BucketMissing, match=r"^cannot list s3://nobody-made-this: its bucket does not exist"):
        open_graph("s3://nobody-made-this")
