"""The audit log keeps who decided what, in order, and never hides an error."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from omnigraph_ops import audit_log
from omnigraph_ops.audit_log import AuditEvent
from omnigraph_ops.edges.storage import Storage
from omnigraph_ops.errors import OutcomeUnknown, StalePlan, StorageError


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    made = [
        audit_log.append(storage, event, verb="cleanup", actor="ann", digest="sha256:1", detail="why", run="r1")
        for event in (AuditEvent.APPROVED, AuditEvent.APPLIED)
    ]
    storage.write(f"{audit_log.AUDIT_DIR}/00000000000000000000000000.json", b"damaged")
    assert set(audit_log.read(storage)) == set(made)
    assert len(audit_log.read(storage, newest=1)) == 1


def test_the_newest_so_many(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    made = []
    for actor in "abc":
        made.append(audit_log.append(storage, AuditEvent.APPLIED, verb="repair", actor=actor, digest="sha256:1"))
        time.sleep(0.002)  # ULIDs of one millisecond have no order
    assert audit_log.read(storage, newest=2) == tuple(made[1:])
    assert audit_log.read(storage, newest=0) == ()
    text = audit_log.text(audit_log.AuditLog(uri="/g", entries=tuple(made)))
    assert text.splitlines()[0] == "audit /g — 3 entries"
    assert "repair   applied    c: " in text.splitlines()[3]


def test_a_failure_is_logged_and_goes_on(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    logged = audit_log.failures_logged(storage, verb="cleanup", actor="ann", digest="sha256:1")
    with pytest.raises(OutcomeUnknown), logged:
        raise OutcomeUnknown("who knows")
    (entry,) = audit_log.read(storage)
    assert (entry.event, entry.detail) == (AuditEvent.FAILED, "who knows")


def test_what_was_refused_before_anything_happened_leaves_no_entry(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with (
        pytest.raises(StalePlan),
        audit_log.failures_logged(storage, verb="cleanup", actor="ann", digest="sha256:1"),
    ):
        raise StalePlan("it moved")
    assert audit_log.read(storage) == ()


def test_a_log_that_cannot_be_written_hides_nothing(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    logged = audit_log.failures_logged(storage, verb="cleanup", actor="ann", digest="sha256:1")
    with pytest.raises(StorageError, match="the first problem"), logged:
        raise StorageError("the first problem")
