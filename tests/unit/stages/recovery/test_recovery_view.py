"""What a person reads of what check, recover and unlock found."""

from __future__ import annotations

import pytest

from omnigraph_ops.models.health import (
    CheckReport,
    CheckStatus,
    DriftFinding,
    RecoverReport,
    RecoveryOutcome,
    SidecarClass,
    SidecarFinding,
    UnlockReport,
)
from omnigraph_ops.stages.recovery.stage import Check, Recover, unlock_view


def test_check_lists_every_obstacle_and_what_to_do() -> None:
    finding = SidecarFinding(
        operation_id="01",
        path="__recovery/01.json",
        writer_kind="Load",
        branch=None,
        table_keys=(),
        started_at_us=None,
        classification=SidecarClass.NEEDS_REVIEW,
        recoverable=False,
        detail="a Load",
    )
    report = CheckReport(
        uri="/g",
        stamp=6,
        status=CheckStatus.NEEDS_PERSON,
        sidecars=(finding,),
        staging_files=("_schema.pg.staging",),
        schema_apply_lock=True,
        drift=(DriftFinding(table_key="node:A", manifest_version=1, lance_head_version=2, covered=False),),
        advice=("do this",),
    )
    view = Check().view(report)
    assert view.title == "check /g — stamp 6, needs_person"
    assert [section.rows or section.lines for section in view.sections] == [
        (("__recovery/01.json", "Load", "?", "needs_review", "a Load"),),
        (("_schema.pg.staging", "schema staging file"), ("__schema_apply_lock__", "writers are kept away")),
        (("node:A", "1 → 2", "drift, uncovered"),),
        ("do this",),
    ]


def test_recover_says_what_moved() -> None:
    outcome = RecoveryOutcome(
        operation_id="01", table_key="node:A", action="rolled_forward", from_version=1, to_version=3, detail="done"
    )
    view = Recover().view(RecoverReport(uri="/g", outcomes=(outcome,), status=CheckStatus.CLEAN))
    assert view.title == "recover /g — 1 finding, now clean"
    assert view.sections[0].rows == (("node:A", "rolled_forward", "1 → 3", "01", "done"),)


@pytest.mark.parametrize(
    ("confirm", "locked", "words"),
    [
        (True, True, "removed"),
        (False, True, "held; rerun with --confirm to remove it"),
        (True, False, "no schema-apply"),
    ],
)
def test_unlock_says_whether_the_lock_is_gone(confirm: bool, locked: bool, words: str) -> None:
    title = unlock_view(UnlockReport(uri="/g", confirm=confirm, locked=locked)).title
    assert title.startswith(f"unlock /g — {words}")
