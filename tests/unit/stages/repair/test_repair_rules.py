"""The engine's classification of drift, and what a confirmed repair does with it."""

from __future__ import annotations

import pytest

from omnigraph_ops.graph.lance_manifest import OPERATIONS, History
from omnigraph_ops.models.repair import Classification, RepairAction, RepairRow
from omnigraph_ops.stages.repair.run import classify, decide

VERIFIED = {"Rewrite", "ReserveFragments"}


def test_no_operation_is_no_drift() -> None:
    assert classify(History(operations=())) is Classification.NO_DRIFT


@pytest.mark.parametrize("operation", [*OPERATIONS.values(), "Unknown(115)"])
def test_only_rewrites_are_verified(operation: str) -> None:
    expected = Classification.VERIFIED_MAINTENANCE if operation in VERIFIED else Classification.SUSPICIOUS
    assert classify(History(operations=(operation,))) is expected
    assert classify(History(operations=("Rewrite", operation, "ReserveFragments"))) is expected


@pytest.mark.parametrize("before", [(), ("Rewrite",), ("Delete",)])
def test_what_cannot_be_read_dominates(before: tuple[str, ...]) -> None:
    assert classify(History(operations=before, problem="missing")) is Classification.UNVERIFIABLE


@pytest.mark.parametrize(
    ("classification", "force", "action"),
    [
        (Classification.NO_DRIFT, False, RepairAction.NO_OP),
        (Classification.NO_DRIFT, True, RepairAction.NO_OP),
        (Classification.VERIFIED_MAINTENANCE, False, RepairAction.HEALED),
        (Classification.VERIFIED_MAINTENANCE, True, RepairAction.HEALED),
        (Classification.SUSPICIOUS, False, RepairAction.REFUSED),
        (Classification.SUSPICIOUS, True, RepairAction.FORCED),
        (Classification.UNVERIFIABLE, False, RepairAction.REFUSED),
        (Classification.UNVERIFIABLE, True, RepairAction.FORCED),
    ],
)
def test_decision_table(classification: Classification, force: bool, action: RepairAction) -> None:
    row = RepairRow(
        table_key="node:T",
        manifest_version=1,
        lance_head_version=2,
        classification=classification,
        action=RepairAction.PREVIEW,
    )
    assert decide(row, force=force) is action


def test_only_known_maintenance_preserves_content() -> None:
    kept = {name for name in [*OPERATIONS.values(), "Unknown(1)"] if History(operations=(name,)).preserves_content}
    assert kept == {"UpdateConfig", "CreateIndex", "ReserveFragments", "Rewrite"}
    assert not History(operations=("Rewrite",), problem="missing").preserves_content
