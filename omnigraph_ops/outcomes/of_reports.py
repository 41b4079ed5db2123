"""What came of a stage, from its report: what history, audit log and metrics record of it, in which sentence. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from omnigraph_ops.models.backup import BackupLeft, BackupReport
from omnigraph_ops.models.cleanup import CleanupStats, OrphanedFork, RetentionPolicy, RowRetentionReport, SnapshotExpiry
from omnigraph_ops.models.health import RecoverReport, RecoveryOutcome
from omnigraph_ops.models.history import Work
from omnigraph_ops.models.optimize import OptimizeReport, TableStats
from omnigraph_ops.models.orphans import OrphansReport, QuarantineReport, SparedFile
from omnigraph_ops.models.repair import RepairAction, RepairReport, RepairRow
from omnigraph_ops.models.runs import Outcome, TableOutcome
from omnigraph_ops.quantities import human_bytes

_PUBLISHED = frozenset({RepairAction.HEALED, RepairAction.FORCED})
_RECOVERED = frozenset({"rolled_forward", "rolled_back", "stale", "fence_lifted"})


def of_recovery(report: RecoverReport) -> Outcome:
    """What came of a recovery: no approval, so nothing for the audit log. Pure."""
    return Outcome(
        stage="recover",
        detail="",
        changed=any(done.action in _RECOVERED for done in report.outcomes),
        tables=tuple(_recovered(report.outcomes)),
    )


def _recovered(sidecars: Iterable[RecoveryOutcome]) -> Iterable[TableOutcome]:
    """One row for each table, which may have had several sidecars. Pure."""
    found: dict[str, list[RecoveryOutcome]] = {}
    for sidecar in sidecars:
        if sidecar.table_key:
            found.setdefault(sidecar.table_key, []).append(sidecar)
    for key, done in found.items():
        waiting = [o.detail or o.action for o in done if o.action not in _RECOVERED]
        yield TableOutcome(
            table_key=key, changed=len(waiting) < len(done), reason=next((reason for reason in waiting if reason), "")
        )


def of_optimize(report: OptimizeReport) -> Outcome:
    """What came of an optimize: no approval, so nothing for the audit log. Pure."""
    return Outcome(
        stage="optimize",
        detail="",
        changed=any(stats.committed for stats in report.tables),
        tables=tuple(
            TableOutcome(
                table_key=stats.table_key, work=_optimized(stats), changed=stats.committed, error=stats.error or None
            )
            for stats in report.tables
        ),
    )


def _optimized(stats: TableStats) -> Work:
    return Work(
        fragments_removed=stats.fragments_removed,
        fragments_added=stats.fragments_added,
        bytes_rewritten=stats.bytes_rewritten,
        bytes_ingested=stats.bytes_ingested,
        write_amplification=stats.write_amplification,
        preempted=stats.preempted,
    )


def of_repair(report: RepairReport) -> Outcome:
    """What came of a repair. Pure."""
    return Outcome(
        stage="repair",
        detail=_repair_detail(report),
        applied=report.manifest_version is not None,
        changed=any(row.action in _PUBLISHED for row in report.tables),
        problem="; ".join(_refusals(report)),
        tables=tuple(
            TableOutcome(table_key=row.table_key, changed=row.action in _PUBLISHED, error=_refusal(row))
            for row in report.tables
        ),
    )


def _refusals(report: RepairReport) -> Iterator[str]:
    """What was refused, and what a person can do about it. Pure."""
    lost = [row.table_key for row in report.refused if not row.publishable]
    if others := len(report.refused) - len(lost):
        yield (
            f"repair refused {others} suspicious or unverifiable table(s), they are as they were; review the preview "
            "and run again with --force --confirm only if publishing that drift is intended"
        )
    if lost:
        yield (
            f"no repair helps {', '.join(lost)}: the newest version cannot be read and is not published, whoever "
            "asks; restore the graph from a backup"
        )


def _refusal(row: RepairRow) -> str | None:
    if row.action is not RepairAction.REFUSED:
        return None
    return row.error or f"repair refused {row.classification.value} drift"


def of_cleanup(
    tables: Iterable[CleanupStats], forks: Iterable[OrphanedFork], policy: RetentionPolicy | None = None
) -> Outcome:
    """What came of a cleanup: its tables, and its forks, those with an error still there. Pure."""
    stats, tried = tuple(tables), tuple(forks)
    stuck = sum(fork.error is not None for fork in tried)
    failed = sum(s.error is not None for s in stats)
    removed = sum(s.old_versions_removed for s in stats)
    done = f"{removed} versions and {len(tried) - stuck} forks removed, {failed + stuck} failed"
    gone, spared = sum(s.already_gone for s in stats), sum(len(s.skipped_since_protected) for s in stats)
    # What was approved of a table that failed is not in its row.
    of = "" if failed else f" of the {removed + gone + spared}"
    done += f"; {gone}{of} approved versions were already gone" if gone else ""
    done += f"; {spared}{of} approved versions stay, because they are protected since" if spared else ""
    problem = ""
    if stuck:
        problem = f"{stuck} orphaned fork(s) could not be removed, no live branch is affected; run cleanup again"
    elif failed:
        problem = (
            f"cleanup failed for {failed} of {len(stats)} table(s), nothing else is affected; resolve what their "
            "rows say and run cleanup again"
        )
    return Outcome(
        stage="cleanup",
        detail=done if policy is None else f"{done}; {engine_policy(policy)}",
        changed=bool(removed or stuck < len(tried)),
        problem=problem,
        tables=_cleaned(stats, tried),
    )


def _cleaned(tables: Iterable[CleanupStats], forks: Iterable[OrphanedFork]) -> tuple[TableOutcome, ...]:
    """One row for each table, its forks included. Pure."""
    found: dict[str, list[TableOutcome]] = {}
    for stats in tables:
        row = TableOutcome(
            table_key=stats.table_key,
            work=Work(versions_removed=stats.old_versions_removed, bytes_reclaimed=stats.bytes_removed),
            changed=bool(stats.old_versions_removed),
            error=stats.error or None,
        )
        found.setdefault(stats.table_key, []).append(row)
    for fork in forks:
        gone = fork.error is None
        row = TableOutcome(
            table_key=fork.table_key,
            work=Work(bytes_reclaimed=sum(file.size for file in fork.files) if gone else 0),
            changed=gone,
            error=None if gone else f"fork {fork.branch}: {fork.error}",
        )
        found.setdefault(fork.table_key, []).append(row)
    return tuple(
        TableOutcome(
            table_key=key,
            work=Work.of(row.work for row in rows),
            changed=any(row.changed for row in rows),
            error=next((row.error for row in rows if row.error is not None), None),
        )
        for key, rows in found.items()
    )


def of_rows(report: RowRetentionReport) -> Outcome:
    """What came of a row expiry. Pure."""
    kept = [t for t in report.tables if t.error is not None or t.refused is not None]
    return Outcome(
        stage="expire-rows",
        detail=_rows_detail(report),
        applied=not report.failed,
        changed=bool(report.rows_removed),
        problem=f"expire-rows did not finish {len(kept)} of {len(report.tables)} table(s), first "
        f"{kept[0].table_key}: {kept[0].error or kept[0].refused}"
        if kept
        else "",
        tables=tuple(
            TableOutcome(
                table_key=t.table_key, changed=bool(t.rows_removed), error=t.error or None, reason=t.refused or ""
            )
            for t in report.tables
        ),
    )


def of_orphans(report: OrphansReport) -> Outcome:
    """What came of a removal of orphans. Pure."""
    return Outcome(
        stage="orphans",
        detail=_orphans_detail(report),
        applied=not report.failed,
        changed=bool(report.files_removed or report.folders_removed),
        problem=f"{len(report.failed)} file(s) could not be removed, nothing that is needed was touched; run "
        "orphans again"
        if report.failed
        else "",
        errors=_each(report.failed),
        work=Work(
            files_removed=report.files_removed,
            # Files that were only moved aside still cost their bytes.
            bytes_reclaimed=report.bytes_removed if report.quarantine_id is None else 0,
        ),
    )


def of_quarantine(report: QuarantineReport) -> Outcome:
    """What came of bringing a quarantine back, or of emptying it. Pure."""
    purged = report.action == "purged"
    failed = len(report.failed)
    return Outcome(
        stage="quarantine",
        detail=f"quarantine {report.quarantine_id} {report.action}: {report.files} files, {failed} failed",
        applied=not failed,
        changed=bool(report.files),
        problem=f"{failed} file(s) of the quarantine stay in it; see their reasons" if failed else "",
        errors=_each(report.failed),
        work=Work(files_removed=report.files, bytes_reclaimed=report.bytes) if purged else Work(),
    )


def _each(failed: Iterable[SparedFile]) -> tuple[str, ...]:
    return tuple(f"{file.path}: {file.reason}" for file in failed)


def of_backup(done: BackupReport | BackupLeft) -> Outcome:
    """What came of a backup, or what lies in the place of one whose run was cut off, or failed. Pure."""
    if isinstance(done, BackupReport):
        what = f"{done.total.files:,} files, {human_bytes(done.copied.bytes)} copied"
    else:
        state = "finished" if done.finished else "unfinished, the next backup to that place goes on with it"
        what = f"{state}; {done.total.files:,} files, {human_bytes(done.total.bytes)}"
    return Outcome(stage="backup", detail=f"backup {done.backup_id}: {what}, at {done.backup}", changed=True)


def amplification(report: OptimizeReport) -> str:
    """What the run wrote against what was loaded since the run before, in one sentence. Pure."""
    told = [t for t in report.tables if t.bytes_ingested is not None]
    unknown = sum(t.committed and t.bytes_ingested is None for t in report.tables)
    planned = human_bytes(report.bytes_planned)
    text = f"rewrote {human_bytes(report.bytes_rewritten)} (data and indexes, planned {planned})"
    if told and report.bytes_ingested is not None:
        text += f"; {human_bytes(report.bytes_ingested)} were loaded since the last run"
    if report.write_amplification is not None:
        text += f", write amplification {report.write_amplification:g}"
    return text + (f"; how much was loaded is not known for {unknown} table(s)" if unknown else "")


def _repair_detail(report: RepairReport) -> str:
    """One sentence for the audit log. Pure."""
    counts = Counter(row.action.value for row in report.tables)
    done = ", ".join(f"{number} {action}" for action, number in sorted(counts.items()))
    version = report.manifest_version
    return f"{done}; {'nothing was published' if version is None else f'graph manifest version {version}'}"


def _orphans_detail(report: OrphansReport) -> str:
    """One sentence for the audit log. Pure."""
    done = f"moved to quarantine {report.quarantine_id}" if report.quarantine_id else "deleted for good"
    return (
        f"{report.files_removed} files and {report.bytes_removed} bytes {done}, "
        f"{len(report.spared)} spared, {len(report.failed)} failed"
    )


def _rows_detail(report: RowRetentionReport) -> str:
    """One sentence for the audit log. Pure."""
    tables = ", ".join(f"{t.table_key} {t.rows_removed}" for t in report.tables if t.rows_removed)
    failed = f", {len(report.failed)} failed" if report.failed else ""
    return f"{report.rows_removed} rows and {report.edges_removed} edges deleted ({tables or 'none'}){failed}"


def engine_policy(policy: RetentionPolicy) -> str:
    """A retention policy in the engine's words. Pure."""
    parts = []
    if policy.keep_versions is not None:
        parts.append(f"keep {policy.keep_versions} versions")
    if policy.older_than_secs is not None:
        span = f"{policy.older_than_secs}s" if policy.older_than_secs else "0ns"
        parts.append(f"remove anything older than {span}")
    if policy.expiry is not None:
        parts.append(_expiry_text(policy.expiry))
    if policy.between_pins:
        parts.append("also between pins")
    return ", ".join(parts)


def _expiry_text(expiry: SnapshotExpiry) -> str:
    most = "" if expiry.retain_max is None else f" and at most {expiry.retain_max}"
    return (
        f"expire at most {expiry.expire_limit} versions per table, retain at least {expiry.retain_min}{most}, "
        f"time retained {expiry.time_retained_secs}s"
    )
