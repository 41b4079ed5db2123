"""Writes of engine 0.9.0 that every open of the engine refuses: `recover` rolls them back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import version_record
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.models.health import CheckStatus, SidecarClass
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.rows import rows_everywhere
from tests.support.sidecars import OTHER, TABLE, Document, append_foreign_row, arm, commit_rows, pin_of, publish_head
from tests.support.writers import copies, drift, entry_of, write

pytestmark = pytest.mark.slow
Change = Callable[[Document], None]
_KINDS = {"protocol_v3": "Load", "protocol_v4": "BranchMerge", "protocol_v8": "EnsureIndices"}


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)


def _merge(
    graph: Graph,
    change: Change = lambda _write: None,
    *,
    began: int | None = None,
    protocol: str = "protocol_v4",
) -> None:
    """Its commits to one table, and the sidecar with which it fails at the other. Writes."""
    pin, entry, again = pin_of(graph, TABLE), entry_of(graph, TABLE), entry_of(graph, OTHER)
    drift(graph, TABLE, copies("merged-"))
    head = graph.open_head(entry).version
    made = version_record(graph.storage, entry.path, head).transaction_id
    graph.open_head(entry).create_scalar_index("name", "BTREE", name="merged", replace=True)
    identity = pin_of(graph, OTHER)["identity"]
    pin |= {"expected_version": began or entry.version}
    document: Document = {
        "lineage": {"graph_commit_id": new_ulid()},
        "rollback_graph_commit_id": new_ulid(),
        "effect_phase": "EffectsConfirmed",
        "effects": [{"kind": {"kind": "MultiCommitHead", "planned_transactions": [{"read_version": 1, "uuid": made}]}}],
        "intended_delta": {
            "table_updates": [
                {"table_key": TABLE, "identity": pin["identity"], "confirmed": {"table_version": head + 1}},
                {"table_key": OTHER, "identity": identity, "confirmed": {"table_version": again.version}},
            ]
        },
    }
    change(document)
    arm(graph, change=lambda d: d.update({"writer_kind": _KINDS[protocol], "tables": [pin], protocol: document}))


def test_it_is_rolled_back_and_the_graph_is_as_before(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    _merge(graph)
    (finding,) = check(graph).sidecars
    assert (finding.classification, finding.recoverable) == (SidecarClass.ROLL_BACK, True)
    assert f"it publishes version {entry_of(graph, OTHER).version} of {OTHER} again" in finding.detail
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    assert graph.open_head(entry_of(graph, TABLE)).version == entry_of(graph, TABLE).version
    check_lineage(graph, None)


@pytest.mark.parametrize("phase", ["Armed", "EffectsConfirmed"])
def test_one_that_committed_on_top_of_another_publish_is_rolled_back(graph: Graph, phase: str) -> None:
    began = entry_of(graph, TABLE).version
    write(graph, TABLE, copies("published-"))
    rows = rows_everywhere(graph)
    _merge(graph, lambda write: write.update(effect_phase=phase, intended_delta={"table_updates": []}), began=began)
    assert "another write of" in check(graph).sidecars[0].detail
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    check_lineage(graph, None)


def test_it_waits_for_its_grace_period(graph: Graph) -> None:
    _merge(graph)
    assert [outcome.action for outcome in recover(graph, grace_seconds=600).outcomes] == ["deferred"]


def _another_version(write: Document) -> None:
    write["intended_delta"]["table_updates"][1]["confirmed"]["table_version"] += 1


def _of_another_branch(write: Document) -> None:
    write["intended_delta"]["table_updates"][1]["confirmed"]["table_branch"] = "side"


def _of_a_table_before_it(write: Document) -> None:
    write["intended_delta"]["table_updates"][1]["identity"] = {"stable_table_id": 999, "table_incarnation_id": 1}


def _unconfirmed(write: Document) -> None:
    for slot in write["intended_delta"]["table_updates"]:
        slot["confirmed"] = None


def _other_transactions(write: Document) -> None:
    write["effects"] = []


@pytest.mark.parametrize(
    "change", [_another_version, _of_another_branch, _of_a_table_before_it, _unconfirmed, _other_transactions]
)
def test_what_is_not_proven_is_left_to_the_engine(graph: Graph, change: Change) -> None:
    _merge(graph, change)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["left_to_engine"]
    assert len(sidecar_names(graph.storage)) == 1


def test_rows_of_somebody_else_are_never_taken_along(graph: Graph) -> None:
    _merge(graph)
    append_foreign_row(graph)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["left_to_engine"]


def _visible_commit(graph: Graph) -> str:
    write(graph, "edge:Knows", copies("published-"))
    return str(commit_rows(graph)[-1]["graph_commit_id"])


@pytest.mark.parametrize("protocol", ["protocol_v3", "protocol_v4", "protocol_v8"])
def test_one_that_confirmed_what_another_process_had_rolled_back_is_rolled_back(graph: Graph, protocol: str) -> None:
    visible, rows = _visible_commit(graph), rows_everywhere(graph)
    _merge(graph, lambda write: write.update(rollback_graph_commit_id=visible), protocol=protocol)
    assert "rolled it back, and its writer went on" in check(graph).sidecars[0].detail
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    check_lineage(graph, None)


def test_one_that_was_rolled_back_and_then_published_by_force_is_left_to_a_person(graph: Graph) -> None:
    visible = _visible_commit(graph)
    _merge(graph, lambda write: write.update(rollback_graph_commit_id=visible))
    publish_head(graph)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["left_to_engine"]


@pytest.mark.parametrize("which", ["published", "rolled back, and that is noted"])
def test_one_of_which_a_commit_is_visible_is_left_to_the_engine(graph: Graph, which: str) -> None:
    visible = _visible_commit(graph)
    fields: Document = {
        "published": {"lineage": {"graph_commit_id": visible}},
        "rolled back, and that is noted": {"rollback_graph_commit_id": visible, "rollback_audit_outcomes": []},
    }
    _merge(graph, lambda write: write.update(fields[which]))
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["left_to_engine"]


def _began_from(head: str | None) -> Change:
    return lambda write: write.update(authority={"graph_head": head}, intended_delta={"table_updates": []})


@pytest.mark.parametrize("phase", ["Armed", "EffectsConfirmed"])
@pytest.mark.parametrize("protocol", ["protocol_v3", "protocol_v4", "protocol_v8"])
def test_one_before_whose_publish_another_was_published_is_rolled_back(graph: Graph, protocol: str, phase: str) -> None:
    """A running server of the engine leaves it there, and refuses every write."""
    began = graph.state().head_commit_id
    _visible_commit(graph)
    rows = rows_everywhere(graph)

    def change(write: Document) -> None:
        _began_from(began)(write)
        write["effect_phase"] = phase

    _merge(graph, change, protocol=protocol)
    found = check(graph)
    assert found.status is CheckStatus.PENDING
    assert "a running server of the engine does not roll it back" in found.sidecars[0].detail
    assert [outcome.action for outcome in recover(graph, grace_seconds=600).outcomes] == ["deferred"]
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    check_lineage(graph, None)


def test_so_is_one_that_committed_nothing_by_then(graph: Graph) -> None:
    began = graph.state().head_commit_id
    _visible_commit(graph)
    rows, commits = rows_everywhere(graph), len(commit_rows(graph))
    document: Document = {
        "lineage": {"graph_commit_id": new_ulid()},
        "rollback_graph_commit_id": new_ulid(),
        "effect_phase": "Armed",
        "authority": {"graph_head": began},
        "effects": [{"planned_transaction": {"read_version": 1, "uuid": "never"}}],
        "intended_delta": {"table_updates": []},
    }
    tables = [pin_of(graph, TABLE), pin_of(graph, OTHER)]
    arm(graph, change=lambda d: d.update({"writer_kind": "Mutation", "tables": tables, "protocol_v3": document}))
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    assert len(commit_rows(graph)) == commits + 1, "the engine records a rollback of nothing by a commit, too"


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("protocol", ["protocol_v4", "protocol_v8"])
def test_one_that_may_still_be_published_is_left_to_the_engine(graph: Graph, protocol: str, is_known: bool) -> None:
    _visible_commit(graph)
    _merge(graph, _began_from(graph.state().head_commit_id if is_known else None), protocol=protocol)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["left_to_engine"]
