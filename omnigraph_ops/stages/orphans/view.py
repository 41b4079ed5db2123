"""Plans of orphans as a view. Pure."""

from __future__ import annotations

from omnigraph_ops.models import OrphansPlan, OrphansReport
from omnigraph_ops.sizes import human_bytes
from omnigraph_ops.views.markdown import human_seconds
from omnigraph_ops.views.plan import counted, files_section, sealed_facts
from omnigraph_ops.views.view import Question, Section, View, filled


def plan_view(plan: OrphansPlan) -> View:
    """What goes, what stays and why. Pure."""
    groups = tuple((g.path, g.kind.value, counted(g.files), human_bytes(g.bytes), g.kept or "") for g in plan.groups)
    return View(
        title="Plan of an orphans run",
        facts=(
            ("Moves to quarantine" if plan.quarantine else "Deletes for good", f"{len(plan.files):,} files"),
            ("Removes", f"{len(plan.folders):,} empty folders"),
            ("Bytes", human_bytes(plan.total_bytes)),
            ("Only older than", human_seconds(plan.older_than_secs)),
            ("Looked at", f"{plan.listed_files:,} files, {human_bytes(plan.listed_bytes)}"),
            *sealed_facts(plan),
        ),
        sections=filled(
            [
                Section(title="Held back", lines=plan.held_back),
                Section(title="Datasets not judged", lines=tuple(f"{s.path}: {s.reason}" for s in plan.skipped)),
                Section(title="Folders", header=("Path", "What", "Files", "Bytes", "Why it stays"), rows=groups),
                files_section((f.path, f.kind.value, human_bytes(f.size)) for f in plan.files),
                Section(
                    title="Unknown files, left alone",
                    header=("Path", "Bytes"),
                    rows=tuple((u.path, human_bytes(u.size)) for u in plan.unknown),
                ),
            ]
        ),
    )


def report_view(report: OrphansReport) -> View:
    """What was removed, spared and failed. Pure."""
    fate = "deleted" if report.quarantine_id is None else f"moved to quarantine {report.quarantine_id}"
    return View(
        title=f"orphans {report.uri} — {fate} {report.files_removed:,} files, {human_bytes(report.bytes_removed)}",
        sections=filled(
            [
                Section(title="Spared", lines=tuple(f"{f.path}: {f.reason}" for f in report.spared)),
                Section(title="Failed", lines=tuple(f"{f.path}: {f.reason}" for f in report.failed)),
            ]
        ),
    )


def question(plan: OrphansPlan) -> Question:
    """What a person is asked about orphans. Pure."""
    what = f"{len(plan.files):,} unreferenced files (about {human_bytes(plan.total_bytes)})"
    aside = "moved to quarantine, from where they can be brought back"
    fate = aside if plan.quarantine else "deleted for good. They cannot be brought back"
    return Question(
        subject=f"Move {what} to quarantine?" if plan.quarantine else f"Delete {what} for good?",
        intro=f"No version, branch or tag of {plan.uri} refers to these files.",
        on_approve=f"exactly these files are {fate}. A file that changed or is needed since stays.",
        on_reject="nothing is removed.",
    )
