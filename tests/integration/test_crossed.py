"""Writes of two processes of the engine that crossed: rolled back, or left alone where anything is not known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import version_record
from omnigraph_ops.graph.layout import new_ulid, version_path
from omnigraph_ops.graph.sidecars import sidecar_names, sidecar_path
from omnigraph_ops.models.health import CheckStatus, SidecarClass
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.edges import when_published
from tests.support.rows import rows_everywhere
from tests.support.sidecars import EDGE, OTHER, TABLE, append_foreign_row, audit_rows, commit_rows, cross, publish_head
from tests.support.writers import copies, drift, entry_of, write

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)


def _sidecars(graph: Graph) -> list[str]:
    return [f"__recovery/{name}" for name in sorted(sidecar_names(graph.storage))]


def test_both_are_rolled_back_and_the_tables_can_be_written(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    cross(graph)
    found = [(s.classification, s.recoverable) for s in check(graph).sidecars]
    assert found == [(SidecarClass.ROLL_BACK, True)] * 2
    assert [outcome.action for outcome in recover(graph).outcomes] == ["rolled_back"] * 2
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    assert all(graph.open_head(entry_of(graph, key)).version == entry_of(graph, key).version for key in (TABLE, EDGE))
    assert [row["recovery_kind"] for row in audit_rows(graph)] == ["RolledBack"] * 2
    check_lineage(graph, None)


@pytest.mark.parametrize("order", [1, -1], ids=["lower first", "upper first"])
def test_both_are_settled_in_one_run_whichever_sidecar_comes_first(graph: Graph, order: int) -> None:
    rows = rows_everywhere(graph)
    cross(graph, tables=(TABLE,))
    newest = version_record(graph.storage, entry_of(graph, TABLE).path, graph.open_head(entry_of(graph, TABLE)).version)
    by_height = sorted(_sidecars(graph), key=lambda path: str(newest.transaction_id) in str(graph.storage.read(path)))
    for age, path in enumerate(by_height[::order]):
        document = json.loads(graph.storage.read(path)) | {
            "operation_id": new_ulid(1_700_000_000_000_000 + 5_000 * age)
        }
        graph.storage.delete(path)
        graph.storage.write(sidecar_path(document["operation_id"]), json.dumps(document).encode())
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"] * 2
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


def test_on_a_branch_too(demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=6, loads=3, rows=8, written_branches=1, settings=QUICK)
    (branch,) = graph.branches()
    rows = rows_everywhere(graph)
    cross(graph, branch, (TABLE,))
    assert all(outcome.action == "rolled_back" for outcome in recover(graph).outcomes)
    entry = entry_of(graph, TABLE, branch)
    assert graph.lance.open(graph.table_uri(entry), branch=branch).version == entry.version
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    check_lineage(graph, None)


def test_what_is_on_another_branch_says_nothing_about_it(demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=6, loads=3, rows=8, written_branches=1, settings=QUICK)
    (branch,) = graph.branches()
    cross(graph)
    second = json.loads(graph.storage.read(_sidecars(graph)[1]))
    graph.storage.write(_sidecars(graph)[1], json.dumps(second | {"branch": branch}).encode())
    assert {outcome.action for outcome in recover(graph).outcomes} == {"left_to_engine"}


def test_it_waits_for_the_youngest_of_them(graph: Graph) -> None:
    cross(graph)
    Path(graph.uri, _sidecars(graph)[1]).touch()
    assert [outcome.action for outcome in recover(graph, grace_seconds=600).outcomes] == ["deferred"] * 2


def _edit(graph: Graph, path: str, **fields: object) -> None:
    document = json.loads(graph.storage.read(path))
    document["protocol_v3"].update(fields)
    graph.storage.write(path, json.dumps(document).encode())


def test_one_that_was_confirmed_is_not_acknowledged_either(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    cross(graph)
    _edit(graph, _sidecars(graph)[0], effect_phase="EffectsConfirmed")
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"] * 2
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


def test_what_the_engine_has_rolled_back_of_one_leaves_the_other_to_us(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    pins = {key: entry_of(graph, key).version for key in (TABLE, EDGE)}
    cross(graph)
    for key, pin in pins.items():
        write(graph, key, lambda head, pin=pin: head.checkout_version(pin).restore())  # type: ignore[misc]
    graph.storage.delete(_sidecars(graph)[0])
    assert [outcome.action for outcome in recover(graph).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


def test_a_publish_in_the_meantime_defers_it(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_everywhere(graph)
    cross(graph)

    with monkeypatch.context() as patch:
        when_published(patch, lambda: publish_head(graph, TABLE))
        assert [outcome.action for outcome in recover(graph).outcomes] == ["deferred", "rolled_back"]
    assert [outcome.action for outcome in recover(graph).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


def _one_did_nothing(graph: Graph) -> None:
    """Then the engine drops it and undoes the other one by itself."""
    cross(graph)
    _edit(graph, _sidecars(graph)[0], effects=[])
    for key, pin in ((key, entry_of(graph, key).version) for key in (TABLE, EDGE)):
        head = graph.open_head(entry_of(graph, key))
        for version in range(pin + 1, head.version + 1):
            graph.storage.delete(version_path(entry_of(graph, key).path, version, None))
        drift(graph, key, copies("second-"))
    transactions = [
        version_record(graph.storage, e.path, int(graph.open_head(e).version)).transaction_id
        for e in (entry_of(graph, TABLE), entry_of(graph, EDGE))
    ]
    _edit(graph, _sidecars(graph)[1], effects=[{"planned_transaction": {"uuid": one}} for one in transactions])


def test_what_the_engine_can_undo_is_left_to_it(graph: Graph) -> None:
    _one_did_nothing(graph)
    assert [outcome.action for outcome in recover(graph).outcomes] == ["left_to_engine"] * 2


def _one_is_published(graph: Graph) -> None:
    write(graph, OTHER, lambda _head: None)
    _edit(graph, _sidecars(graph)[0], lineage={"graph_commit_id": commit_rows(graph)[-1]["graph_commit_id"]})


def _one_is_gone(graph: Graph) -> None:
    graph.storage.delete(_sidecars(graph)[0])


LEFT: dict[str, Callable[[Graph], object]] = {
    "somebody else committed": append_foreign_row,
    "somebody else published": lambda graph: write(graph, TABLE, copies("later-")),
    "one of them is published": _one_is_published,
    "one of them is unknown": _one_is_gone,
}


@pytest.mark.parametrize("act", LEFT.values(), ids=LEFT)
def test_what_is_not_known_is_left_to_a_person(graph: Graph, act: Callable[[Graph], object]) -> None:
    cross(graph)
    act(graph)
    before = {key: (entry_of(graph, key), graph.open_head(entry_of(graph, key)).version) for key in (TABLE, EDGE)}
    assert check(graph).status is CheckStatus.NEEDS_PERSON
    assert {outcome.action for outcome in recover(graph).outcomes} == {"left_to_engine"}
    after = {key: (entry_of(graph, key), graph.open_head(entry_of(graph, key)).version) for key in (TABLE, EDGE)}
    assert after == before
