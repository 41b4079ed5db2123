"""The audit log keeps who decided what, in order, and never hides an error."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path

import pytest

from omnigraph_ops.coordination.state import AUDIT_DIR
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.storage.location import StoreAccess
from omnigraph_ops.storage.store import Storage
from omnigraph_ops.views.view import plain_text

ABOUT = audit_log.Subject(verb="cleanup", actor="ann", digest="sha256:1", run="r1", task=None)


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    made = [
        audit_log.append(storage, event, detail="why", **ABOUT) for event in (AuditEvent.APPROVED, AuditEvent.APPLIED)
    ]
    storage.write(f"{AUDIT_DIR}/00000000000000000000000000.json", b"damaged")
    assert set(audit_log.log_of(storage, "").entries) == set(made)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    entry = audit_log.append(storage, AuditEvent.APPLIED, **ABOUT)
    damaged = f"{AUDIT_DIR}/00000000000000000000000000.json"
    storage.write(damaged, b"damaged")
    log = audit_log.log_of(storage, "/g")
    assert (log.entries, log.unreadable) == ((entry,), (damaged,))
    assert damaged in plain_text(audit_log.audit_view(log))
    assert audit_log.log_of(storage, "/g", newest=1).unreadable == ()


def test_an_account_without_a_name_is_told_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs with an arbitrary uid."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1_000_620_000)
    assert audit_log.shell_actor() == f"uid 1000620000@{socket.gethostname()}"


def test_a_disk_without_space_has_one_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError) as raised:
        audit_log.started(Storage(str(tmp_path)), **ABOUT)
    text = str(raised.value)
    assert text.startswith("the audit log could not be written, so nothing was removed or published; ")
    assert text.endswith("No space left on device; no row is lost; free space there, then run again")
    assert text.count("run again") == 1


def test_the_newest_so_many(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    made = []
    for actor in "abc":
        made.append(audit_log.append(storage, AuditEvent.APPLIED, **{**ABOUT, "verb": "repair", "actor": actor}))
        time.sleep(0.002)  # ULIDs of one millisecond have no order
    assert audit_log.log_of(storage, "/g", newest=2).entries == tuple(made[1:])
    assert audit_log.log_of(storage, "/g", newest=9).entries == tuple(made)
    lines = plain_text(audit_log.audit_view(audit_log.AuditLog(uri="/g", entries=tuple(made)))).splitlines()
    assert lines[0] == "audit /g — 3 entries"
    assert lines[-1].split()[-5:] == ["repair", "applied", "c", "r1", "sha256:1"]


def test_no_entry_has_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "canary-in-the-environment")
    access = StoreAccess(variables={"AWS_SECRET_ACCESS_KEY": "canary-of-a-connection"})
    text = 'refused: canary-in-the-environment, canary-of-a-connection, token="t0ken"'
    entry = audit_log.append(Storage(str(tmp_path), access), AuditEvent.FAILED, detail=text, **ABOUT)
    assert entry.detail == 'refused: ***, ***, token="***"'
    assert audit_log.log_of(Storage(str(tmp_path)), "/g").entries == (entry,)


def test_what_an_entry_says_cannot_move_a_cursor_or_begin_a_line(tmp_path: Path) -> None:
    about = {**ABOUT, "actor": "a\n\x1b[2J", "digest": "d", "run": ""}
    entry = audit_log.append(Storage(str(tmp_path)), AuditEvent.APPLIED, detail="\r\u202e", **about)
    shown = plain_text(audit_log.audit_view(audit_log.AuditLog(uri="/g", entries=(entry,))))
    assert len(shown.splitlines()) == 5
    assert shown.splitlines()[4].endswith(r"applied  a\n\x1b[2J  \r\u202e  d")


def test_the_start_of_an_apply_is_open_until_an_end_is_logged(tmp_path: Path) -> None:
    storage, since = Storage(str(tmp_path)), now_us()

    def is_open(run: str, task: str | None = None) -> bool:
        return audit_log.is_open(storage, run=run, task=task, since_us=since)

    assert not is_open("r1")
    entry = audit_log.started(storage, **ABOUT)
    assert (entry.event, is_open("r1")) == (AuditEvent.STARTED, True)
    assert not is_open("r2")
    assert not is_open("r1", "a task of it")
    audit_log.started(storage, **{**ABOUT, "task": "a task of it"})
    assert is_open("r1", "a task of it")
    audit_log.append(storage, AuditEvent.INTERRUPTED, **ABOUT)
    assert not is_open("r1")
    assert is_open("r1", "a task of it")
    audit_log.started(storage, **ABOUT)
    assert is_open("r1")


def test_a_start_is_found_although_the_clock_was_set_back_after_the_run_began(tmp_path: Path) -> None:
    storage, hours_us = Storage(str(tmp_path)), 23 * 3600 * 10**6
    audit_log.started(storage, **ABOUT)
    assert audit_log.is_open(storage, run="r1", task=None, since_us=now_us() + hours_us)


def test_a_start_that_cannot_be_logged_says_that_nothing_was_done(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match="so nothing was removed or published"):
        audit_log.started(storage, **ABOUT)
