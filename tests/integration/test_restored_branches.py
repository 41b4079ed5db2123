"""Branches on which the engine restored what another of its processes had published: rolled back, each by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import RECOVERY_DIR, SCHEMA_APPLY_LOCK, chain_folder, version_path
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.recovery import check as look_module
from omnigraph_ops.stages.recovery import unpublished
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover, recovered
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK
from tests.support.beside import Beside
from tests.support.edges import raising, when_asked
from tests.support.rows import rows_everywhere
from tests.support.sidecars import OTHER, TABLE, arm
from tests.support.waits import shorten_waits
from tests.support.writers import copies, entry_of, write

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """On both branches a table is ahead by a restore."""
    shorten_waits(monkeypatch)
    graph = demo_graph(stamp=6, loads=3, rows=8, written_branches=2, settings=QUICK)
    for branch in graph.branches():
        graph.open_pinned(entry_of(graph, TABLE, branch)).restore()
    return graph


def _ahead(graph: Graph) -> list[tuple[str, bool]]:
    return [(finding.branch, finding.recoverable) for finding in check(graph).branch_findings]


def test_the_published_rows_are_put_on_top(graph: Graph) -> None:
    branch, other = graph.branches()
    recover(graph)
    began = entry_of(graph, TABLE, branch)
    copies("loaded-")(graph.open_newest(began))
    publish(graph, (table_update(graph, began, graph.open_newest(began)),), actor=None, branch=branch)
    rows, loaded = rows_everywhere(graph), entry_of(graph, TABLE, branch)
    graph.open_pinned(began).restore()
    assert (_ahead(graph), check(graph).status) == ([(branch, True)], CheckStatus.PENDING)
    assert [(o.table_key, o.action) for o in recover(graph).outcomes] == [(TABLE, "rolled_back")]
    assert (rows_everywhere(graph), check(graph).status) == (rows, CheckStatus.CLEAN)
    assert graph.open_newest(entry_of(graph, TABLE, branch)).version == loaded.version + 2
    assert entry_of(graph, TABLE, other).branch == other


def test_one_that_is_damaged_stops_no_other(graph: Graph) -> None:
    damaged, whole = graph.branches()
    entry = entry_of(graph, TABLE, damaged)
    manifest = Path(graph.uri, version_path(entry.path, entry.version, damaged))
    manifest.write_bytes(manifest.read_bytes()[:40])
    assert _ahead(graph) == [(damaged, False), (whole, True)]
    report = recover(graph)
    assert [(o.table_key, f"on branch {whole!r}" in o.detail) for o in report.outcomes] == [(TABLE, True)]
    assert report.status is CheckStatus.DRIFTED


def test_one_that_fails_stops_no_other(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = graph.branches()
    chain = chain_folder(entry_of(graph, TABLE, first).path, first)
    when_asked(monkeypatch, Storage, "write", raising(StorageError("no space left")), about=f"^{chain}/", times=None)
    (outcome,) = recover(graph).outcomes
    assert f"on branch {second!r}" in outcome.detail
    assert _ahead(graph) == [(first, True)]


def _frozen(graph: Graph) -> None:
    freeze_graph(graph)


def _one_table_frozen(graph: Graph) -> None:
    freeze_graph(graph, tables=(TABLE,))


def _a_sidecar_for_a_person(graph: Graph) -> None:
    arm(graph, OTHER, change=lambda document: document.update(writer_kind="Load"))


@pytest.mark.parametrize("act", [_frozen, _one_table_frozen, _a_sidecar_for_a_person])
def test_nobody_is_kept_away_where_nothing_may_be_done(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, act: object
) -> None:
    assert callable(act)
    act(graph)
    fences = when_asked(monkeypatch, Storage, "create", about=f"/{SCHEMA_APPLY_LOCK}")
    assert not [o for o in recover(graph).outcomes if o.action == "rolled_back"]
    assert fences == [], "writers were kept away"
    assert check(graph).status is not CheckStatus.PENDING


def test_behind_the_fence_only_they_are_looked_at(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[object]()
    branch_findings = unpublished.branch_findings
    monkeypatch.setattr(unpublished, "branch_findings", lambda *a, **k: looks.append(a) or branch_findings(*a, **k))
    assert len(recover(graph).outcomes) == 2
    assert len(looks) == 1


def test_a_look_at_many_sidecars_lists_them_once(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = demo_graph(stamp=6, loads=2, rows=4, node_types=1, settings=QUICK)
    fields = {"writer_kind": "Load", "protocol_v3": {"lineage": {"graph_commit_id": "01K00000000000000000000000"}}}
    for _ in range(6):
        arm(graph, change=lambda document: document.update(fields))
    read, reads = Storage.read, list[str]()

    def counted(storage: Storage, path: str) -> bytes:
        reads.append(path)
        return read(storage, path)

    monkeypatch.setattr(Storage, "read", counted)
    look_module._Look.at(graph)
    assert len([path for path in reads if path.startswith(RECOVERY_DIR)]) == 6


def test_what_a_killed_run_did_to_a_branch_is_told_by_that_branch(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = graph.branches()[0]
    for number in range(8):
        write(graph, TABLE, copies(f"main-{number}-"))
    assert entry_of(graph, TABLE).version > entry_of(graph, TABLE, branch).version
    chain = chain_folder(entry_of(graph, TABLE, branch).path, branch)
    begun = Beside(lambda: None)
    with monkeypatch.context() as kill:
        when_asked(kill, Storage, "write", raising(KeyboardInterrupt()), about=f"^{chain}/")
        with pytest.raises(KeyboardInterrupt):
            recover(graph.with_run(begun))
    (unit,) = begun.units
    assert recovered(graph, unit) is None
    recover(graph)
    told = recovered(graph, unit)
    assert told is not None
    assert (told.from_version, told.to_version) == (unit.version, entry_of(graph, TABLE, branch).version)
