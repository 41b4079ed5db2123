"""A write that was rolled back and went on, after a cleanup removed the transactions that tell what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions, version_record
from omnigraph_ops.graph.layout import new_ulid, version_path
from omnigraph_ops.graph.sidecars import ROLLED_BACK, AuditOutcome, append_audit, list_sidecars, sidecar_names
from omnigraph_ops.models.health import CheckStatus, SidecarClass
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.rows import rows_everywhere
from tests.support.sidecars import OTHER, TABLE, Document, arm, audit_rows, commit_rows, pin_of, publish_head
from tests.support.writers import copies, drift, entry_of, write

pytestmark = pytest.mark.slow
Change = Callable[[Document], None]


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)


def _unchanged(_document: Document) -> None:
    pass


def _late(graph: Graph) -> tuple[Document, Document]:
    """The commit of a load to a table, and the sidecar of the load once it is confirmed. Writes."""
    pin, entry = pin_of(graph, TABLE), entry_of(graph, TABLE)
    drift(graph, TABLE, copies("late-"))
    made = entry.version + 1
    tag = graph.storage.stat(version_path(entry.path, made, None)).e_tag
    uuid = version_record(graph.storage, entry.path, made).transaction_id
    confirmed = {"table_version": made, "table_branch": None, "version_metadata": {"e_tag": tag}}
    slot = {"table_key": TABLE, "identity": pin["identity"], "confirmed": confirmed}
    planned = {"read_version": entry.version, "uuid": uuid}
    load: Document = {
        "lineage": {"graph_commit_id": new_ulid()},
        "effect_phase": "EffectsConfirmed",
        "effects": [{"identity": pin["identity"], "planned_transaction": planned}],
        "intended_delta": {"table_updates": [slot]},
    }
    return pin, load


def _confirm(graph: Graph, pin: Document, load: Document, audit: Document | None) -> None:
    """What the load does when it goes on: its sidecar again, after the audit of the rollback. Writes."""
    operation_id = arm(graph, change=lambda d: d.update(writer_kind="Load", tables=[pin], protocol_v3=load))
    (file,) = list_sidecars(graph.storage, graph.format.sidecar_version)
    assert file.sidecar is not None
    assert file.sidecar.operation_id == operation_id
    if audit is not None:
        outcomes = (AuditOutcome(table_key=TABLE, from_version=audit["from"], to_version=audit["to"]),)
        commit_id, at = audit.get("commit", load["rollback_graph_commit_id"]), 1
        append_audit(graph, file.sidecar, commit_id=commit_id, kind=ROLLED_BACK, outcomes=outcomes, created_at_us=at)


def _cleanup(graph: Graph) -> None:
    """Remove all versions of the table but the published one, as `cleanup --keep 1` does. Destroys them."""
    entry = entry_of(graph, TABLE)
    for version in stored_versions(graph.storage, entry.path) - {entry.version}:
        graph.storage.delete(version_path(entry.path, version, None))


def _restored(
    graph: Graph, change: Change = _unchanged, audit: Change | None = _unchanged, *, published: bool = False
) -> None:
    """Another process restored the table on top of the load, and more was published. Writes.

    Args:
        change: of the sidecar.
        audit: of what the audit says; None where there is none.
        published: whether somebody published the load before that.
    """
    began = entry_of(graph, TABLE)
    pin, load = _late(graph)
    if published:
        publish_head(graph)
    graph.open_head(began).checkout_version(began.version).restore()  # type: ignore[no-untyped-call]
    publish_head(graph)
    load["rollback_graph_commit_id"] = commit_rows(graph)[-1]["graph_commit_id"]
    write(graph, TABLE, copies("later-"))
    _cleanup(graph)
    change(load)
    said: Document = {"from": began.version + 1, "to": began.version}
    if audit is not None:
        audit(said)
    _confirm(graph, pin, load, None if audit is None else said)


def _in_a_gap(graph: Graph, change: Change = _unchanged) -> None:
    """The load committed under the number of a version that a cleanup had removed. Writes."""
    began = entry_of(graph, TABLE)
    pin, load = _late(graph)
    path = version_path(began.path, began.version + 1, None)
    late = graph.storage.read(path)
    graph.storage.delete(path)  # it hangs
    write(graph, OTHER, copies("rollback-"))
    load["rollback_graph_commit_id"] = commit_rows(graph)[-1]["graph_commit_id"]
    write(graph, TABLE, copies("later-"))
    write(graph, TABLE, copies("latest-"))
    _cleanup(graph)
    graph.storage.write(path, late)
    change(load)
    _confirm(graph, pin, load, None)


@pytest.mark.parametrize("left", [_restored, _in_a_gap])
def test_it_is_withdrawn_and_the_tables_stay(graph: Graph, left: Callable[[Graph], None]) -> None:
    left(graph)
    rows, entry = rows_everywhere(graph), entry_of(graph, TABLE)
    assert not any("late-" in str(row) for row in rows.values())
    (finding,) = check(graph).sidecars
    assert (finding.classification, finding.recoverable) == (SidecarClass.ROLL_BACK, True)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    assert (entry_of(graph, TABLE), graph.open_head(entry).version) == (entry, entry.version)
    assert len(audit_rows(graph)) == 1
    check_lineage(graph, None)


def _slot(load: Document) -> Document:
    confirmed: Document = load["intended_delta"]["table_updates"][0]["confirmed"]
    return confirmed


def _says(**said: object) -> Change:
    return lambda audit: audit.update(said)


def _earlier(audit: Document) -> None:
    audit["from"] -= 1


def _twice(load: Document) -> None:
    load["effects"].append({**load["effects"][0], "planned_transaction": {"read_version": 1, "uuid": "another"}})


def _tag_of_what_was_published(graph: Graph) -> Change:
    def change(load: Document) -> None:
        number = _slot(load)["table_version"]
        rows = graph.manifest().to_table().to_pylist()
        (cell,) = [r["metadata"] for r in rows if (r["table_key"], r["table_version"]) == (TABLE, number)]
        _slot(load)["version_metadata"]["e_tag"] = json.loads(cell)["e_tag"]

    return change


UNPROVEN: dict[str, Callable[[Graph], None]] = {
    "no audit": lambda graph: _restored(graph, audit=None),
    "the audit is of another rollback": lambda graph: _restored(graph, audit=_says(commit=new_ulid())),
    "it committed after the restore": lambda graph: _restored(graph, audit=_earlier),
    "the restore is not published": lambda graph: _restored(graph, audit=_says(**{"from": 99})),
    "somebody published it": lambda graph: _restored(graph, published=True),
    "it is not confirmed": lambda graph: _restored(graph, lambda load: load.update(effect_phase="Armed")),
    "it says no version": lambda graph: _restored(graph, lambda load: load.update(intended_delta={})),
    "on another branch": lambda graph: _restored(graph, lambda load: _slot(load).update(table_branch="side")),
    "it was published under its number": lambda graph: _in_a_gap(graph, _tag_of_what_was_published(graph)),
    "no tag": lambda graph: _in_a_gap(graph, lambda load: _slot(load).update(version_metadata={})),
    "two commits": lambda graph: _in_a_gap(graph, _twice),
    "its number is older than it": lambda graph: _in_a_gap(graph, lambda load: _slot(load).update(table_version=1)),
}


@pytest.mark.parametrize("left", UNPROVEN.values(), ids=UNPROVEN)
def test_what_is_not_proven_is_for_a_person_and_no_open_is_advised(graph: Graph, left: Callable[[Graph], None]) -> None:
    left(graph)
    (finding,) = check(graph).sidecars
    assert (finding.classification, finding.refused_by_engine) == (SidecarClass.NEEDS_REVIEW, True)
    (advice,) = (line for line in check(graph).advice if finding.path in line)
    assert "do not open the graph with this omnigraph" in advice
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["left_to_engine"]
    assert len(sidecar_names(graph.storage)) == 1
