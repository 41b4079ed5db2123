"""Backup as a stage, and its options; backups, what verify and restore did with them, and lists of them as views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from omnigraph_ops.config.terms import BackupOptions, Pace
from omnigraph_ops.models.backup import (
    BackupLeft,
    BackupList,
    BackupReport,
    FileProblem,
    ListedBackup,
    RestoreReport,
    Tally,
    VerifyReport,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes.results import Recorded
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import age, count, human_bytes
from omnigraph_ops.requests import Option, Request
from omnigraph_ops.stages.stage import Effect, FormField, RunStage, Submit, TaskIds
from omnigraph_ops.views.view import Section, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class PaceRequest(Request):
    """Verify or restore a backup."""

    max_bytes_per_second: Pace = None


class _Destination(Request):
    """Where a backup goes."""

    destination: Annotated[str, Option(metavar="DEST", argument=True)]
    """Path or `s3://` URI; the backup is a folder below it. Empty: the Airflow Variable `omnigraph_backups`."""
    incremental: Annotated[bool, Option(shell=False)] = False
    """Take unchanged files from the newest finished backup of the graph there."""


class BackupRequest(BackupOptions, _Destination):
    """Copy the graph, all branches at one cut."""


class Backup(RunStage[BackupRequest, BackupReport]):
    """Copies a graph to another place."""

    name = "backup"
    effect = Effect.WRITES
    summary = "Copy the graph, all branches at one cut, to DEST/BACKUP-ID/. A killed one is continued."
    examples = ("g.omni /backups", "s3://bucket/g.omni s3://backups/g --spark yarn")
    unharmed = "nothing was copied"
    panel = "Backup"
    request = BackupRequest
    report_type = BackupReport | BackupLeft
    spark_help = "Copy the files in tasks on this Spark master."
    tasks = TaskIds(plan="freeze", apply="copy")
    form = (
        FormField(name="incremental", default=True),
        FormField(name="checksum", title="Checksums"),
        FormField(name="max_bytes_per_second", title="Bytes per second at most"),
    )

    def run(self, graph: Graph, request: BackupRequest, tell: Progress, submit: Submit | None = None) -> BackupReport:
        """Copy a freeze. Writes at the destination, and tags and a hold in the graph while it copies.

        The files are submitted as the job `copy`.
        """
        from omnigraph_ops.stages.backup.parts import SubmittedCopy
        from omnigraph_ops.stages.backup.take import backup_graph, copied_here

        least = graph.settings.spark_copy_threshold_bytes or 0
        copier = copied_here if submit is None else SubmittedCopy(submit=submit, from_bytes=least)
        return backup_graph(graph, request.destination, _with_newest(graph, request), copier=copier, progress=tell)

    def told(self, graph: Graph, unit: Unit) -> Any:
        """What lies in the place of the backup. Reads."""
        from omnigraph_ops.outcomes.backups import backup_of, left_of

        return left_of(*backup_of(unit.backup, graph.storage.access))

    def view(self, value: BackupReport) -> View:
        """What was copied, and where the backup is. Pure."""
        rate = human_bytes(int(value.copied.bytes / max(value.seconds, 0.001)))
        facts = [
            ("Backup", value.backup),
            ("Copied", f"{_tally(value.copied)} in {value.seconds:.1f} s ({rate}/s)"),
        ]
        if value.linked.files:
            facts.append(("Taken over", f"{_tally(value.linked)} from {value.incremental_from}"))
        if value.resumed:
            facts.append(("There already", f"{_tally(value.kept)}, from an attempt that did not end"))
        return View(title=f"backup {value.uri} — {_tally(value.total)}", facts=tuple(facts))


class Verified(Recorded[VerifyReport]):
    """What reading a backup again found, for the report of the run that made it."""

    name = "verify"
    report_type = VerifyReport


def _with_newest(graph: Graph, request: BackupRequest) -> BackupRequest:
    """The request, with the newest finished backup as its base where it asks for that. Reads."""
    from omnigraph_ops.outcomes.backups import newest_finished

    if not request.incremental:
        return request
    newest = newest_finished(request.destination, graph.target, graph.storage.access)
    return request.model_copy(update={"incremental_from": newest})


def verify_view(report: VerifyReport) -> View:
    """Sound, or what is not. Pure."""
    verdict = "sound" if not report.problems else count(len(report.problems), "problem")
    facts = []
    if report.without_checksum:
        without = f"{count(report.without_checksum, 'file')}: the store copied them, sizes agree"
        facts.append(("Without a checksum", without))
    if report.compared_with_graph:
        facts.append(("Read in the graph as well", f"{count(report.compared_with_graph, 'file')} still there"))
    if report.not_recorded is not None:
        unknown = "`omnigraph-ops backups` and later backups do not know this outcome"
        facts.append(("Not recorded", f"{report.not_recorded}; {unknown}"))
    return View.of(
        f"verify {report.backup} — {verdict}, {_tally(report.total)}", _problems(report.problems), facts=facts
    )


def restore_view(report: RestoreReport) -> View:
    """Where the graph is and whether it is the one that was backed up. Pure."""
    verdict = "as backed up" if not report.problems else count(len(report.problems), "problem")
    recorded = ("Open it", "by this address alone, not through a link: its branches record it")
    # A running server caches by address and fragment number, and a restored graph has the same numbers again.
    servers = ("Restart", "every omnigraph-server that had a graph open here: its updates overwrite other rows")
    return View.of(
        f"restore {report.uri} — {verdict}",
        _problems(report.problems),
        facts=(
            ("Written", f"{_tally(report.total)} in {report.seconds:.1f} s, {report.relocated} with the new root"),
            (
                "Holds",
                f"{count(report.tables, 'table')}, {count(max(report.branches, 1), 'branch', 'branches')}, "
                f"{count(report.rows, 'row')} on all of them",
            ),
            *([recorded] if report.relocated else []),
            servers,
            *([("Note that stays", report.note_stays)] if report.note_stays is not None else []),
        ),
    )


def backups_view(listed: BackupList) -> View:
    """The backups of a place. Pure."""
    section = Section.table(
        "Backups", ("Backup", "State", "Age", "Size", "Taken after", "Graph", "Problem"), map(_cells, listed.backups)
    )
    return View.of(f"backups {listed.destination} — {len(listed.backups)}", section)


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


def _problems(problems: tuple[FileProblem, ...]) -> Section:
    return Section.table("Problems", ("File", "What is wrong"), ((p.file, p.reason) for p in problems))


def _tally(tally: Tally) -> str:
    return f"{count(tally.files, 'file')}, {human_bytes(tally.bytes)}"
