"""A published write that another process of the engine took back: given back, or left alone where not proven."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.coordination.fence import current_lock
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import version_path
from omnigraph_ops.graph.sidecars import sidecar_names, sidecar_path
from omnigraph_ops.models.health import CheckStatus, SidecarClass
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.edges import when_asked
from tests.support.rows import rows_everywhere
from tests.support.sidecars import TABLE, Document, append_foreign_row, audit_rows, commit_rows, move, take_back
from tests.support.waits import shorten_waits
from tests.support.writers import copies, entry_of, write

pytestmark = pytest.mark.slow
Change = Callable[[Document], None]


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)


@pytest.mark.slow
def test_the_published_rows_are_put_on_top_and_the_sidecar_goes(graph: Graph) -> None:
    began = entry_of(graph, TABLE).version
    operation_id = take_back(graph)
    rows, published = rows_everywhere(graph), entry_of(graph, TABLE)
    commit_id = commit_rows(graph)[-1]["graph_commit_id"]
    (finding,) = check(graph).sidecars
    assert (finding.classification, finding.recoverable) == (SidecarClass.STALE, True)
    sidecar = graph.storage.read(finding.path)
    (outcome,) = recover(graph).outcomes
    assert (outcome.action, outcome.from_version, outcome.to_version) == ("rolled_forward", began, published.version)
    assert check(graph).status is CheckStatus.CLEAN
    assert rows_everywhere(graph) == rows
    now = entry_of(graph, TABLE)
    assert (now.version, now.row_count) == (published.version + 2, published.row_count)
    assert graph.open_head(now).version == now.version
    check_lineage(graph, None)
    (audit,) = audit_rows(graph)
    assert (audit["graph_commit_id"], audit["operation_id"]) == (commit_id, operation_id)
    assert (audit["recovery_kind"], audit["sidecar_writer_kind"]) == ("RolledForward", "Load")
    assert json.loads(audit["per_table_outcomes_json"]) == [
        {"table_key": TABLE, "from_version": began, "to_version": published.version}
    ]
    graph.storage.write(finding.path, sidecar)
    assert [o.action for o in recover(graph).outcomes] == ["rolled_forward"], "as after a kill before it was removed"
    assert (entry_of(graph, TABLE), check(graph).status, rows_everywhere(graph)) == (now, CheckStatus.CLEAN, rows)


def test_where_nothing_was_restored_only_the_sidecar_goes(graph: Graph) -> None:
    take_back(graph, restores=False)
    before = entry_of(graph, TABLE)
    (outcome,) = recover(graph).outcomes
    assert outcome.action == "rolled_forward"
    assert (entry_of(graph, TABLE), check(graph).status) == (before, CheckStatus.CLEAN)


def test_it_waits_for_the_process_that_wrote_the_sidecar_anew(graph: Graph) -> None:
    operation_id = take_back(graph)
    Path(graph.uri, sidecar_path(operation_id)).touch()
    (outcome,) = recover(graph, grace_seconds=600).outcomes
    assert outcome.action == "deferred"
    assert len(sidecar_names(graph.storage)) == 1


def test_a_commit_that_lands_meanwhile_is_never_buried(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    take_back(graph)
    about = f"^{entry_of(graph, TABLE).path}/_versions/"
    with monkeypatch.context() as patch:
        when_asked(patch, Storage, "create", lambda: append_foreign_row(graph), about=about)
        (outcome,) = recover(graph).outcomes
    assert outcome.action == "deferred"
    head = graph.open_head(entry_of(graph, TABLE))
    assert "somebody-new" in head.to_table(columns=["id"]).column("id").to_pylist()
    assert len(sidecar_names(graph.storage)) == 1


def test_index_builds_are_given_back_as_well(graph: Graph) -> None:
    def of_indexes(document: Document) -> None:
        document |= {"writer_kind": "EnsureIndices", "protocol_v8": document.pop("protocol_v3")}

    take_back(graph, change=of_indexes)
    rows = rows_everywhere(graph)
    assert [outcome.action for outcome in recover(graph).outcomes] == ["rolled_forward"]
    assert (rows_everywhere(graph), check(graph).status) == (rows, CheckStatus.CLEAN)


def _withdraw(graph: Graph) -> None:
    """What the writer does after its publish. Destroys its sidecar."""
    for name in sidecar_names(graph.storage):
        graph.storage.delete(f"__recovery/{name}")


def test_a_restore_without_a_sidecar_is_rolled_back(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_waits(monkeypatch)
    take_back(graph)
    _withdraw(graph)
    rows, published = rows_everywhere(graph), entry_of(graph, TABLE)
    assert [(d.table_key, d.recoverable) for d in check(graph).drift] == [(TABLE, True)]
    assert [(o.table_key, o.action) for o in recover(graph).outcomes] == [(TABLE, "rolled_back")]
    assert (rows_everywhere(graph), check(graph).status) == (rows, CheckStatus.CLEAN)
    assert (entry_of(graph, TABLE).version, current_lock(graph)) == (published.version + 2, None)


def test_so_is_one_of_a_version_that_was_removed_since(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_waits(monkeypatch)
    began = entry_of(graph, TABLE)
    take_back(graph)
    _withdraw(graph)
    graph.storage.delete(version_path(began.path, began.version, None))
    rows = rows_everywhere(graph)
    assert [(o.table_key, o.action) for o in recover(graph).outcomes] == [(TABLE, "rolled_back")]
    assert rows_everywhere(graph) == rows


@pytest.mark.parametrize("act", [append_foreign_row, move], ids=["a row", "a compaction"])
def test_a_restore_below_the_commit_of_somebody_else_stays(graph: Graph, act: Callable[[Graph], object]) -> None:
    take_back(graph)
    _withdraw(graph)
    act(graph)
    assert [(d.table_key, d.recoverable) for d in check(graph).drift] == [(TABLE, False)]


def test_what_is_behind_its_pin_is_for_a_person(graph: Graph) -> None:
    operation_id = take_back(graph)
    sidecar = graph.storage.read(sidecar_path(operation_id))
    recover(graph)
    graph.storage.write(sidecar_path(operation_id), sidecar)
    entry = entry_of(graph, TABLE)
    graph.storage.delete(version_path(entry.path, entry.version, None))
    (finding,) = check(graph).sidecars
    assert (finding.classification, finding.recoverable) == (SidecarClass.NEEDS_REVIEW, False)
    (advice,) = (line for line in check(graph).advice if finding.path in line)
    assert (finding.refused_by_engine, "open the graph read-write" in advice) == (True, False)


def test_a_sidecar_without_tables_is_for_the_engine(graph: Graph) -> None:
    take_back(graph, change=lambda document: document.update(tables=[]))
    assert [(f.classification, f.recoverable) for f in check(graph).sidecars] == [(SidecarClass.NEEDS_REVIEW, False)]


def _protocol(**fields: object) -> Change:
    return lambda document: document["protocol_v3"].update(fields)


def _rollback_published(graph: Graph) -> None:
    take_back(graph)
    write(graph, "node:Doc", copies("rollback-"))
    rolled_back = commit_rows(graph)[-1]["graph_commit_id"]
    (name,) = sidecar_names(graph.storage)
    document = json.loads(graph.storage.read(f"__recovery/{name}"))
    document["protocol_v3"]["rollback_graph_commit_id"] = rolled_back
    graph.storage.write(f"__recovery/{name}", json.dumps(document).encode())


def _rows_of_another_writer(graph: Graph) -> None:
    take_back(graph)
    append_foreign_row(graph)


def _another_version_restored(graph: Graph) -> None:
    older = entry_of(graph, TABLE).version - 1
    take_back(graph, restores=False)
    graph.open_head(entry_of(graph, TABLE)).checkout_version(older).restore()


def _published_again(graph: Graph) -> None:
    take_back(graph, restores=False)
    write(graph, TABLE, copies("later-"))


UNPROVEN: dict[str, Callable[[Graph], object]] = {
    "the engine settles a confirmed one": lambda graph: take_back(
        graph, change=_protocol(effect_phase="EffectsConfirmed")
    ),
    "its graph commit is not there": lambda graph: take_back(
        graph, change=_protocol(lineage={"graph_commit_id": "01K00000000000000000000000"})
    ),
    "the rollback is published, too": _rollback_published,
    "another writer's rows are on top": _rows_of_another_writer,
    "another version was restored": _another_version_restored,
    "somebody published since": _published_again,
}


@pytest.mark.slow
@pytest.mark.parametrize("left", UNPROVEN.values(), ids=UNPROVEN)
def test_what_is_not_proven_is_left_to_a_person(graph: Graph, left: Callable[[Graph], object]) -> None:
    left(graph)
    before, head = entry_of(graph, TABLE), graph.open_head(entry_of(graph, TABLE)).version
    assert check(graph).status is CheckStatus.NEEDS_PERSON
    (outcome,) = recover(graph).outcomes
    assert outcome.action == "left_to_engine"
    assert len(sidecar_names(graph.storage)) == 1
    assert (entry_of(graph, TABLE), graph.open_head(before).version) == (before, head)
