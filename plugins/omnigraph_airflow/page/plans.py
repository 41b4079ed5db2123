"""A kept plan as facts and tables: everything that its approval covers, in the words of the approval. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from omnigraph_ops.coordination.state import PLANS_DIR
from omnigraph_ops.durations import moment
from omnigraph_ops.models import (
    Classification,
    CleanupPlan,
    DriftEvidence,
    OrphansPlan,
    RepairPreview,
    RepairRow,
    TableCleanupPlan,
)
from omnigraph_ops.models.retention import RowRetentionPlan, TableRowPlan
from omnigraph_ops.outcomes.history.views import Section, View
from omnigraph_ops.sizes import human_bytes
from omnigraph_ops.views.approval import policy_text, ranges
from omnigraph_ops.views.approval.cleanup import by_reasons
from omnigraph_ops.views.evidence_text import column_text, rows_text, verdict_text, version_text
from omnigraph_ops.views.markdown import human_seconds, some

MOST_FILES = 1000
"""Files, or rows of any other list, that a page shows; the kept plan has all of them."""
_LONGEST = 2000
"""Characters of a cell."""
_MOST_REASONS = 10


def plan_view(plan: Any) -> View:
    """The page about a plan of any stage. Pure."""
    for kind, view in _VIEWS:
        if isinstance(plan, kind):
            return _bounded(view(plan), plan.digest)
    raise TypeError(f"there is no page for a {type(plan).__name__}")


def _bounded(view: View, digest: str) -> View:
    """The view with the first of very many lines, rows and characters, and where the whole plan is. Pure."""
    sections = tuple(_first(section) for section in view.sections)
    if sections == view.sections:
        return view
    kept = f"{PLANS_DIR}/{digest.removeprefix('sha256:')}.json in the graph; at the shell --json prints it"
    return replace(view, facts=(*view.facts, ("The whole plan", kept)), sections=sections)


def _first(section: Section) -> Section:
    number = max(len(section.lines), len(section.rows))
    more = f", the first {MOST_FILES:,} of {number:,}" if number > MOST_FILES else ""
    return replace(
        section,
        title=section.title + more,
        lines=tuple(map(_cut, section.lines[:MOST_FILES])),
        rows=tuple(tuple(map(_cut, row)) for row in section.rows[:MOST_FILES]),
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _made(plan: RepairPreview | CleanupPlan | OrphansPlan | RowRetentionPlan) -> tuple[tuple[str, str], ...]:
    return (
        ("Planned", moment(plan.planned_at_us)),
        ("May be applied until", moment(plan.expires_at_us)),
        ("Digest", plan.digest),
    )


def _repair(plan: RepairPreview) -> View:
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
            *_made(plan),
        ),
        sections=_filled(sections),
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
        _count(row.rows_before),
        _count(row.rows_after),
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


def _cleanup(plan: CleanupPlan) -> View:
    tables = sorted((t for t in plan.tables if t.versions or t.refused), key=lambda t: -t.estimated_bytes)
    header = ("Table", "Versions removed", "How many", "Files", "About", "Published", "Newest", "Stops at")
    held = ("Table", "Versions", "How many", "Why they stay")
    protected = tuple(
        (t.table_key, ranges(versions), _count(len(versions)), some(reasons, _MOST_REASONS, "; "))
        for t in plan.tables
        for reasons, versions in by_reasons(t.protected)
    )
    forks = tuple((f.table_key, f.branch, _count(len(f.files)), _bytes(f.files)) for f in plan.orphaned_forks)
    kept = tuple((f.table_key, f.branch, f.error or "") for f in plan.kept_forks)
    files = [*(f for t in plan.tables for f in t.files), *(f for fork in plan.orphaned_forks for f in fork.files)]
    return View(
        title="Plan of a cleanup",
        facts=(
            ("Removes", f"{plan.total_versions:,} old versions and {plan.total_files:,} files"),
            ("About", human_bytes(plan.total_bytes)),
            ("Policy", policy_text(plan.policy)),
            *_made(plan),
        ),
        sections=_filled(
            [
                Section(title="Tables", header=header, rows=tuple(_cleanup_cells(t) for t in tables)),
                Section(title="Protected versions", header=held, rows=protected),
                Section(title="Orphaned forks removed", header=("Table", "Fork", "Files", "About"), rows=forks),
                Section(title="Orphaned forks kept", header=("Table", "Fork", "Why it stays"), rows=kept),
                _files((f.path, f.kind, human_bytes(f.size)) for f in files),
            ]
        ),
    )


def _cleanup_cells(table: TableCleanupPlan) -> tuple[str, ...]:
    return (
        table.table_key,
        f"none: {table.refused}" if table.refused else ranges(table.versions),
        _count(len(table.versions)),
        _count(len(table.files)),
        human_bytes(table.estimated_bytes),
        str(table.pinned_version),
        str(table.lance_head_version),
        table.blocked_by or "",
    )


def _orphans(plan: OrphansPlan) -> View:
    groups = tuple((g.path, g.kind.value, _count(g.files), human_bytes(g.bytes), g.kept or "") for g in plan.groups)
    return View(
        title="Plan of an orphans run",
        facts=(
            ("Moves to quarantine" if plan.quarantine else "Deletes for good", f"{len(plan.files):,} files"),
            ("Removes", f"{len(plan.folders):,} empty folders"),
            ("Bytes", human_bytes(plan.total_bytes)),
            ("Only older than", human_seconds(plan.older_than_secs)),
            ("Looked at", f"{plan.listed_files:,} files, {human_bytes(plan.listed_bytes)}"),
            *_made(plan),
        ),
        sections=_filled(
            [
                Section(title="Held back", lines=plan.held_back),
                Section(title="Datasets not judged", lines=tuple(f"{s.path}: {s.reason}" for s in plan.skipped)),
                Section(title="Folders", header=("Path", "What", "Files", "Bytes", "Why it stays"), rows=groups),
                _files((f.path, f.kind.value, human_bytes(f.size)) for f in plan.files),
                Section(
                    title="Unknown files, left alone",
                    header=("Path", "Bytes"),
                    rows=tuple((u.path, human_bytes(u.size)) for u in plan.unknown),
                ),
            ]
        ),
    )


def _row_retention(plan: RowRetentionPlan) -> View:
    going = [t for t in plan.tables if t.refused is None]
    header = ("Table", "Rows deleted", "Rows", "Share", "Rule", "Below", "Oldest", "Newest", "Never more than")
    edges = tuple((t.table_key, e.table_key, _count(e.rows)) for t in going for e in t.edges if e.rows)
    return View(
        title="Plan of a row retention",
        facts=(
            ("Deletes", f"{plan.total_rows:,} rows and {plan.total_edges:,} of their edges"),
            ("Branch", plan.branch or "main"),
            ("At most", f"{plan.max_share:.1%} of the rows of a table"),
            *_made(plan),
        ),
        sections=_filled(
            [
                Section(title="Tables", header=header, rows=tuple(_row_cells(t) for t in plan.tables)),
                Section(title="Edges that go with them", header=("Nodes", "Edges", "How many"), rows=edges),
                Section(
                    title="Some of the rows",
                    header=("Table", "Key"),
                    rows=tuple((t.table_key, key) for t in going for key in t.sample),
                ),
            ]
        ),
    )


def _row_cells(table: TableRowPlan) -> tuple[str, ...]:
    # Its package loads Lance, which has been loaded by the time that there is a plan.
    from omnigraph_ops.stages.expire_rows.texts import policy_text as rule_text

    return (
        table.table_key,
        f"none: {table.refused}" if table.refused else _count(table.expired),
        _count(table.rows),
        f"{table.share:.1%}",
        rule_text(table.policy),
        moment(table.cut_at_us),
        *("" if end is None else moment(end) for end in (table.oldest_us, table.newest_us)),
        _count(table.max_rows),
    )


def _files(rows: Iterable[tuple[str, str, str]]) -> Section:
    found = tuple(rows)
    number = "" if len(found) > MOST_FILES else f" ({len(found):,})"
    return Section(title=f"Every file that goes{number}", header=("Path", "What", "Size"), rows=found)


def _filled(sections: Iterable[Section]) -> tuple[Section, ...]:
    return tuple(s for s in sections if s.lines or s.rows)


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _bytes(files: Iterable[Any]) -> str:
    return human_bytes(sum(f.size for f in files))


_VIEWS: tuple[tuple[type[Any], Callable[[Any], View]], ...] = (
    (RepairPreview, _repair),
    (CleanupPlan, _cleanup),
    (OrphansPlan, _orphans),
    (RowRetentionPlan, _row_retention),
)
