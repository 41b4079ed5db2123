"""What counts as an approval, and what a standing approval covers."""

from __future__ import annotations

import pytest
from omnigraph_airflow import decisions
from omnigraph_airflow.decisions import Bounds, Decision

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.cleanup import CleanupPlan, RetentionPolicy, TableCleanupPlan
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.models.repair import Classification, RepairAction, RepairPreview, RepairRow
from omnigraph_ops.stages.registry import planned

DIGEST = "sha256:1"
CLEANUP, REPAIR = planned("cleanup"), planned("repair")


def decision(*options: str, digest: str = DIGEST, timed_out: bool = False) -> Decision:
    return Decision(chosen_options=options, digest=digest, decided_by="ada", timed_out=timed_out)


def preview(*classifications: Classification) -> RepairPreview:
    rows = tuple(
        RepairRow(
            table_key=f"node:T{number}",
            manifest_version=1,
            lance_head_version=2,
            classification=classification,
            action=RepairAction.PREVIEW,
        )
        for number, classification in enumerate(classifications)
    )
    return RepairPreview(uri="/g", stamp=6, planned_at_us=0, expires_at_us=1, rows=rows, digest=DIGEST)


def plan(versions: int, size: int) -> CleanupPlan:
    table = TableCleanupPlan(
        table_key="node:A",
        table_path="nodes/a",
        pinned_version=99,
        lance_head_version=99,
        versions=tuple(range(1, versions + 1)),
        estimated_bytes=size,
    )
    return CleanupPlan(
        uri="/g",
        stamp=6,
        policy=RetentionPolicy(keep_versions=1),
        planned_at_us=0,
        expires_at_us=1,
        tables=(table,),
        orphaned_forks=(),
        digest=DIGEST,
    )


def orphans() -> OrphansPlan:
    return OrphansPlan(
        uri="/g",
        stamp=6,
        older_than_secs=0,
        quarantine=False,
        planned_at_us=0,
        expires_at_us=1,
        cutoff=0,
        files=(),
        folders=("nodes/a/_deletions",),
        groups=(),
        unknown=(),
        skipped=(),
    )


def test_one_approve_of_this_digest_is_an_approval() -> None:
    assert decisions.refusal(decision("Approve"), DIGEST) is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "keeps no answer to its question; nothing was done; trigger a new run"),
        (decision("Reject"), "answered Reject"),
        (decision(), "answered nothing"),
        (decision("Approve", "Reject"), "answered Approve, Reject"),
        (decision("approve"), "answered approve"),
        (decision("Approve", timed_out=True), "counts as Reject"),
        (decision("Approve", digest="sha256:2"), "approved another plan"),
        (decision("Approve", digest=""), "approved another plan"),
    ],
)
def test_everything_else_is_a_refusal(answer: Decision | None, words: str) -> None:
    why = decisions.refusal(answer, DIGEST)
    assert why is not None
    assert words in why


@pytest.mark.parametrize("empty", [None, {}])
def test_an_empty_standing_approval_is_none(empty: dict[str, int] | None) -> None:
    assert decisions.bounds_of(empty) is None


@pytest.mark.parametrize(
    "value",
    [
        {"max_versions": 5},
        {"max_bytes": 5},
        {"max_versions": -1, "max_bytes": 5},
        {"max_versions": "many", "max_bytes": 5},
        {"max_versions": 5, "max_bytes": 5, "max_tables": 1},
    ],
)
def test_half_or_strange_bounds_are_an_error(value: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        decisions.bounds_of(value)


def test_a_whole_number_may_be_written_as_json_writes_any() -> None:
    assert decisions.bounds_of({"max_versions": 5.0, "max_bytes": 1e12}) == Bounds(max_versions=5, max_bytes=10**12)
    with pytest.raises(InvalidInput):
        decisions.bounds_of({"max_versions": 5.5, "max_bytes": 1})


@pytest.mark.parametrize(("versions", "size", "inside"), [(3, 100, True), (4, 100, False), (3, 101, False)])
def test_a_standing_approval_covers_its_bounds_only(versions: int, size: int, inside: bool) -> None:
    bounds = {"max_versions": 3, "max_bytes": 100}
    by = decisions.in_advance(CLEANUP, plan(versions, size), confirmed=False, standing=bounds)
    assert (by == "the standing approval") is inside
    assert (decisions.outside(CLEANUP, plan(versions, size), Bounds(**bounds)) is None) is inside


def test_without_bounds_nothing_is_approved_in_advance() -> None:
    assert decisions.in_advance(CLEANUP, plan(1, 1), confirmed=False) is None
    assert decisions.in_advance(CLEANUP, plan(1, 1), confirmed=True) is None


def test_confirm_is_bounded_too() -> None:
    shown = {"count": "1000", "size": "1KiB"}
    assert decisions.in_advance(CLEANUP, plan(1000, 1024), confirmed=True, within=shown) is not None
    assert decisions.in_advance(CLEANUP, plan(1001, 1), confirmed=True, within=shown) is None
    assert decisions.in_advance(CLEANUP, plan(1, 1025), confirmed=True, within=shown) is None
    assert decisions.in_advance(CLEANUP, plan(1, 1), confirmed=False, within=shown) is None


def test_confirm_repair_covers_verified_maintenance_only() -> None:
    verified, suspicious = Classification.VERIFIED_MAINTENANCE, Classification.SUSPICIOUS
    assert decisions.in_advance(REPAIR, preview(verified), confirmed=True) is not None
    assert decisions.in_advance(REPAIR, preview(verified), confirmed=False) is None
    assert decisions.in_advance(REPAIR, preview(verified, suspicious), confirmed=True) is None
    assert decisions.in_advance(REPAIR, preview(verified, suspicious), confirmed=False, standing=True) is None


def test_no_confirmation_covers_what_has_neither_bounds_nor_a_routine() -> None:
    stage = planned("expire-rows")
    said = {"within": {"count": 10, "size": "1GiB"}, "standing": True}
    assert decisions.in_advance(stage, object(), confirmed=True, **said) is None


@pytest.mark.parametrize(("by", "name"), [("ada", "ada"), (None, "the person who triggered the run")])
def test_what_was_confirmed_is_recorded_with_who_confirmed_it(by: str | None, name: str) -> None:
    said = f"{name}, by the confirm param of the run"
    drift = preview(Classification.VERIFIED_MAINTENANCE)
    within = {"count": 3, "size": "100B"}
    assert decisions.in_advance(CLEANUP, plan(1, 1), confirmed=True, within=within, by=by) == said
    assert decisions.in_advance(REPAIR, drift, confirmed=True, by=by) == said
    assert decisions.in_advance(planned("orphans"), orphans(), confirmed=True, within=within, by=by) == said


def test_bounds_in_a_run_that_somebody_started_are_recorded_with_their_name() -> None:
    bounds = {"max_versions": 3, "max_bytes": 100}
    by = decisions.in_advance(CLEANUP, plan(1, 1), confirmed=False, standing=bounds, by="ada")
    assert by == "the standing approval, in a run that ada started"


def test_a_standing_repair_is_not_for_runs_that_somebody_starts() -> None:
    drift = preview(Classification.VERIFIED_MAINTENANCE)
    assert decisions.in_advance(REPAIR, drift, confirmed=False, standing=True, by="ada") is None
    assert decisions.in_advance(REPAIR, drift, confirmed=False, standing=True) == "the standing approval"
