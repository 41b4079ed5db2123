"""Plans and reports as text for a terminal: the engine's lines, ours beside them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from omnigraph_ops.models import (
    CheckReport,
    CleanupPlan,
    CleanupReport,
    OptimizeDecision,
    OptimizePlan,
    OptimizeReport,
    OrphansReport,
    PendingIndex,
    RecoverReport,
    RepairAction,
    RepairReport,
    RepairRow,
    RetentionPolicy,
    SkipReason,
    SnapshotExpiry,
    TableCleanupPlan,
    TableStats,
)
from omnigraph_ops.models.retention import RowRetentionReport
from omnigraph_ops.sizes import human_bytes
from omnigraph_ops.views.evidence_text import left_alone
from omnigraph_ops.views.markdown import ranges
from omnigraph_ops.views.render_evidence import evidence_lines

_MOST_LINES = 200
_SKIP_TEXT = {
    SkipReason.BLOBS: "blob columns — Lance compaction unsupported",
    SkipReason.DRIFT: "manifest/head drift — see omnigraph-ops check",
    SkipReason.NOT_EXCLUSIVE: "others may publish — needs OMNIGRAPH_OPS_EXCLUSIVE or --exclusive",
    SkipReason.DEFERRED_BUDGET: "no room in this run's budget — planned again next time",
    SkipReason.BELOW_THRESHOLDS: "below the thresholds of --auto",
    SkipReason.AUTO_OFF: "automatic optimisation is off",
    SkipReason.INTERRUPTED: "the run was stopped first — planned again next time",
    SkipReason.FROZEN: "frozen — omnigraph-ops holds says by whom",
}


def check_text(report: CheckReport) -> str:
    """What `check` found, one line per finding, then what to do. Pure."""
    what = f"stamp {report.stamp}" if report.stamp else "plain Lance"
    lines = [f"check {report.uri} — {what}, {report.status.value}"]
    for s in report.sidecars:
        who = ", ".join(s.table_keys) or "?"
        lines.append(f"  {s.path}  {s.writer_kind} {who}: {s.classification.value} — {s.detail}")
    lines += [f"  {name}  schema staging file" for name in report.staging_files]
    if report.schema_apply_lock:
        lines.append("  __schema_apply_lock__  writers are kept away")
    for d in report.drift:
        state = "covered by a sidecar" if d.covered else "uncovered"
        lines.append(f"  {d.table_key:<40} {d.manifest_version} → {d.lance_head_version} drift, {state}")
    lines += [f"  next: {advice}" for advice in report.advice]
    return "\n".join(lines)


def recover_text(report: RecoverReport) -> str:
    """What `recover` did with each sidecar. Pure."""
    lines = [f"recover {report.uri} — {len(report.outcomes)} sidecars, now {report.status.value}"]
    for o in report.outcomes:
        moved = f" {o.from_version} → {o.to_version}" if o.to_version is not None else ""
        lines.append(f"  {o.table_key:<40} {o.action}{moved} ({o.operation_id}) {o.detail}".rstrip())
    return "\n".join(lines)


def plan_text(plan: OptimizePlan) -> str:
    """The optimize plan as a table. Pure."""
    waiting = f", {len(plan.deferred)} deferred" if plan.deferred else ""
    lines = [f"plan {plan.uri} — {len(plan.tables)} tables, {len(plan.productive())} to optimize{waiting}"]
    for t in plan.tables:
        if t.decision is OptimizeDecision.OPTIMIZE:
            frags = f"frags {t.fragments} → {t.fragments_after}"
            detail = f"{frags}, about {human_bytes(t.cost_bytes)}, {t.executor.value}: {t.reason}"
        elif t.decision is OptimizeDecision.FAILED:
            detail = t.error or t.reason
        else:
            idle = "no-op" + t.reason.removeprefix("nothing to do")
            detail = t.reason if t.decision in {OptimizeDecision.SKIPPED, OptimizeDecision.DEFERRED} else idle
        lines.append(f"  {t.table_key:<40} {t.decision.value:<9} {detail}")
        lines += _pending_lines(t.pending_indexes)
    return "\n".join(lines)


def optimize_text(report: OptimizeReport) -> str:
    """The engine's optimize lines, failures added. Pure."""
    lines = [f"optimize {report.uri} — {len(report.tables)} tables"]
    for table in report.tables:
        lines.append(f"  {table.table_key:<40} {_optimize_cell(table)}")
        lines += _pending_lines(table.pending_indexes)
    lines += [amplification_text(report)] if report.bytes_rewritten else []
    return "\n".join(lines)


def amplification_text(report: OptimizeReport) -> str:
    """What the run wrote against what was loaded since the run before, in one sentence. Pure."""
    told = [t for t in report.tables if t.bytes_ingested is not None]
    unknown = sum(t.committed and t.bytes_ingested is None for t in report.tables)
    planned = human_bytes(report.bytes_planned)
    text = f"rewrote {human_bytes(report.bytes_rewritten)} (data and indexes, planned {planned})"
    if told and report.bytes_ingested is not None:
        text += f"; {human_bytes(report.bytes_ingested)} were loaded since the last run"
    if report.write_amplification is not None:
        text += f", write amplification {report.write_amplification:g}"
    return text + (f"; unknown for {unknown} table(s)" if unknown else "")


