"""Reports and policies as one sentence: for the audit log, the history and the report of a night. Pure."""

from __future__ import annotations

from collections import Counter

from omnigraph_ops.models.cleanup import RetentionPolicy, RowRetentionReport, SnapshotExpiry
from omnigraph_ops.models.optimize import OptimizeReport
from omnigraph_ops.models.orphans import OrphansReport
from omnigraph_ops.models.repair import RepairReport
from omnigraph_ops.quantities import human_bytes


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


def repair_detail(report: RepairReport) -> str:
    """One sentence for the audit log. Pure."""
    counts = Counter(row.action.value for row in report.tables)
    done = ", ".join(f"{number} {action}" for action, number in sorted(counts.items()))
    version = report.manifest_version
    return f"{done}; {'nothing was published' if version is None else f'graph manifest version {version}'}"


def orphans_detail(report: OrphansReport) -> str:
    """One sentence for the audit log. Pure."""
    done = f"moved to quarantine {report.quarantine_id}" if report.quarantine_id else "deleted for good"
    return (
        f"{report.files_removed} files and {report.bytes_removed} bytes {done}, "
        f"{len(report.spared)} spared, {len(report.failed)} failed"
    )


def rows_detail(report: RowRetentionReport) -> str:
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
