"""Backups for people. Pure."""

from __future__ import annotations

from omnigraph_ops.models.backup import (
    BackupList,
    BackupReport,
    BackupState,
    FileProblem,
    ListedBackup,
    RestoreReport,
    Tally,
    VerifyReport,
)
from omnigraph_ops.sizes import human_bytes
from omnigraph_ops.views.freeze_text import age_text


def backup_text(report: BackupReport) -> str:
    """What was copied, and where the backup is. Pure."""
    rate = human_bytes(int(report.copied.bytes / max(report.seconds, 0.001)))
    lines = [
        f"backup {report.uri} — {_tally(report.total)}",
        f"  {report.backup}",
        f"  copied {_tally(report.copied)} in {report.seconds:.1f} s ({rate}/s)",
    ]
    if report.linked.files:
        lines.append(f"  taken from {report.incremental_from}: {_tally(report.linked)}")
    if report.resumed:
        lines.append(f"  there already from an attempt that did not end: {_tally(report.kept)}")
    return "\n".join(lines)


def verify_text(report: VerifyReport) -> str:
    """Sound, or what is not. Pure."""
    verdict = "sound" if not report.problems else f"{len(report.problems)} problems"
    lines = [f"verify {report.backup} — {verdict}, {_tally(report.total)}", *_problems(report.problems)]
    if report.without_checksum:
        lines.append(f"  {report.without_checksum:,} files have no checksum: the store copied them, sizes agree")
    if report.compared_with_graph:
        lines.append(f"  {report.compared_with_graph:,} of the files are still in the graph and were read there, too")
    return "\n".join(lines)


def restore_text(report: RestoreReport) -> str:
    """Where the graph is and whether it is the one that was backed up. Pure."""
    verdict = "as backed up" if not report.problems else f"{len(report.problems)} problems"
    return "\n".join(
        [
            f"restore {report.uri} — {verdict}",
            f"  {_tally(report.total)} in {report.seconds:.1f} s, {report.relocated} with the new root",
            f"  {report.tables} tables, {max(report.branches, 1)} branches, {report.rows:,} rows on all of them",
            *_problems(report.problems),
        ]
    )


def backups_text(listed: BackupList) -> str:
    """A line per backup. Pure."""
    lines = [f"backups {listed.destination} — {len(listed.backups)}"]
    return "\n".join([*lines, *(_line(b) for b in listed.backups)])


def _line(backup: ListedBackup) -> str:
    age = f"  {age_text(backup.age_seconds)} old" if backup.age_seconds is not None else ""
    size = f"  {_tally(backup.total)}" if backup.total is not None else ""
    base = f"  after {backup.incremental_from}" if backup.incremental_from else ""
    of = f"  of {backup.uri}" if backup.uri else ""
    why = f"  {backup.detail}" if backup.state is BackupState.DAMAGED else ""
    return f"  {backup.backup_id}  {backup.state}{age}{size}{base}{of}{why}"


def _problems(problems: tuple[FileProblem, ...]) -> list[str]:
    return [f"  {p.file}: {p.reason}" for p in problems]


def _tally(tally: Tally) -> str:
    return f"{tally.files:,} files, {human_bytes(tally.bytes)}"