def repair_text(report: RepairReport, *, narrowed_to: tuple[str, ...] = ()) -> str:
    """The engine's repair lines, the evidence indented below them. Pure."""
    mode = "confirm" if report.confirm else "preview"
    lines = [f"repair {report.uri} — {mode} mode, {len(report.tables)} tables"]
    if narrowed_to:
        lines.append(f"  only the named tables were looked at: {', '.join(narrowed_to)}")
    for row in report.tables:
        lines.append(_repair_line(row))
        # Of a confirmed repair only what was refused is left to review.
        if row.evidence and row.action in {RepairAction.PREVIEW, RepairAction.REFUSED}:
            lines += [f"    {line}" for line in evidence_lines(row.evidence)]
    if not report.confirm:
        lines += [f"if not published: {sentence}" for sentence in left_alone(report.tables)]
        lines.append("rerun with --confirm to publish verified maintenance drift")
    return "\n".join(lines)


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


def cleanup_plan_text(plan: CleanupPlan) -> str:
    """The cleanup plan: what goes, what holds the rest, and the digest to approve. Pure."""
    lines = [
        f"cleanup plan {plan.uri} ({policy_text(plan.policy)}) — {plan.total_versions} versions, "
        f"{plan.total_files} files, {human_bytes(plan.total_bytes)} across {len(plan.tables)} tables"
    ]
    for t in plan.tables:
        lines.append(f"  {t.table_key:<40} {_cleanup_cell(t)}")
        if t.blocked_by:
            lines.append(f"    ↳ stops at {t.blocked_by}")
    lines += _first([f"{f.table_key:<40} orphaned fork {f.branch} ({len(f.files)} files)" for f in plan.orphaned_forks])
    lines += _first([f"{f.table_key:<40} keep orphaned fork {f.branch}: {f.error}" for f in plan.kept_forks])
    lines.append(f"digest {plan.digest}")
    return "\n".join(lines)


def _first(found: Sequence[str]) -> list[str]:
    """The first of these, each a line of a plan; `--json` has all. Pure."""
    more = [f"  and {len(found) - _MOST_LINES:,} more, see --json"] if len(found) > _MOST_LINES else []
    return [*(f"  {text}" for text in found[:_MOST_LINES]), *more]


def cleanup_text(report: CleanupReport) -> str:
    """The engine's cleanup lines, errors named. Pure."""
    done = [t for t in report.tables if t.error is None]
    lines = [
        f"cleanup {report.uri} ({policy_text(report.policy)}) — removed {sum(t.old_versions_removed for t in done)} "
        f"versions ({sum(t.bytes_removed for t in done)} bytes) across {len(done)} tables"
    ]
    lines += [f"  reclaimed orphaned fork {f.branch} of {f.table_key}" for f in report.orphaned_forks_removed]
    lines += [f"  could not reclaim {f.branch} of {f.table_key}: {f.error}" for f in report.orphaned_forks_failed]
    if report.failed:
        keys = ", ".join(t.table_key for t in report.failed)
        lines.append(f"  {len(report.failed)} table(s) failed and will be retried on the next cleanup: {keys}")
        lines += [f"    {t.table_key}: {t.error}" for t in report.failed]
    return "\n".join(lines)


def policy_text(policy: RetentionPolicy) -> str:
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


def _pending_lines(pending: Iterable[PendingIndex]) -> Iterator[str]:
    for index in pending:
        yield f"    ↳ index pending on '{index.column}': {index.reason}"


def _optimize_cell(table: TableStats) -> str:
    if table.error is not None:
        return f"failed: {table.error}"
    if table.skipped is not None:
        return f"skipped ({_SKIP_TEXT[table.skipped]})"
    if table.committed:
        wrote = f", wrote {human_bytes(table.bytes_rewritten)}" if table.bytes_rewritten else ""
        times = f" ({table.write_amplification:g}x)" if table.write_amplification is not None else ""
        waits = ", rewrite waits for the next budget" if table.rewrite_deferred else ""
        return f"frags {table.fragments_removed} → {table.fragments_added} ✓{wrote}{times}{waits}"
    return "no-op"


def _repair_line(row: RepairRow) -> str:
    drift = str(row.manifest_version)
    if row.lance_head_version != row.manifest_version:
        drift += f" → {row.lance_head_version}"
    operations = f" [{', '.join(row.operations)}]" if row.operations else ""
    error = f" ({row.error})" if row.error else ""
    head = f"  {row.table_key:<40} {row.action.value:<12} {row.classification.value:<22}"
    return f"{head} {drift}{operations}{error}"


def _cleanup_cell(table: TableCleanupPlan) -> str:
    if table.refused is not None:
        return f"refused: {table.refused}"
    if not table.versions:
        return "nothing to remove"
    removed = f"{len(table.versions)} versions, {len(table.files)} files, {human_bytes(table.estimated_bytes)}"
    return f"remove {ranges(table.versions)} ({removed})"
