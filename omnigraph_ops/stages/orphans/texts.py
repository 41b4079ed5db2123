"""What a person reads of orphans: plans and reports for a terminal, and the body of an approval. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from omnigraph_ops.graph.paths import dataset_of
from omnigraph_ops.models import (
    OrphanFile,
    OrphanGroup,
    OrphanKind,
    OrphansPlan,
    OrphansReport,
    QuarantineList,
    QuarantineReport,
    SparedFile,
)
from omnigraph_ops.sizes import human_bytes
from omnigraph_ops.views.markdown import code, count, digest_line, human_seconds, no_answer, prose, table
from omnigraph_ops.views.readable import safe

MOST_ROWS = 30
_ASIDE = (
    "- **Approve**: exactly these files are **moved to quarantine**; one that changed or is needed since stays. "
    "`omnigraph-ops orphans --restore` brings them back."
)
_FOR_GOOD = (
    "- **Approve**: exactly these files are **deleted for good**; one that changed or is needed since stays. "
    "**They cannot be brought back.**"
)
_DROPPED = (
    "- A dropped table in the list goes with its history: until then, an old version of the graph still shows it."
)


def plan_text(plan: OrphansPlan) -> str:
    """The plan: totals, then what goes by folder, what stays and why, and the digest to approve."""
    lines = [
        f"orphans plan {plan.uri} (older than {human_seconds(plan.older_than_secs)}, {_fate(plan)}) — "
        f"{count(len(plan.files), 'file')}, {human_bytes(plan.total_bytes)} and "
        f"{count(len(plan.folders), 'empty folder')} of {count(plan.listed_files, 'file')}, "
        f"{human_bytes(plan.listed_bytes)} stored"
    ]
    lines += [f"  {where:<52} {what:<14} {number:>8,} files {size:>12}" for where, what, number, size in _rows(plan)]
    lines += [f"  kept: {line}" for line in _first([_kept_line(g) for g in plan.groups if g.kept])]
    lines += [f"  skipped: {line}" for line in _first([f"{s.path}: {s.reason}" for s in plan.skipped])]
    lines += [f"  unknown: {line}" for line in _first([f"{u.path} ({human_bytes(u.size)})" for u in plan.unknown])]
    lines += [f"  note: {note}" for note in _notes(plan)]
    lines.append(f"digest {plan.digest}")
    return "\n".join(lines)


def report_text(report: OrphansReport) -> str:
    """What was removed, spared and failed."""
    verb = "deleted" if report.quarantine_id is None else "moved to quarantine"
    lines = [
        f"orphans {report.uri} — {verb} {count(report.files_removed, 'file')}, {human_bytes(report.bytes_removed)} "
        f"and {count(report.folders_removed, 'empty folder')}"
    ]
    if report.quarantine_id is not None:
        lines.append(f"  quarantine {report.quarantine_id}; bring it back with --restore, empty it with --purge")
    if report.already_gone:
        lines.append(f"  {count(report.already_gone, 'file')} had gone already")
    lines += [f"  spared: {line}" for line in _first(_faults(report.spared))]
    lines += [f"  failed: {line}" for line in _first(_faults(report.failed))]
    return "\n".join(lines)


def quarantines_text(listed: QuarantineList) -> str:
    """One line per quarantine."""
    lines = [f"orphans {listed.uri} — {count(len(listed.quarantines), 'quarantine')}"]
    for q in listed.quarantines:
        made = datetime.fromtimestamp(q.created_at_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        lines.append(f"  {q.quarantine_id}  {made}  {count(q.files, 'file')}, {human_bytes(q.bytes)}")
    return "\n".join(lines)


def quarantine_text(report: QuarantineReport) -> str:
    """What became of one quarantine."""
    done = {"preview": "holds", "purged": "deleted", "restored": "restored"}[report.action]
    lines = [
        f"orphans {report.uri} — quarantine {report.quarantine_id}: {done} {count(report.files, 'file')}, "
        f"{human_bytes(report.bytes)}"
    ]
    return "\n".join([*lines, *(f"  failed: {line}" for line in _first(_faults(report.failed)))])


def orphans_body(plan: OrphansPlan, *, answer_by: str | None = None, full_plan: str | None = None) -> str:
    """The body of an orphans approval: exactly what goes, what stays and why.

    Args:
        full_plan: Markdown that leads to the whole plan, for what is left out of a long one.
    """
    rows = _rows(plan)
    shown = [(code(where), what, f"{number:,}", size) for where, what, number, size in rows[:MOST_ROWS]]
    lines = [
        f"Orphans of {code(plan.uri)}: **{count(len(plan.files), 'file')}** (about {human_bytes(plan.total_bytes)}) "
        f"and {count(len(plan.folders), 'empty folder')} that no version of any dataset, branch or tag refers to, all "
        f"older than {human_seconds(plan.older_than_secs)}, {_fate(plan)}.",
        "",
        *table(("Where", "What", "Files", "About"), shown),
        *([_more(len(rows) - MOST_ROWS, full_plan)] if len(rows) > MOST_ROWS else []),
        *_section("Stays", [_kept_line(g) for g in plan.groups if g.kept], full_plan),
        *_section("Could not be read, so nothing of it goes", [f"{s.path}: {s.reason}" for s in plan.skipped], None),
        *_section("Unknown, never removed", [f"{u.path} ({human_bytes(u.size)})" for u in plan.unknown], full_plan),
        *_section("Also", _notes(plan), None),
        "",
        "Your answer:",
        "",
        _ASIDE if plan.quarantine else _FOR_GOOD,
        *([_DROPPED] if any(g.kept is None and g.kind is OrphanKind.DROPPED_TABLE for g in plan.groups) else []),
        "- **Reject**: nothing is removed.",
        no_answer(answer_by),
        "",
        *([f"Every file is listed in {full_plan}.", ""] if full_plan else []),
        digest_line(plan.digest),
    ]
    return "\n".join(lines)


def _fate(plan: OrphansPlan) -> str:
    return "to be moved to quarantine" if plan.quarantine else "to be deleted for good"


def _rows(plan: OrphansPlan) -> list[tuple[str, str, int, str]]:
    """What goes, by place and kind, largest first. Pure."""
    files: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    going = [g.path for g in plan.groups if g.kept is None]
    for file in plan.files:
        key = (_place(file, going), str(file.kind))
        files[key] += 1
        sizes[key] += file.size
    ordered = sorted(files, key=lambda key: (-sizes[key], key))
    return [(where, what, files[where, what], human_bytes(sizes[where, what])) for where, what in ordered]


def _place(file: OrphanFile, groups: Sequence[str]) -> str:
    dataset = dataset_of(file.path)
    if dataset is None:
        return file.path.partition("/")[0]
    return next((g for g in groups if g.startswith(dataset) and file.path.startswith(f"{g}/")), dataset)


def _notes(plan: OrphansPlan) -> list[str]:
    notes = [f"files since {label} stay" for label in plan.held_back]
    if plan.young_files:
        notes.append(f"{count(plan.young_files, 'file')} ({human_bytes(plan.young_bytes)}) not old enough yet")
    if plan.foreign_rows:
        notes.append(f"{count(plan.foreign_rows, 'row')} of the inventory outside of this graph")
    if plan.missing_rows:
        notes.append(
            f"the inventory is incomplete: {count(plan.missing_rows, 'referenced file')} missing in it; "
            "what it does not list is not removed"
        )
    return notes


def _kept_line(group: OrphanGroup) -> str:
    return f"{group.kind} {group.path} ({count(group.files, 'file')}, {human_bytes(group.bytes)}): {group.kept}"


def _faults(files: Sequence[SparedFile]) -> list[str]:
    return [f"{f.path}: {f.reason}" for f in files]


def _first(lines: Sequence[str]) -> list[str]:
    """The first lines, and how many more there are. Pure."""
    more = len(lines) - MOST_ROWS
    return [*map(safe, lines[:MOST_ROWS]), *([f"{more:,} more"] if more > 0 else [])]


def _section(title: str, lines: Sequence[str], full_plan: str | None) -> list[str]:
    if not lines:
        return []
    more = len(lines) - MOST_ROWS
    tail = [f"- {_more(more, full_plan)}"] if more > 0 else []
    return ["", f"{title}:", "", *(f"- {prose(line)}" for line in lines[:MOST_ROWS]), *tail]


def _more(number: int, full_plan: str | None) -> str:
    return f"{number:,} more" + (f", listed in {full_plan}" if full_plan else "")
