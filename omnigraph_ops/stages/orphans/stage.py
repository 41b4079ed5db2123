"""Orphan removal as a stage: request, question, views of plans, reports and quarantines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.layout import dataset_of
from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.models.orphans import (
    SAFE_AGE_SECONDS,
    OrphanFile,
    OrphanKind,
    OrphansPlan,
    OrphansReport,
    QuarantineList,
    QuarantineReport,
    SparedFile,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes.results import Recorded
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import count, duration, human_bytes, moment
from omnigraph_ops.requests import Option, Request, Seconds
from omnigraph_ops.stages.stage import WRITERS_REFUSED, Effect, FormField, Measure, PlannedStage, Submit, TaskIds
from omnigraph_ops.views.markdown import by_cause, counted, files_section, human_seconds, sealed_facts
from omnigraph_ops.views.view import Question, Section, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

_MOST_ROWS = 30


class OrphansRequest(Request):
    """Remove files that no version, branch or tag refers to."""

    older_than: Annotated[Seconds, Option(metavar="DURATION", decides=True)] = SAFE_AGE_SECONDS
    """Remove only files older than this, as in `12h`, `7d`. A younger file may belong to a write at work."""
    listing: Annotated[str | None, Option(metavar="FILE", form=False)] = None
    """Read this inventory (CSV, JSON lines, Parquet) instead of listing the store."""
    quarantine: bool = False
    """Move the files aside instead of deleting them. With a digest, its plan says which."""


class Orphans(PlannedStage[OrphansRequest, OrphansPlan, OrphansReport]):
    """Removes files that nothing refers to."""

    name = "orphans"
    effect = Effect.DESTROYS
    summary = "Remove files that no version, branch or tag refers to. Without --confirm it prints the plan."
    examples = (
        "g.omni",
        "g.omni --older-than 7d --quarantine --confirm",
        "s3://bucket/g.omni --older-than 7d --confirm --yes",
    )
    unharmed = "nothing was deleted"
    request = OrphansRequest
    plan_type = OrphansPlan
    report_type = OrphansReport
    tasks = TaskIds(plan="plan_orphans", approve="approve_orphans", apply="remove_orphans")
    dag_id = "omnigraph_orphans"
    measure = Measure(noun="files", default=10_000)
    fence_help = f"{WRITERS_REFUSED}."
    spark_help = "Read references, list and judge on this Spark master; the plan is the same."
    form = (
        FormField(name="older_than", title="Only files older than"),
        FormField(name="quarantine", default=True),
    )
    about = (
        "With **Quarantine** the plan moves the files below `__maintenance/quarantine/` of the graph, and "
        "`omnigraph-ops orphans --restore` brings them back. Without it, the plan deletes them for good. Which of the "
        "two is part of the plan and of its digest."
    )
    button = "Remove orphans"
    age = duration(SAFE_AGE_SECONDS)
    younger_in_forms = True

    def plan(self, graph: Graph, request: OrphansRequest, tell: Progress, submit: Submit | None = None) -> OrphansPlan:
        """Which files go, by a listing of the store or an inventory of it. Reads.

        From the threshold on the job `orphans` plans, and writes the files of the plan in parts.
        """
        from omnigraph_ops.stages.orphans.plan import plan_orphans

        listing = None if request.listing is None else _local_file(request.listing)
        if submit is not None and self._is_for_spark(graph, tell):
            return self._submitted(graph, request, listing, submit)
        return plan_orphans(
            graph,
            older_than_seconds=request.older_than,
            quarantine=request.quarantine,
            listing=listing,
            progress=tell,
        )

    def _is_for_spark(self, graph: Graph, tell: Progress) -> bool:
        """Whether the graph is known to have as many files as the threshold says; tells where it has not. Reads."""
        from omnigraph_ops.stages.orphans.plan import known_files

        least = graph.settings.spark_from(self.name) or 0
        if least and (known := known_files(graph)) < least:
            has = f"the graph is known to have {count(known, 'file')}"
            tell(f"planned in this process: {has}, Spark is for {least:,} or more")
            return False
        return True

    def _submitted(self, graph: Graph, request: OrphansRequest, listing: Path | None, submit: Submit) -> OrphansPlan:
        """The plan of the job. Writes its files in parts."""
        from omnigraph_ops.graph.layout import new_ulid
        from omnigraph_ops.stages.orphans.candidates import folder_of

        if listing is not None:
            request = request.model_copy(update={"listing": str(listing)})
        plan_id = new_ulid()
        words = ("--graph", graph.target, "--plan-id", plan_id, "--request", request.said)
        try:
            return submit(self.name, words, OrphansPlan, graph.run.check)
        except BaseException:
            graph.storage.delete_tree(folder_of(plan_id))
            raise

    def apply(
        self, graph: Graph, plan: OrphansPlan, tell: Progress, submit: Submit | None = None, *, force: bool = False
    ) -> OrphansReport:
        """Delete the planned files that still nothing refers to, or move them to quarantine. Destroys."""
        from omnigraph_ops.stages.orphans.apply import apply_orphans

        for note in _of_inventory(plan):
            tell(note)
        return apply_orphans(graph, plan, progress=tell)

    def told(self, graph: Graph, unit: Unit) -> OrphansReport:
        from omnigraph_ops.outcomes.run_journal import moved

        files, size = moved(graph, unit)
        where = unit.quarantine_id or None
        return OrphansReport(
            uri=graph.uri, digest=unit.digest, quarantine_id=where, files_removed=files, bytes_removed=size
        )

    def removed(self, report: OrphansReport) -> list[str]:
        return [count(report.files_removed, "file")] if report.files_removed else []

    def nothing_to_do(self, plan: OrphansPlan) -> str | None:
        return None if plan.total_files or plan.folders else "no unreferenced files that are old enough"

    def too_young(self, of: OrphansRequest | OrphansPlan) -> str | None:
        age = of.older_than if isinstance(of, OrphansRequest) else of.older_than_secs
        # Planning itself takes nothing below an hour on a graph where others write.
        if age >= SAFE_AGE_SECONDS:
            return None
        return (
            f"a file younger than {self.age} may belong to a long write; nothing was deleted; give at least {self.age}"
        )

    def attention(self, plan: OrphansPlan, drift: Sequence[DriftFinding] | None) -> list[str]:
        unread = list(by_cause(("", s.path, f"not searched for orphans: {s.reason}") for s in plan.skipped))
        unknown = f"the graph has {count(plan.unknown_files, 'unknown file')}; what is not known is never removed"
        return [*unread, unknown] if plan.unknown_files else unread

    def size(self, plan: OrphansPlan) -> tuple[int, int]:
        return plan.total_files, plan.total_bytes

    def files(self, plan: OrphansPlan) -> Sequence[OrphanFile]:
        return plan.shown_files

    def view(self, value: OrphansPlan | OrphansReport) -> View:
        return plan_view(value) if isinstance(value, OrphansPlan) else report_view(value)

    def question(self, plan: OrphansPlan, *, force: bool = False) -> Question:
        """What a person is asked about orphans. Pure."""
        what = f"{count(plan.total_files, 'unreferenced file')} (about {human_bytes(plan.total_bytes)})"
        aside = "moved to quarantine; omnigraph-ops orphans --restore brings them back"
        fate = aside if plan.quarantine else "deleted for good. They cannot be brought back"
        dropped = any(g.kept is None and g.kind is OrphanKind.DROPPED_TABLE for g in plan.groups)
        return Question(
            subject=f"Move {what} to quarantine?" if plan.quarantine else f"Delete {what} for good?",
            intro=f"Orphans of {plan.uri}: {_total(plan)} that no version of any dataset, branch or tag refers to, all "
            f"older than {human_seconds(plan.older_than_secs)}, {_fate(plan)}.",
            on_approve=f"exactly these files are {fate}. A file that changed or is needed since stays.",
            on_reject="nothing is removed.",
            notes=(
                "A dropped table in the list goes with its history; until then, an old version of the graph shows it.",
            )
            if dropped
            else (),
        )


class Quarantined(Recorded[QuarantineReport]):
    """What became of a quarantine: it was brought back or purged."""

    name = "quarantine"
    report_type = QuarantineReport

    def told(self, graph: Graph, unit: Unit) -> QuarantineReport:
        from omnigraph_ops.outcomes.run_journal import moved

        files, size = moved(graph, unit)
        action = "purged" if unit.name.startswith("purged") else "restored"
        return QuarantineReport(
            uri=graph.uri,
            quarantine_id=unit.quarantine_id,
            digest=unit.digest,
            action=action,
            files=files,
            bytes=size,
        )


def _local_file(address: str) -> Path:
    """Where an inventory is on this machine. Reads the working directory."""
    from omnigraph_ops.storage.location import locate

    place = locate(address)
    if not place.is_local:
        raise InvalidInput(f"the inventory {address} is not on this machine; nothing was deleted; copy it here")
    return Path(place.root)


def plan_view(plan: OrphansPlan) -> View:
    """What goes by folder, what stays and why. Pure."""
    stays = ("Where", "What", "Files", "About", "Why it stays")
    kept = tuple((g.path, g.kind.value, counted(g.files), human_bytes(g.bytes), g.kept) for g in plan.groups if g.kept)
    return View.of(
        f"orphans plan {plan.uri} (older than {human_seconds(plan.older_than_secs)}, {_fate(plan)}) — {_total(plan)}",
        Section.table("Goes", ("Where", "What", "Files", "About"), _places(plan), most=_MOST_ROWS),
        Section.table("Stays", stays, kept, most=_MOST_ROWS),
        Section(
            title="Not searched for orphans",
            lines=tuple(f"{s.path}: {s.reason}" for s in plan.skipped),
            most=_MOST_ROWS,
        ),
        Section.table(
            _unknown(plan), ("Path", "Size"), ((u.path, human_bytes(u.size)) for u in plan.unknown), most=_MOST_ROWS
        ),
        Section(title="Also", lines=tuple(_notes(plan))),
        _files(plan),
        facts=(
            ("Moves to quarantine" if plan.quarantine else "Deletes for good", _total(plan)),
            ("Only older than", human_seconds(plan.older_than_secs)),
            ("Looked at", f"{count(plan.listed_files, 'file')}, {human_bytes(plan.listed_bytes)}"),
            *sealed_facts(plan),
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
    sizes: dict[tuple[str, str], list[int]] = {}
    going = {g.path for g in plan.groups if g.kept is None}
    for file in plan.files:
        sizes.setdefault((_place(file, going), str(file.kind)), []).append(file.size)
    ordered = sorted(sizes.items(), key=lambda place: (-sum(place[1]), place[0]))
    return tuple((*key, counted(len(of)), human_bytes(sum(of))) for key, of in ordered)


def _place(file: OrphanFile, groups: Collection[str]) -> str:
    """The innermost of the groups that a file is below, else its dataset, else the first folder. Pure."""
    dataset = dataset_of(file.path)
    if dataset is None:
        return file.path.partition("/")[0]
    folder = file.path
    while len(folder) > len(dataset) and folder not in groups:
        folder = folder.rpartition("/")[0]
    return folder


def _notes(plan: OrphansPlan) -> Iterable[str]:
    yield from (f"files since {label} stay" for label in plan.held_back)
    if plan.young_files:
        yield f"{count(plan.young_files, 'file')} ({human_bytes(plan.young_bytes)}) not old enough yet"
    yield from _of_inventory(plan)


def _of_inventory(plan: OrphansPlan) -> Iterable[str]:
    """What an inventory has too much and what it lacks. Pure."""
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
    gone = (
        f"{verb} {count(report.files_removed, 'file')}, {human_bytes(report.bytes_removed)} and "
        f"{count(report.folders_removed, 'empty folder')}"
    )
    facts = [("Had gone already", count(report.already_gone, "file"))] if report.already_gone else []
    if report.quarantine_id is not None:
        facts.append(("Quarantine", f"{report.quarantine_id}; bring it back with --restore, empty it with --purge"))
    return View.of(
        f"orphans {report.uri} — {gone if report.files_removed or report.folders_removed else 'nothing removed'}",
        _reasons("Spared", report.spared),
        _reasons("Failed", report.failed),
        facts=facts,
    )


def quarantines_view(listed: QuarantineList) -> View:
    """The quarantines of a graph. Pure."""
    rows = tuple(
        (q.quarantine_id, moment(q.created_at_us), count(q.files, "file"), human_bytes(q.bytes))
        for q in listed.quarantines
    )
    section = Section.table("Quarantines", ("Quarantine", "Made", "Files", "Size"), rows)
    problems = Section(title="Damaged", lines=tuple(q.problem for q in listed.quarantines if q.problem is not None))
    return View.of(f"orphans {listed.uri} — {count(len(listed.quarantines), 'quarantine')}", section, problems)


def quarantine_view(report: QuarantineReport) -> View:
    """What became of one quarantine. Pure."""
    done = {"preview": "holds", "purged": "deleted", "restored": "restored"}[report.action]
    return View.of(
        f"orphans {report.uri} — quarantine {report.quarantine_id}: {done} {count(report.files, 'file')}, "
        f"{human_bytes(report.bytes)}",
        _reasons("Failed", report.failed),
    )


def _reasons(title: str, files: Sequence[SparedFile]) -> Section:
    return Section.table(title, ("File", "Why"), ((f.path, f.reason) for f in files), most=_MOST_ROWS)
