"""The armed window where the store fails or somebody else shows up while the sidecar is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph_ops.edges.lance_errors import LanceFailure
from omnigraph_ops.edges.lance_tables import execute_task
from omnigraph_ops.edges.storage import Storage
from omnigraph_ops.errors import RecoveryPending, StorageError
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import MAINTENANCE_DIR, RECOVERY_DIR, SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.sidecars import sidecar_names, sidecar_path, write_sidecar
from omnigraph_ops.lease import LEASE_PATH, LeaseKeeper
from omnigraph_ops.models import CheckStatus
from omnigraph_ops.optimize import deferred, optimize_all, optimize_table, units
from omnigraph_ops.recovery import check, recover
from omnigraph_ops.settings import Settings
from omnigraph_ops.window import run_unit
from tests.conftest import DemoGraph
from tests.crash.harness_sidecars import audit_rows
from tests.support.converged import assert_converged, assert_no_leftovers, assert_pins_are_heads
from tests.support.rows import rows_of, tree_of
from tests.support.writers import entry_of

PEOPLE = {"node_types": 1, "loads": 3, "rows": 12}
PERSON = "node:Person"
FOREIGN = "01ARYZ6S410000000000000000"


def refuse(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Every `call` of the storage below `__recovery/` fails."""
    real = getattr(Storage, call)

    def fail(self: Storage, path: str, *rest: bytes) -> None:
        if path.startswith(f"{RECOVERY_DIR}/"):
            raise StorageError(f"cannot {call} {path}: 503 Slow Down")
        real(self, path, *rest)

    monkeypatch.setattr(Storage, call, fail)


def graph_files(graph: Graph) -> dict[str, str]:
    """What is on disk but for our own folder, and the one the sidecars were in."""
    return {k: v for k, v in tree_of(graph.uri).items() if not k.startswith(MAINTENANCE_DIR) and k != RECOVERY_DIR}


def test_a_sidecar_that_cannot_be_written_moves_nothing(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    tree = graph_files(graph)
    with monkeypatch.context() as failing:
        refuse(failing, "write")
        with pytest.raises(StorageError, match=f"cannot write {RECOVERY_DIR}/.*Slow Down"):
            optimize_table(graph, PERSON)
        report = optimize_all(graph)
    assert [(t.table_key, "Slow Down" in (t.error or "")) for t in report.failed] == [
        ("edge:Knows", True),
        (PERSON, True),
    ]
    assert graph_files(graph) == tree
    assert not graph.storage.exists(LEASE_PATH)
    # Whether such a put landed is unknown, so our record of it stays until the next recover.
    assert recover(graph).status is CheckStatus.CLEAN
    assert_no_leftovers(graph)
    assert not optimize_all(graph).failed
    assert_converged(graph)


def test_a_sidecar_that_cannot_be_deleted_leaves_the_write_published(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    rows, before = rows_of(graph), entry_of(graph, PERSON)
    with monkeypatch.context() as failing:
        refuse(failing, "delete")
        with pytest.raises(StorageError, match=r"no row is lost.*run `omnigraph-ops recover`"):
            optimize_table(graph, PERSON)
    after = entry_of(graph, PERSON)
    assert after.version > before.version
    assert rows_of(graph) == rows
    assert_pins_are_heads(graph)
    assert check(graph).status is CheckStatus.PENDING
    # Not deferred: our record of it is still there, and its run is over.
    (outcome,) = recover(graph, grace_seconds=3600).outcomes
    assert (outcome.action, outcome.from_version, outcome.to_version) == ("stale", before.version, after.version)
    assert [r["recovery_kind"] for r in audit_rows(graph)] == ["RolledForward"]
    assert entry_of(graph, PERSON) == after
    assert_no_leftovers(graph)


def sidecar(graph: Graph) -> None:
    graph.storage.write(sidecar_path(FOREIGN), b"{}")


def lock(graph: Graph) -> None:
    graph.lance.create_branch(graph.manifest(), SCHEMA_APPLY_LOCK)


@pytest.mark.parametrize(("appears", "words"), [(sidecar, f"sidecar {FOREIGN}"), (lock, "the schema-apply lock")])
def test_whoever_appears_while_arming_has_the_right_of_way(
    demo_graph: DemoGraph,
    stamp: int,
    appears: Callable[[Graph], None],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE)
    entry, rows = entry_of(graph, PERSON), rows_of(graph)

    def armed_beside(*args: object) -> str:
        path = write_sidecar(*args)  # type: ignore[arg-type]
        appears(graph)
        return path

    monkeypatch.setattr("omnigraph_ops.window.write_sidecar", armed_beside)
    with pytest.raises(RecoveryPending, match=f"{words}.* appeared on .* while arming; nothing was written"):
        run_unit(graph, entry, unit="fold", effects=lambda *_: pytest.fail("must not run"))
    assert sidecar_names(graph.storage) == ({f"{FOREIGN}.json"} if appears is sidecar else set())
    assert graph.storage.list(f"{MAINTENANCE_DIR}/operations") == ()
    assert not graph.storage.exists(LEASE_PATH)
    assert (entry_of(graph, PERSON), graph.open_head(entry).version) == (entry, entry.version)
    assert rows_of(graph) == rows


@pytest.mark.parametrize("one_window", [True, False])
def test_no_commit_buries_what_a_writer_that_armed_beside_us_is_about_to_commit(
    demo_graph: DemoGraph, stamp: int, one_window: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Settings(small_table_bytes=10**9 if one_window else 0)
    graph = demo_graph(stamp=stamp, settings=small, **PEOPLE)
    before, rows = entry_of(graph, PERSON), rows_of(graph)
    commits, said = list[str](), list[str]()
    real = deferred.commit_results

    def beside(*_: object) -> None:
        """The last moment before a commit at which anybody of ours looks."""
        sidecar(graph)

    if one_window:
        monkeypatch.setattr(units, "execute_task", lambda *args: (beside(), execute_task(*args))[1])
    else:
        monkeypatch.setattr(LeaseKeeper, "assert_held", lambda keeper: sidecar(graph) if armed(graph) else None)
    monkeypatch.setattr(deferred, "commit_results", lambda *a, **n: (commits.append("rewrite"), real(*a, **n))[1])
    with pytest.raises(RecoveryPending, match=f"pending recovery sidecar.*{FOREIGN}"):
        optimize_table(graph, PERSON, on_progress=said.append)
    assert any(f"preempted, planning again: sidecar {FOREIGN}" in text and "while armed" in text for text in said)
    assert commits == []
    assert sidecar_names(graph.storage) == {f"{FOREIGN}.json"}
    now = entry_of(graph, PERSON)
    assert graph.open_head(now).version == now.version >= before.version, "what was folded before is published"
    assert rows_of(graph) == rows


def test_an_index_is_not_built_anew_over_a_writer_that_armed_while_it_was_folded(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, built = demo_graph(stamp=stamp, **PEOPLE), list[str]()

    def failing(*_: object) -> None:
        sidecar(graph)
        raise LanceFailure("cannot be folded")

    monkeypatch.setattr(units, "fold_index", failing)
    monkeypatch.setattr(units, "build_index", lambda *args: built.append(args[-1]))
    with pytest.raises(RecoveryPending, match=f"pending recovery sidecar.*{FOREIGN}"):
        optimize_table(graph, PERSON)
    assert built == []


def armed(graph: Graph) -> bool:
    return bool(sidecar_names(graph.storage))
