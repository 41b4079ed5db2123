"""Previews of repairs as a view. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph_ops.models import Classification, DriftEvidence, RepairPreview, RepairReport, RepairRow
from omnigraph_ops.views.evidence_text import column_text, rows_text, verdict_text, version_text
from omnigraph_ops.views.plan import counted, sealed_facts
from omnigraph_ops.views.view import Question, Section, View, filled


def plan_view(plan: RepairPreview) -> View:
    """What is drifted, with the evidence. Pure."""
    drifted = plan.drifted
    header = (
        "Table",
        "Published",
        "Newest",
        "On Approve",
        "Classification",
        "Operations",
        "Rows before",
        "Rows after",
        "Content",
    )
    sections = [Section(title="Drifted tables", header=header, rows=tuple(_drift_cells(row) for row in drifted))]
    for row in drifted:
        if row.evidence is not None:
            sections += _evidence(row.table_key, row.evidence)
    return View(
        title="Preview of a repair",
        facts=(
            ("Drifted", f"{len(drifted)} of {len(plan.rows)} tables; a repair publishes and rewrites nothing"),
            *sealed_facts(plan),
        ),
        sections=filled(sections),
    )


def _drift_cells(row: RepairRow) -> tuple[str, ...]:
    verified = row.classification is Classification.VERIFIED_MAINTENANCE
    equal = None if row.evidence is None else row.evidence.content_equal
    return (
        row.table_key,
        str(row.manifest_version),
        str(row.lance_head_version),
        "publish" if verified else "leave, unless forced",
        row.classification.value.replace("_", " ") + (f": {row.error}" if row.error else ""),
        ", ".join(row.operations) or "?",
        counted(row.rows_before),
        counted(row.rows_after),
        {True: "equal", False: "differs", None: "not proven equal"}[equal],
    )


def _evidence(key: str, found: DriftEvidence) -> Iterator[Section]:
    facts = [verdict_text(found), rows_text(found), *(column_text(column) for column in found.columns)]
    facts += [f"version {version_text(version)}" for version in found.versions]
    facts += [f"branch {b.branch} {b.note}" for b in found.branches if b.branch is not None]
    facts += [f"if published: {text}" for text in found.if_published]
    facts += [f"could not be read: {found.problem}" if found.problem else None]
    yield Section(title=f"Evidence: {key}", lines=tuple(fact for fact in facts if fact))
    yield Section(
        title=f"Rows that differ: {key}",
        header=("Row id", "Change", "Column", "Published", "Newest"),
        rows=tuple(
            (str(row.row_id), row.change.value, value.column, _side(value.before), _side(value.after))
            for row in found.shown
            for value in row.values
            if value.before != value.after
        ),
    )


def _side(value: str | None) -> str:
    return "(not there)" if value is None else value


def report_view(report: RepairReport) -> View:
    """What was published, and what was refused. Pure."""
    mode = "confirm" if report.confirm else "preview"
    header = ("Table", "Action", "Classification", "Version", "Operations")
    rows = tuple(
        (
            row.table_key,
            row.action.value,
            row.classification.value + (f": {row.error}" if row.error else ""),
            f"{row.manifest_version} → {row.lance_head_version}",
            ", ".join(row.operations),
        )
        for row in report.tables
    )
    return View(
        title=f"repair {report.uri} — {mode} mode, {len(report.tables)} tables",
        sections=filled([Section(title="Tables", header=header, rows=rows)]),
    )


def question(plan: RepairPreview, *, force: bool) -> Question:
    """What a person is asked about a repair. Pure."""
    keys = [row.table_key for row in plan.drifted]
    more = f" and {len(keys) - 3} more tables" if len(keys) > 3 else ""
    return Question(
        subject=f"Repair {', '.join(keys[:3])}{more}?",
        intro=f"Tables of {plan.uri} hold versions that the graph does not publish. Repair publishes them as they "
        "are; it rewrites nothing.",
        on_approve="the tables that are verified maintenance"
        + (", and those that are not," if force else "")
        + " are published at their newest version in one graph commit. If any of them moves before that, nothing is "
        "published.",
        on_reject="only the repair is skipped. The tables stay as they are, and the rest of the run goes on without "
        "them.",
    )
