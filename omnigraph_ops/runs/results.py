"""From the units of a run to what the history and the audit log say of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph_ops import render
from omnigraph_ops.audit_log import AuditEvent
from omnigraph_ops.history.results import RunResults
from omnigraph_ops.models import (
    CheckStatus,
    OptimizeReport,
    OrphansReport,
    QuarantineReport,
    RecoverReport,
)
from omnigraph_ops.models.retention import RowRetentionReport
from omnigraph_ops.models.runs import Unit, UnitRecord, UnitResult

_PURGED, _RESTORED = "purged", "restored"


def with_units(results: RunResults, uri: str, records: Sequence[UnitRecord]) -> RunResults:
    """The results with what the units did, for every stage that did not get to its report. Pure."""
    did = [(record.unit, record.result or UnitResult()) for record in records]
    stages = {unit.stage for unit, _ in did}
    optimized = [r.optimized for _, r in did if r.optimized]
    recovered = tuple(r.recovered for _, r in did if r.recovered)
    recovery = RecoverReport(uri=uri, outcomes=recovered, status=CheckStatus.PENDING)
    rows = RowRetentionReport(uri=uri, branch=None, digest="", tables=tuple(r.expired for _, r in did if r.expired))
    optimize = OptimizeReport.of(uri, optimized) if "optimize" in stages else None
    return replace(
        results,
        optimize=results.optimize or optimize,
        cleanup=results.cleanup or tuple(r.cleaned for _, r in did if r.cleaned),
        forks=results.forks or tuple(r.fork for _, r in did if r.fork),
        repair=results.repair or next((r.repaired for _, r in did if r.repaired), None),
        recovery=results.recovery or (recovery if recovered else None),
        row_retention=results.row_retention or (rows if rows.tables else None),
        orphans=results.orphans or _orphans(uri, [d for d in did if d[0].stage == "orphans"]),
        backup_left=results.backup_left or next((r.backed_up for _, r in did if r.backed_up), None),
        quarantine=results.quarantine or _quarantine(uri, [d for d in did if d[0].stage == "quarantine"]),
    )


def wants_audit(results: RunResults) -> bool:
    """Whether the audit log says something of a run although nothing of it began: what failed or was refused. Pure."""
    orphans, quarantine, rows = results.orphans, results.quarantine, results.row_retention
    return bool(
        any(s.error for s in results.cleanup)
        or any(f.error for f in results.forks)
        or (orphans is not None and orphans.failed)
        or (quarantine is not None and quarantine.action != "preview")
        or (rows is not None and rows.failed)
        or (results.repair is not None and results.decisions)
    )


def audit_end(results: RunResults, *, error: str | None, interrupted: bool) -> tuple[AuditEvent, str]:
    """How the audit log ends a run, and its detail. Pure."""
    event, detail = AuditEvent.APPLIED, ""
    if results.cleanup or results.forks:
        detail = _cleanup(results)
    elif results.orphans is not None:
        detail = render.orphans_detail(results.orphans)
    elif results.quarantine is not None:
        done = results.quarantine
        event = AuditEvent.FAILED if done.failed else event
        detail = f"quarantine {done.quarantine_id} {done.action}: {done.files} files, {len(done.failed)} failed"
    elif results.row_retention is not None:
        event = AuditEvent.FAILED if results.row_retention.failed else event
        detail = render.rows_detail(results.row_retention)
    elif results.repair is not None:
        event = AuditEvent.FAILED if results.repair.manifest_version is None else event
        detail = render.repair_detail(results.repair)
    elif error is not None:
        detail = "nothing was removed or published"
    if interrupted:
        event = AuditEvent.INTERRUPTED
    elif error is not None:
        event = AuditEvent.FAILED
    return event, "; ".join(part for part in (error, detail) if part)


def _cleanup(results: RunResults) -> str:
    removed = sum(s.old_versions_removed for s in results.cleanup)
    failed = sum(s.error is not None for s in results.cleanup) + sum(f.error is not None for f in results.forks)
    forks = sum(f.error is None for f in results.forks)
    done = f"{removed} versions and {forks} forks removed, {failed} failed"
    plan = results.cleanup_plan
    return done if plan is None else f"{done}; {render.policy_text(plan.policy)}"


def _orphans(uri: str, did: Sequence[tuple[Unit, UnitResult]]) -> OrphansReport | None:
    if not did:
        return None
    files, size = _sum(did)
    return OrphansReport(
        uri=uri,
        digest=did[0][0].digest,
        quarantine_id=did[0][0].quarantine_id or None,
        files_removed=files,
        bytes_removed=size,
        folders_removed=0,
        already_gone=0,
        spared=(),
        failed=(),
    )


def _quarantine(uri: str, did: Sequence[tuple[Unit, UnitResult]]) -> QuarantineReport | None:
    if not did:
        return None
    files, size = _sum(did)
    first = did[0][0]
    action = _PURGED if first.name.startswith(_PURGED) else _RESTORED
    return QuarantineReport(
        uri=uri, quarantine_id=first.quarantine_id, digest=first.digest, action=action, files=files, bytes=size
    )


def _sum(did: Sequence[tuple[Unit, UnitResult]]) -> tuple[int, int]:
    done = [result.files for _, result in did if result.files is not None]
    return sum(d.files for d in done), sum(d.bytes for d in done)
