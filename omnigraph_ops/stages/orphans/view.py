"""Plans, reports and quarantines of orphans as views. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from omnigraph_ops.graph.layout import dataset_of
from omnigraph_ops.models.orphans import (
    OrphanFile,
    OrphanKind,
    OrphansPlan,
    OrphansReport,
    QuarantineList,
    QuarantineReport,
    SparedFile,
)
from omnigraph_ops.quantities import human_bytes, moment
from omnigraph_ops.views.markdown import count, human_seconds
from omnigraph_ops.views.question import counted, files_section, sealed_facts
from omnigraph_ops.views.view import Question, Section, View, filled

_MOST_ROWS = 30


def plan_view(plan: OrphansPlan) -> View:
    """What goes by folder, what stays and why. Pure."""
    stays = ("Where", "What", "Files", "About", "Why it stays")
    kept = tuple((g.path, g.kind.value, counted(g.files), human_bytes(g.bytes), g.kept) for g in plan.groups if g.kept)
    return View(
        title=f"orphans plan {plan.uri} (older than {human_seconds(plan.older_than_secs)}, {_fate(plan)}) — "
        f"{_total(plan)}",
        facts=(
            ("Moves to quarantine" if plan.quarantine else "Deletes for good", _total(plan)),
            ("Only older than", human_seconds(plan.older_than_secs)),
            ("Looked at", f"{count(plan.listed_files, 'file')}, {human_bytes(plan.listed_bytes)}"),
            *sealed_facts(plan),
        ),
        sections=filled(
            [
                Section(title="Goes", header=("Where", "What", "Files", "About"), rows=_places(plan), most=_MOST_ROWS),
                Section(title="Stays", header=stays, rows=kept, most=_MOST_ROWS),
                Section(
                    title="Could not be read, so nothing of it goes",
                    lines=tuple(f"{s.path}: {s.reason}" for s in plan.skipped),
                    most=_MOST_ROWS,
                ),
                Section(
                    title=_unknown(plan),
                    header=("Path", "Size"),
                    rows=tuple((u.path, human_bytes(u.size)) for u in plan.unknown),
                    most=_MOST_ROWS,
                ),
                Section(title="Also", lines=tuple(_notes(plan))),
                _files(plan),
            ]
        ),
    )


def _fate(plan: OrphansPlan) -> str:
    return "to be moved to quarantine" if plan.quarantine else "to be deleted for good"


def _total(plan: OrphansPlan) -> str:
    files, folders = count(plan.total_files, "file"), count(len(plan.folders), "empty folder")
    return f"{files} (about {human_bytes(plan.total_bytes)}) and {folders}"


def _files(plan: OrphansPlan) -> Section:
    """Every file that goes, or some of very many. Pure."""
    section = files_section((f.path, f.kind.value, human_bytes(f.size)) for f in plan.shown_files)
    if plan.parts is None:
        return section
    return replace(
        section,
        title=f"{len(plan.shown_files):,} of the {count(plan.total_files, 'file')} that go; all are in "
        f"{plan.parts.folder} of the graph, as Parquet",
    )


def _unknown(plan: OrphansPlan) -> str:
    shown, found = len(plan.unknown), plan.unknown_files
    return "Unknown, never removed" + (f", the first {shown:,} of {found:,}" if shown < found else "")


def _places(plan: OrphansPlan) -> tuple[tuple[str, ...], ...]:
    """What goes, by place and kind, largest first. Pure."""
    if plan.parts is not None:
        return tuple((p.path, p.kind.value, counted(p.files), human_bytes(p.bytes)) for p in plan.parts.places)
    files: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    going = [g.path for g in plan.groups if g.kept is None]
    for file in plan.files:
        key = (_place(file, going), str(file.kind))
        files[key] += 1
        sizes[key] += file.size
    ordered = sorted(files, key=lambda key: (-sizes[key], key))
    return tuple((*key, counted(files[key]), human_bytes(sizes[key])) for key in ordered)


def _place(file: OrphanFile, groups: Sequence[str]) -> str:
    dataset = dataset_of(file.path)
    if dataset is None:
        return file.path.partition("/")[0]
    return next((g for g in groups if g.startswith(dataset) and file.path.startswith(f"{g}/")), dataset)


def _notes(plan: OrphansPlan) -> Iterable[str]:
    yield from (f"files since {label} stay" for label in plan.held_back)
    if plan.young_files:
        yield f"{count(plan.young_files, 'file')} ({human_bytes(plan.young_bytes)}) not old enough yet"
    if plan.foreign_rows:
        yield f"{count(plan.foreign_rows, 'row')} of the inventory outside of this graph"
    if plan.missing_rows:
        yield (
            f"the inventory is incomplete: {count(plan.missing_rows, 'referenced file')} missing in it; "
            "what it does not list is not removed"
        )


def report_view(report: OrphansReport) -> View:
    """What was removed, spared and failed. Pure."""
    verb = "deleted" if report.quarantine_id is None else "moved to quarantine"
    facts = [("Had gone already", count(report.already_gone, "file"))] if report.already_gone else []
    if report.quarantine_id is not None:
        facts.append(("Quarantine", f"{report.quarantine_id}; bring it back with --restore, empty it with --purge"))
    return View(
        title=f"orphans {report.uri} — {verb} {count(report.files_removed, 'file')}, "
        f"{human_bytes(report.bytes_removed)} and {count(report.folders_removed, 'empty folder')}",
        facts=tuple(facts),
        sections=filled([_reasons("Spared", report.spared), _reasons("Failed", report.failed)]),
    )


def quarantines_view(listed: QuarantineList) -> View:
    """The quarantines of a graph. Pure."""
    rows = tuple(
        (q.quarantine_id, moment(q.created_at_us), count(q.files, "file"), human_bytes(q.bytes))
        for q in listed.quarantines
    )
    section = Section(title="Quarantines", header=("Quarantine", "Made", "Files", "Size"), rows=rows)
    return View(
        title=f"orphans {listed.uri} — {count(len(listed.quarantines), 'quarantine')}", sections=filled([section])
    )


def quarantine_view(report: QuarantineReport) -> View:
    """What became of one quarantine. Pure."""
    done = {"preview": "holds", "purged": "deleted", "restored": "restored"}[report.action]
    return View(
        title=f"orphans {report.uri} — quarantine {report.quarantine_id}: {done} {count(report.files, 'file')}, "
        f"{human_bytes(report.bytes)}",
        sections=filled([_reasons("Failed", report.failed)]),
    )


def _reasons(title: str, files: Sequence[SparedFile]) -> Section:
    return Section(title=title, header=("File", "Why"), rows=tuple((f.path, f.reason) for f in files), most=_MOST_ROWS)


def question(plan: OrphansPlan) -> Question:
    """What a person is asked about orphans. Pure."""
    what = f"{plan.total_files:,} unreferenced files (about {human_bytes(plan.total_bytes)})"
    aside = "moved to quarantine; omnigraph-ops orphans --restore brings them back"
    fate = aside if plan.quarantine else "deleted for good. They cannot be brought back"
    dropped = any(g.kept is None and g.kind is OrphanKind.DROPPED_TABLE for g in plan.groups)
    return Question(
        subject=f"Move {what} to quarantine?" if plan.quarantine else f"Delete {what} for good?",
        intro=f"Orphans of {plan.uri}: {_total(plan)} that no version of any dataset, branch or tag refers to, all "
        f"older than {human_seconds(plan.older_than_secs)}, {_fate(plan)}.",
        on_approve=f"exactly these files are {fate}. A file that changed or is needed since stays.",
        on_reject="nothing is removed.",
        notes=("A dropped table in the list goes with its history; until then, an old version of the graph shows it.",)
        if dropped
        else (),
    )
