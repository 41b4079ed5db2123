"""The audit log keeps who decided what, in order, and never hides an error."""

from __future__ import annotations

import time
from pathlib import Path

from omnigraph_ops import audit_log
from omnigraph_ops.audit_log import AuditEvent
from omnigraph_ops.edges.storage import Storage


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
