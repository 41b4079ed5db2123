"""Check and recover: every state of a sidecar, whose it is, and what is written about it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.cli.main import main
from omnigraph_ops.coordination import guards
from omnigraph_ops.coordination.lease import LeasePlace, committer_lease
from omnigraph_ops.coordination.state import EXPIRE_ROWS_LEASE_PATH
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import EXPIRY_BRANCH_PREFIX, SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.schema import staging_files
from omnigraph_ops.graph.sidecars import sidecar_names, sidecar_path
from omnigraph_ops.models.health import CheckStatus, SidecarClass
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover, recovered
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.edges import when_asked
from tests.support.kills import AFTER, BEFORE, kill_at
from tests.support.rows import rows_everywhere
from tests.support.sidecars import (
    OTHER,
    TABLE,
    Document,
    append_foreign_row,
    arm,
    audit_rows,
    commit_rows,
    make_branch,
    move,
    on_branch,
    pin_of,
    publish_head,
)
from tests.support.writers import entry_of

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def graph(demo_graph: Callable[..., Graph], stamp: int) -> Graph:
    """Fragmented tables and nothing pending."""
    return demo_graph(stamp=stamp, loads=3, rows=8, settings=QUICK)


def _only(graph: Graph) -> tuple[SidecarClass, bool]:
    (finding,) = check(graph).sidecars
    return finding.classification, finding.recoverable


@pytest.mark.slow
def test_a_clean_graph_exits_0(graph: Graph) -> None:
    assert main(["check", graph.uri, "--quiet"]) == 0
    assert main(["recover", graph.uri, "--quiet"]) == 0
    assert audit_rows(graph) == []


@pytest.mark.slow
def test_a_table_that_cannot_be_read_is_not_called_drift(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    entry = entry_of(graph, TABLE)
    versions = Path(graph.uri, entry.path, "_versions")
    versions.rename(versions.with_name("aside"))
    assert main(["check", graph.uri, "--quiet"]) == CheckStatus.DRIFTED.exit_code
    said = capsys.readouterr().out
    assert f"{entry.version} → ?" in said
    assert f"{TABLE} cannot be read, so its state is unknown: " in said
    assert "omnigraph-ops repair" not in said


@pytest.mark.slow
def test_a_moved_table_is_rolled_forward(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    rows, pin = rows_everywhere(graph), entry_of(graph, TABLE).version
    operation_id = arm(graph)
    head = move(graph)
    commits = commit_rows(graph)
    assert main(["check", graph.uri, "--quiet", "--json"]) == 3
    (finding,) = json.loads(capsys.readouterr().out)["sidecars"]
    assert (finding["classification"], finding["recoverable"]) == ("roll_forward", True)
    assert main(["recover", graph.uri, "--quiet"]) == 0
    assert entry_of(graph, TABLE).version == head > pin
    assert rows_everywhere(graph) == rows
    outcome = {"table_key": TABLE, "from_version": pin, "to_version": head}
    _check_written(graph, commits, operation_id, "RolledForward", [outcome])


@pytest.mark.slow
def test_a_table_that_did_not_move_is_rolled_back_with_no_tables(graph: Graph) -> None:
    operation_id = arm(graph)
    before, commits = entry_of(graph, TABLE), commit_rows(graph)
    assert _only(graph) == (SidecarClass.ROLL_BACK, True)
    unit = Unit(name="", stage="recover", table_key=TABLE, version=before.version, sidecar=f"{operation_id}.json")
    assert recovered(graph, unit) is None
    (outcome,) = recover(graph).outcomes
    assert outcome.action == "rolled_back"
    told = recovered(graph, unit)
    assert told is not None
    assert (told.action, told.operation_id) == ("rolled_back", operation_id)
    assert entry_of(graph, TABLE) == before
    _check_written(graph, commits, operation_id, "RolledBack", [])


def test_a_pin_already_past_needs_only_bookkeeping(graph: Graph) -> None:
    pin = entry_of(graph, TABLE).version
    operation_id = arm(graph)
    head = move(graph)
    publish_head(graph)
    commits = commit_rows(graph)
    assert _only(graph) == (SidecarClass.STALE, True)
    (outcome,) = recover(graph).outcomes
    assert (outcome.action, outcome.from_version, outcome.to_version) == ("stale", pin, head)
    assert entry_of(graph, TABLE).version == head
    _check_written(
        graph,
        commits,
        operation_id,
        "RolledForward",
        [{"table_key": TABLE, "from_version": pin, "to_version": head}],
    )


def _check_written(
    graph: Graph, before: list[dict[str, Any]], operation_id: str, kind: str, outcomes: list[dict[str, Any]]
) -> None:
    """One graph commit by the recovery actor on the former head, one audit row, and no sidecar."""
    commit = commit_rows(graph)[-1]
    assert len(commit_rows(graph)) == len(before) + 1
    assert commit["actor_id"] == "omnigraph:recovery"
    assert commit["parent_commit_id"] == before[-1]["graph_commit_id"]
    assert commit["manifest_branch"] is None
    assert commit["merged_parent_commit_id"] is None
    assert commit["manifest_version"] == graph.manifest().version
    check_lineage(graph, None)
    (audit,) = audit_rows(graph)
    assert audit.pop("created_at") is not None
    assert audit == {
        "graph_commit_id": commit["graph_commit_id"],
        "recovery_kind": kind,
        "recovery_for_actor": None,
        "operation_id": operation_id,
        "sidecar_writer_kind": "Optimize",
        "per_table_outcomes_json": json.dumps(outcomes, separators=(",", ":")),
    }
    assert not sidecar_names(graph.storage)


@pytest.mark.slow
def test_a_young_foreign_sidecar_waits_for_its_writer(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    arm(graph, age_seconds=5)
    assert main(["recover", graph.uri, "--grace", "10m", "--json", "--quiet"]) == 3
    (outcome,) = json.loads(capsys.readouterr().out)["outcomes"]
    assert outcome["action"] == "deferred"
    assert "its writer may be at work" in outcome["detail"]
    assert sidecar_names(graph.storage)
    assert audit_rows(graph) == []
    assert main(["recover", graph.uri, "--grace", "0s", "--quiet"]) == 0


def test_our_own_crash_is_finished_at_once_when_its_lease_is_dead(graph: Graph) -> None:
    kill_at(graph, lambda g: optimize_table(g, TABLE), "merge_insert", BEFORE)
    (outcome,) = recover(graph, grace_seconds=3600).outcomes
    assert outcome.action == "rolled_forward"
    assert guards.operation_of(graph.storage, outcome.operation_id) is None


@pytest.mark.slow
def test_our_own_run_is_left_alone_while_its_lease_lives(graph: Graph) -> None:
    kill_at(graph, lambda g: optimize_table(g, TABLE), "merge_insert", BEFORE)
    # The killed run left its lease behind, expired: somebody alive holds it now.
    graph = graph.with_settings(graph.settings.model_copy(update={"lease_wait_seconds": 0}))
    with committer_lease(graph.storage, purpose="at work", ttl_seconds=30, wait_seconds=1):
        (outcome,) = recover(graph, grace_seconds=0).outcomes
    assert outcome.action == "deferred"
    assert "(at work) holds the committer lease" in outcome.detail


def test_recovery_that_dies_before_its_last_step_writes_one_audit_row(graph: Graph) -> None:
    arm(graph)
    move(graph)
    kill_at(graph, lambda g: recover(g, grace_seconds=0), "delete", BEFORE)
    assert len(audit_rows(graph)) == 1
    assert recover(graph, grace_seconds=0).status is CheckStatus.CLEAN
    assert len(audit_rows(graph)) == 1
    check_lineage(graph, None)


def test_several_sidecars_are_finished_oldest_first(graph: Graph) -> None:
    young, old = arm(graph, OTHER, age_seconds=100), arm(graph, age_seconds=1000)
    move(graph)
    assert [o.operation_id for o in recover(graph).outcomes] == [old, young]
    assert [r["recovery_kind"] for r in audit_rows(graph)] == ["RolledForward", "RolledBack"]


EXPIRY = f"{EXPIRY_BRANCH_PREFIX}x"


@pytest.mark.parametrize("there", [True, False])
def test_a_write_on_a_branch_of_row_expiry_is_withdrawn(graph: Graph, there: bool) -> None:
    if there:
        make_branch(graph, EXPIRY)
    rows, operation_id = rows_everywhere(graph), arm(graph, change=on_branch(EXPIRY))
    assert _only(graph) == (SidecarClass.ROLL_BACK, True)
    report = recover(graph)
    assert [o.action for o in report.outcomes] == ["rolled_back"]
    assert report.status is CheckStatus.CLEAN
    assert not graph.storage.exists(sidecar_path(operation_id))
    assert rows_everywhere(graph) == rows


def test_a_branch_that_a_killed_row_expiry_left_is_named(graph: Graph) -> None:
    make_branch(graph, EXPIRY)
    report = check(graph)
    assert (report.status, report.branch_findings) == (CheckStatus.CLEAN, ())
    (advice,) = report.advice
    assert f"left branch {EXPIRY!r}" in advice
    assert "refuses schema applies" in advice
    place = LeasePlace(path=EXPIRE_ROWS_LEASE_PATH, name="a run of row expiry")
    with committer_lease(graph.storage, purpose="expire rows", ttl_seconds=30, wait_seconds=1, place=place):
        assert check(graph).advice == ()


def test_a_row_expiry_that_ends_while_it_is_looked_at_left_nothing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = LeasePlace(path=EXPIRE_ROWS_LEASE_PATH, name="a run of row expiry")
    with committer_lease(graph.storage, purpose="expire rows", ttl_seconds=30, wait_seconds=1, place=place):
        make_branch(graph, EXPIRY)

    def ends() -> None:
        graph.lance.delete_branch(graph.manifest(), EXPIRY)

    looked = when_asked(monkeypatch, Storage, "read", ends, about=f"^{EXPIRE_ROWS_LEASE_PATH}-")
    assert check(graph).advice == ()
    assert looked


def test_a_young_write_on_a_branch_of_row_expiry_is_left_to_its_process(graph: Graph) -> None:
    make_branch(graph, EXPIRY)
    operation_id = arm(graph, age_seconds=1, change=on_branch(EXPIRY))
    assert [o.action for o in recover(graph, grace_seconds=900).outcomes] == ["deferred"]
    assert graph.storage.exists(sidecar_path(operation_id))


def test_a_write_of_row_expiry_is_left_alone_while_somebody_holds_the_lease(graph: Graph) -> None:
    make_branch(graph, EXPIRY)
    operation_id = arm(graph, change=on_branch(EXPIRY))
    graph = graph.with_settings(graph.settings.model_copy(update={"lease_wait_seconds": 0}))
    with committer_lease(graph.storage, purpose="expire rows", ttl_seconds=30, wait_seconds=1):
        assert [o.action for o in recover(graph, grace_seconds=0).outcomes] == ["deferred"]
    assert graph.storage.exists(sidecar_path(operation_id))


def test_a_write_that_also_moves_main_is_no_write_of_row_expiry(graph: Graph) -> None:
    make_branch(graph, EXPIRY)
    operation_id = arm(graph, change=lambda document: document.update(branch=EXPIRY, writer_kind="Mutation"))
    assert [o.action for o in recover(graph).outcomes] == ["left_to_engine"]
    assert graph.storage.exists(sidecar_path(operation_id))


def test_the_first_write_on_a_branch_dies_before_it_made_the_branch_of_the_table(graph: Graph) -> None:
    make_branch(graph, "lazy")
    arm(graph, change=on_branch("lazy"))
    (finding,) = check(graph).sidecars
    assert finding.detail == "a Mutation of the engine; its outcome is decided when omnigraph opens the graph"


def test_a_branch_of_a_table_that_was_published_and_is_gone_cannot_be_read(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, written_branches=1, loads=3, rows=12, node_types=1)
    (name,) = graph.branches()
    arm(graph, change=on_branch(name))
    (entry,) = [e for e in graph.state(name).entries if e.branch == name]
    shutil.rmtree(Path(graph.uri, entry.path, "tree", name, "_versions"))
    (finding,) = check(graph).sidecars
    assert "cannot be read; an open by the engine would fail" in finding.detail


@pytest.mark.slow
def test_a_foreign_row_past_the_pin_is_never_published(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    operation_id = arm(graph)
    append_foreign_row(graph)
    move(graph)
    assert _only(graph) == (SidecarClass.ROLL_FORWARD, False)
    report = recover(graph)
    assert report.status is CheckStatus.NEEDS_PERSON
    assert [o.action for o in report.outcomes] == ["left_to_engine"]
    assert rows_everywhere(graph) == rows
    assert graph.storage.exists(sidecar_path(operation_id))


@pytest.mark.slow
@pytest.mark.night("combinations")
@pytest.mark.parametrize("kind", ["Mutation", "Load", "SchemaApply", "BranchMerge", "EnsureIndices"])
def test_other_kinds_are_left_to_the_engine(graph: Graph, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    arm(graph, change=lambda d: d.update(writer_kind=kind))
    move(graph)
    _check_left(graph, capsys)


@pytest.mark.slow
def test_a_schema_apply_that_makes_and_renames_tables_is_the_engines(demo_graph: Callable[..., Graph]) -> None:
    graph = demo_graph(stamp=6, loads=4, rows=12)

    def change(document: Document) -> None:
        (renamed,) = document["tables"]
        made = {**pin_of(graph, OTHER), "table_key": "node:New", "expected_version": 0}
        made["identity"] = {"stable_table_id": 991, "table_incarnation_id": 992}
        document |= {"writer_kind": "SchemaApply", "tables": [made, {**renamed, "table_key": "node:Renamed"}]}

    arm(graph, change=change)
    move(graph)
    report = check(graph)
    (found,) = report.sidecars
    assert (found.table_keys, found.recoverable) == (("node:New", TABLE), False)
    assert found.detail == "a SchemaApply of the engine; its outcome is decided when omnigraph opens the graph"
    assert [(d.table_key, d.covered) for d in report.drift] == [(TABLE, True)]
    assert not [line for line in report.advice if "repair" in line]


@pytest.mark.slow
def test_several_pins_are_left_to_the_engine(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    arm(graph, change=lambda d: d["tables"].append(pin_of(graph, OTHER)))
    move(graph)
    move(graph, OTHER)
    _check_left(graph, capsys)


def _check_left(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    rows, names = rows_everywhere(graph), sidecar_names(graph.storage)
    assert main(["check", graph.uri, "--quiet"]) == 4
    assert "omnigraph opens the graph" in capsys.readouterr().out
    assert main(["recover", graph.uri, "--quiet", "--grace", "0s", "--json"]) == 4
    (outcome,) = json.loads(capsys.readouterr().out)["outcomes"]
    assert outcome["action"] == "left_to_engine"
    assert (rows_everywhere(graph), sidecar_names(graph.storage)) == (rows, names)
    assert audit_rows(graph) == []


@pytest.mark.slow
@pytest.mark.night("combinations")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: d.update(schema_version=99), id="of the future"),
        pytest.param(lambda d: d.update(writer_kind="Defragment"), id="unknown kind"),
        pytest.param(lambda d: d.update(operation_id="01ARZ3NDEKTSV4RRFFQ69G5FAV"), id="other name"),
        pytest.param(lambda d: d.pop("tables"), id="no pins"),
        pytest.param(lambda d: d.update(tables=[]), id="empty pins"),
        pytest.param(lambda d: d["tables"][0].update(table_key="node:Nobody"), id="unknown table"),
        pytest.param(lambda d: d["tables"][0].update(expected_version=-1), id="negative version"),
        pytest.param(lambda d: d["tables"][0].update(expected_version="7"), id="version as text"),
        pytest.param(lambda d: d["tables"][0].update(table_branch="gone"), id="unknown table branch"),
    ],
)
def test_a_sidecar_that_makes_no_sense_needs_a_person(
    graph: Graph, change: Change, capsys: pytest.CaptureFixture[str]
) -> None:
    arm(graph, change=change)
    move(graph)
    _check_refused(graph, capsys)


@pytest.mark.slow
@pytest.mark.night("combinations")
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"\xef\xbb\xbf{}", b"[" * 100_000])
def test_a_damaged_sidecar_needs_a_person(graph: Graph, raw: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    graph.storage.write(sidecar_path("01ARZ3NDEKTSV4RRFFQ69G5FAV"), raw)
    _check_refused(graph, capsys)


def _check_refused(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    rows, names = rows_everywhere(graph), sidecar_names(graph.storage)
    assert main(["check", graph.uri, "--quiet"]) == 4
    assert min(names) in capsys.readouterr().out
    assert main(["recover", graph.uri, "--quiet", "--grace", "0s"]) == 4
    assert main(["optimize", graph.uri, "--quiet"]) == 1
    assert min(names) in capsys.readouterr().err
    assert (rows_everywhere(graph), sidecar_names(graph.storage)) == (rows, names)


@pytest.mark.slow
def test_a_sidecar_of_a_branch_that_is_gone_is_named_as_such(graph: Graph) -> None:
    arm(graph, change=lambda d: d.update(branch="deleted"))
    assert _only(graph) == (SidecarClass.ORPHANED_BRANCH, False)
    assert main(["recover", graph.uri, "--quiet", "--grace", "0s"]) == 4


@pytest.mark.slow
def test_another_lifetime_of_the_table_is_not_recovered(demo_graph: Callable[..., Graph]) -> None:
    graph = demo_graph(stamp=6, loads=2, rows=8)
    arm(graph, change=lambda d: d["tables"][0]["identity"].update(table_incarnation_id=77))
    move(graph)
    assert _only(graph) == (SidecarClass.NEEDS_REVIEW, False)


def test_a_schema_apply_in_flight_stops_recovery_and_says_so(graph: Graph) -> None:
    arm(graph)
    move(graph)
    Path(graph.uri, "_schema.pg.staging").write_text("node A {}")
    report = recover(graph, grace_seconds=0)
    assert report.status is CheckStatus.NEEDS_PERSON
    (outcome,) = report.outcomes
    assert outcome.action == "left_to_engine"
    assert "_schema.pg.staging" in outcome.detail


@pytest.mark.parametrize("whole", [False, True], ids=["half", "whole"])
def test_what_a_schema_apply_staged_by_half_is_not_to_be_opened(graph: Graph, stamp: int, whole: bool) -> None:
    arm(graph, change=lambda d: d.update(writer_kind="SchemaApply"))
    graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
    staged = ["_schema.pg.staging", "_schema.ir.json.staging", *["__schema_state.json.staging"] * whole]
    for name in staged:
        graph.storage.write(name, b"node A {}")
    refuses = stamp == 3 and not whole  # its next open would put these in place
    advice = check(graph).advice
    assert any("do not open the graph with omnigraph now" in said for said in advice) is refuses
    assert any(said.startswith("open the graph read-write") for said in advice) is not refuses
    assert main(["unlock", graph.uri, "--confirm", "--force", "--yes"]) == 0
    assert staging_files(graph.storage) == (() if refuses else tuple(staged))
    assert not graph.is_locked()


def test_a_table_moved_on_a_branch_is_left_to_the_engine(graph: Graph) -> None:
    """An Optimize pin with a table branch is not what any engine writes: its HEAD is not main's."""
    main_table = graph.open_head(entry_of(graph, TABLE))
    main_table.create_branch("side", main_table.version)
    arm(graph, change=lambda d: d["tables"][0].update(table_branch="side"))
    move(graph)
    _, recoverable = _only(graph)
    assert not recoverable


@pytest.mark.slow
def test_a_publish_that_lost_its_lineage_is_bookkeeping(demo_graph: Callable[..., Graph]) -> None:
    graph = demo_graph(stamp=3, loads=2, rows=8, settings=QUICK)
    before = len(commit_rows(graph))
    kill_at(graph, lambda g: optimize_table(g, TABLE), "merge_insert", AFTER)
    assert len(commit_rows(graph)) == before
    assert [o.action for o in recover(graph).outcomes] == ["stale"]
    assert commit_rows(graph)[-1]["actor_id"] == "omnigraph:recovery"
