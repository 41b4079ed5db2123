"""Backups for people, as views. Pure."""

from __future__ import annotations

from omnigraph_ops.models.backup import (
    BackupList,
    BackupReport,
    FileProblem,
    ListedBackup,
    RestoreReport,
    Tally,
    VerifyReport,
)
from omnigraph_ops.quantities import age, human_bytes
from omnigraph_ops.views.view import Section, View, filled


def backup_view(report: BackupReport) -> View:
    """What was copied, and where the backup is. Pure."""
    rate = human_bytes(int(report.copied.bytes / max(report.seconds, 0.001)))
    facts = [
        ("Backup", report.backup),
        ("Copied", f"{_tally(report.copied)} in {report.seconds:.1f} s ({rate}/s)"),
    ]
    if report.linked.files:
        facts.append(("Taken over", f"{_tally(report.linked)} from {report.incremental_from}"))
    if report.resumed:
        facts.append(("There already", f"{_tally(report.kept)}, from an attempt that did not end"))
    return View(title=f"backup {report.uri} — {_tally(report.total)}", facts=tuple(facts))


def verify_view(report: VerifyReport) -> View:
    """Sound, or what is not. Pure."""
    verdict = "sound" if not report.problems else f"{len(report.problems)} problems"
    facts = []
    if report.without_checksum:
        without = f"{report.without_checksum:,} files: the store copied them, sizes agree"
        facts.append(("Without a checksum", without))
    if report.compared_with_graph:
        facts.append(("Read in the graph as well", f"{report.compared_with_graph:,} files that are still there"))
    if report.not_recorded is not None:
        unknown = "`omnigraph-ops backups` and later backups do not know this outcome"
        facts.append(("Not recorded", f"{report.not_recorded}; {unknown}"))
    return View(
        title=f"verify {report.backup} — {verdict}, {_tally(report.total)}",
        facts=tuple(facts),
        sections=_problems(report.problems),
    )


def restore_view(report: RestoreReport) -> View:
    """Where the graph is and whether it is the one that was backed up. Pure."""
    verdict = "as backed up" if not report.problems else f"{len(report.problems)} problems"
    recorded = ("Open it", "by this address alone, not through a link: its branches record it")
    return View(
        title=f"restore {report.uri} — {verdict}",
        facts=(
            ("Written", f"{_tally(report.total)} in {report.seconds:.1f} s, {report.relocated} with the new root"),
            (
                "Holds",
                f"{report.tables} tables, {max(report.branches, 1)} branches, {report.rows:,} rows on all of them",
            ),
            *([recorded] if report.relocated else []),
        ),
        sections=_problems(report.problems),
    )


def backups_view(listed: BackupList) -> View:
    """The backups of a place. Pure."""
    section = Section(
        title="Backups",
        header=("Backup", "State", "Age", "Size", "Taken after", "Graph", "Problem"),
        rows=tuple(map(_cells, listed.backups)),
    )
    return View(title=f"backups {listed.destination} — {len(listed.backups)}", sections=filled([section]))


def _cells(backup: ListedBackup) -> tuple[str, ...]:
    return (
        backup.backup_id,
        backup.state,
        "" if backup.age_seconds is None else age(backup.age_seconds),
        "" if backup.total is None else _tally(backup.total),
        backup.incremental_from or "",
        backup.uri or "",
        backup.detail,
    )


def _problems(problems: tuple[FileProblem, ...]) -> tuple[Section, ...]:
    rows = tuple((p.file, p.reason) for p in problems)
    return filled([Section(title="Problems", header=("File", "What is wrong"), rows=rows)])


def _tally(tally: Tally) -> str:
    return f"{tally.files:,} files, {human_bytes(tally.bytes)}"
