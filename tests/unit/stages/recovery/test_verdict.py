"""What becomes of a sidecar: the table of cases."""

from __future__ import annotations

import pytest

from omnigraph_ops.graph.sidecars import Sidecar, SidecarPin
from omnigraph_ops.models.health import SidecarClass
from omnigraph_ops.stages.recovery.verdict import PinState, classify


def sidecar(kind: str = "Optimize", pins: int = 1, branch: str | None = None) -> Sidecar:
    return Sidecar(
        schema_version=2,
        operation_id="01",
        started_at="1",
        writer_kind=kind,
        branch=branch,
        tables=tuple(
            SidecarPin(table_key=f"node:T{n}", table_path="/g/t", expected_version=5, post_commit_pin=6)
            for n in range(pins)
        ),
    )


def pin(pinned: int | None = 5, head: int | None = 5, *, preserves: bool = True) -> PinState:
    return PinState(
        table_key="node:T0",
        expected_version=5,
        pinned_version=pinned,
        lance_head_version=head,
        preserves_content=preserves,
    )


MOVED, STILL, PUBLISHED = pin(5, 8), pin(5, 5), pin(8, 8)
OPTIMIZE_CASES = [
    ((MOVED,), SidecarClass.ROLL_FORWARD, True),
    ((pin(5, 8, preserves=False),), SidecarClass.ROLL_FORWARD, False),
    ((STILL,), SidecarClass.ROLL_BACK, True),
    ((PUBLISHED,), SidecarClass.STALE, True),
    ((pin(6, 8),), SidecarClass.ROLL_BACK, False),
    ((pin(8, 5),), SidecarClass.NEEDS_REVIEW, False),
    ((pin(None, 5),), SidecarClass.NEEDS_REVIEW, False),
    ((pin(5, None),), SidecarClass.NEEDS_REVIEW, False),
    ((MOVED, MOVED), SidecarClass.ROLL_FORWARD, False),
    ((MOVED, STILL), SidecarClass.ROLL_BACK, False),
    ((MOVED, pin(5, 8, preserves=False)), SidecarClass.ROLL_FORWARD, False),
    ((STILL, STILL), SidecarClass.ROLL_BACK, False),
    ((PUBLISHED, STILL), SidecarClass.STALE, False),
]


@pytest.mark.parametrize("newest", [2, 9])
@pytest.mark.parametrize(("pins", "expected", "recoverable"), OPTIMIZE_CASES)
def test_optimize(pins: tuple[PinState, ...], expected: SidecarClass, recoverable: bool, newest: int) -> None:
    verdict = classify(sidecar(pins=len(pins)), pins, newest_version=newest, branch_exists=True)
    assert (verdict.classification, verdict.recoverable) == (expected, recoverable)
    assert verdict.detail


@pytest.mark.parametrize("kind", ["Mutation", "Load", "BranchMerge", "EnsureIndices", "SchemaApply", "Novelty"])
@pytest.mark.parametrize("newest", [2, 9])
@pytest.mark.parametrize("state", [MOVED, STILL, PUBLISHED])
def test_other_writers_are_never_ours_to_finish(kind: str, newest: int, state: PinState) -> None:
    verdict = classify(sidecar(kind), (state,), newest_version=newest, branch_exists=True)
    assert not verdict.recoverable


def test_index_builds_are_judged_by_their_pins_on_stamp_3_only() -> None:
    old = classify(sidecar("EnsureIndices"), (MOVED,), newest_version=2, branch_exists=True)
    new = classify(sidecar("EnsureIndices"), (MOVED,), newest_version=9, branch_exists=True)
    assert (old.classification, new.classification) == (SidecarClass.ROLL_FORWARD, SidecarClass.NEEDS_REVIEW)


def test_a_branch_sidecar_is_left_to_the_engine() -> None:
    verdict = classify(sidecar(branch="b"), (MOVED,), newest_version=9, branch_exists=True)
    assert not verdict.recoverable


def test_a_sidecar_of_a_deleted_branch_is_an_orphan() -> None:
    verdict = classify(sidecar(branch="gone"), (), newest_version=9, branch_exists=False)
    assert (verdict.classification, verdict.recoverable) == (SidecarClass.ORPHANED_BRANCH, False)
    assert "'gone'" in verdict.detail


def test_a_sidecar_without_tables_is_nobodys_to_publish() -> None:
    verdict = classify(sidecar(pins=0), (), newest_version=9, branch_exists=True)
    assert not verdict.recoverable
