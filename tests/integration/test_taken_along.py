"""Writes of engine 0.9.0 whose commits an optimize of another process published: rolled back, if that is all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import version_record
from omnigraph_ops.graph.layout import RECOVERY_DIR, chain_folder, new_ulid, version_path
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.models.health import CheckStatus, SidecarClass
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.edges import when_published
from tests.support.rows import rows_everywhere
from tests.support.sidecars import EDGE, TABLE, append_foreign_row, arm, audit_rows, move, pin_of, publish_head
from tests.support.writers import copies, delete_first, drift, entry_of, write

pytestmark = pytest.mark.slow
_KINDS = {"protocol_v3": "Load", "protocol_v4": "BranchMerge", "protocol_v8": "EnsureIndices"}


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)


def _begin(
    graph: Graph,
    *tables: str,
    protocol: str = "protocol_v3",
    branch: str | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """The commits of a write and its sidecar, as it was armed. Writes.

    Args:
        meanwhile: what others do between its plan and its commits.
    """
    pins = [pin_of(graph, table_key, branch) for table_key in tables]
    meanwhile()
    planned = list[str | None]()
    for table_key in tables:
        entry = entry_of(graph, table_key, branch)
        copies(f"{new_ulid()}-")(graph.lance.open(graph.table_uri(entry), branch=branch))
        head = graph.lance.open(graph.table_uri(entry), branch=branch).version
        planned.append(version_record(graph.storage, chain_folder(entry.path, branch), head).transaction_id)
    announced = {
        "lineage": {"graph_commit_id": new_ulid()},
        "rollback_graph_commit_id": new_ulid(),
        "effect_phase": "Armed",
        "effects": [{"kind": {"planned_transactions": [{"read_version": 1, "uuid": uuid}]}} for uuid in planned],
    }
    if protocol == "protocol_v3":
        announced["effects"] = [{"planned_transaction": {"read_version": 1, "uuid": uuid}} for uuid in planned]
    fields = {"branch": branch, "writer_kind": _KINDS[protocol], "tables": pins, protocol: announced}
    arm(graph, change=lambda document: document.update(fields))


def _take_along(graph: Graph, branch: str | None = None) -> None:
    """What an optimize does to the table: it publishes the newest version. Writes."""
    entry = entry_of(graph, TABLE, branch)
    head = graph.lance.open(graph.table_uri(entry), branch=branch)
    head.create_scalar_index("name", "BTREE", name="late", replace=True)
    publish(graph, (table_update(graph, entry, graph.open_newest(entry)),), actor=None, branch=branch)


@pytest.mark.parametrize("protocol", _KINDS)
def test_its_rows_go_from_every_table(graph: Graph, protocol: str) -> None:
    rows, version = rows_everywhere(graph), entry_of(graph, TABLE).version
    _begin(graph, TABLE, EDGE, protocol=protocol)
    _take_along(graph)
    (finding,) = check(graph).sidecars
    assert (finding.classification, finding.recoverable) == (SidecarClass.ROLL_BACK, True)
    assert "an optimize published its commits" in finding.detail
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    (audit,) = audit_rows(graph)
    first = json.loads(audit["per_table_outcomes_json"])[0]
    assert first == {"table_key": TABLE, "from_version": version + 2, "to_version": version}
    check_lineage(graph, None)


def test_it_waits_for_its_grace_period(graph: Graph) -> None:
    _begin(graph, TABLE)
    _take_along(graph)
    assert [outcome.action for outcome in recover(graph, grace_seconds=7200).outcomes] == ["deferred"]


def test_on_a_branch_too(demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=6, loads=3, rows=8, written_branches=1, settings=QUICK)
    (branch,) = graph.branches()
    rows = rows_everywhere(graph)
    _begin(graph, TABLE, branch=branch)
    _take_along(graph, branch)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


@pytest.mark.parametrize("protocol", _KINDS)
def test_after_a_kill_before_its_sidecar_was_removed_the_next_run_does_that(graph: Graph, protocol: str) -> None:
    _begin(graph, TABLE, protocol=protocol)
    _take_along(graph)
    (name,) = sidecar_names(graph.storage)
    sidecar = graph.storage.read(f"{RECOVERY_DIR}/{name}")
    recover(graph, grace_seconds=0)
    rows = rows_everywhere(graph)
    graph.storage.write(f"{RECOVERY_DIR}/{name}", sidecar)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


@pytest.mark.parametrize("protocol", _KINDS)
def test_one_below_a_compaction_that_nobody_published_is_rolled_back(graph: Graph, protocol: str) -> None:
    rows = rows_everywhere(graph)
    _begin(graph, TABLE, protocol=protocol)
    move(graph)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


@pytest.mark.parametrize("what", ["_versions", "data"])
def test_where_the_rows_before_it_are_gone_readers_keep_what_they_have(graph: Graph, what: str) -> None:
    entry = entry_of(graph, TABLE)
    _begin(graph, TABLE)
    move(graph)
    _take_along(graph)
    used = {file.path for f in graph.open_head(entry).get_fragments() for file in f.data_files()}
    for file in Path(graph.uri, entry.path, what).iterdir():
        if what == "data" and file.name not in used:
            file.unlink()
    if what == "_versions":
        graph.storage.delete(version_path(entry.path, entry.version, None))
    rows = rows_everywhere(graph)
    assert {outcome.action for outcome in recover(graph, grace_seconds=0).outcomes} == {"left_to_engine"}
    assert rows_everywhere(graph) == rows


def test_several_that_were_taken_along_are_all_rolled_back(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    _begin(graph, TABLE, EDGE)
    _begin(graph, TABLE, protocol="protocol_v4")
    _take_along(graph)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"] * 2
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    check_lineage(graph, None)


def test_what_was_published_before_it_stays(graph: Graph) -> None:
    after = list[object]()

    def meanwhile() -> None:
        write(graph, TABLE, copies("published-"))
        after.append(rows_everywhere(graph))

    _begin(graph, TABLE, meanwhile=meanwhile)
    _take_along(graph)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, [rows_everywhere(graph)]) == (CheckStatus.CLEAN, after)


def test_what_a_process_rolled_back_to_the_published_version_is_no_obstacle(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    _begin(graph, TABLE)
    _take_along(graph)
    drift(graph, TABLE, lambda head: head.restore())
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


def test_an_attempt_that_was_broken_off_is_repeated(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_everywhere(graph)
    _begin(graph, TABLE, EDGE)
    _take_along(graph)

    with monkeypatch.context() as patch:
        when_published(patch, lambda: publish_head(graph, TABLE))
        assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["deferred"]
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


def test_one_whose_rows_are_off_again_takes_no_others_along(graph: Graph) -> None:
    """A publish on top of our own, before the sidecar was removed."""
    version = entry_of(graph, TABLE).version
    _begin(graph, TABLE)
    _take_along(graph)
    write(graph, TABLE, lambda head: head.checkout_version(version).restore())
    write(graph, TABLE, copies("later-"))
    rows = rows_everywhere(graph)
    recover(graph, grace_seconds=0)
    assert rows_everywhere(graph) == rows


LEFT: dict[str, Callable[[Graph], object]] = {
    "rows that nobody published": append_foreign_row,
    "rows of another publish": lambda graph: write(graph, TABLE, copies("later-")),
    "a delete that was published": lambda graph: write(graph, TABLE, delete_first()),
    "a restore to long ago": lambda graph: drift(graph, TABLE, lambda head: head.checkout_version(2).restore()),
}


@pytest.mark.parametrize("act", LEFT.values(), ids=LEFT)
def test_with_anything_else_on_top_it_is_left_to_a_person(graph: Graph, act: Callable[[Graph], object]) -> None:
    _begin(graph, TABLE)
    _take_along(graph)
    act(graph)
    rows = rows_everywhere(graph)
    assert {outcome.action for outcome in recover(graph, grace_seconds=0).outcomes} == {"left_to_engine"}
    assert rows_everywhere(graph) == rows


def test_a_write_that_published_itself_is_not_taken_off(graph: Graph) -> None:
    _begin(graph, TABLE)
    publish_head(graph)
    (name,) = [path for path in graph.storage.list("__recovery") if path.endswith(".json")]
    document = json.loads(graph.storage.read(f"__recovery/{name}"))
    newest = list(graph.format.commits(graph.context, None))[-1].commit_id
    document["protocol_v3"]["lineage"]["graph_commit_id"] = newest
    graph.storage.write(f"__recovery/{name}", json.dumps(document).encode())
    rows = rows_everywhere(graph)
    recover(graph, grace_seconds=0)
    assert rows_everywhere(graph) == rows
