"""Freeze as a stage; freezes, holds and lists of files as views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from omnigraph_ops.models.freeze import (
    DEFAULT_TTL_SECONDS,
    CutFile,
    CutFiles,
    FileRow,
    Freeze,
    HoldList,
    HoldState,
    ListedHold,
    UnfreezeReport,
)
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import age, count, human_bytes, moment_at
from omnigraph_ops.requests import Option, Seconds, TablesRequest
from omnigraph_ops.stages.stage import Effect, FormField, RunStage, Submit
from omnigraph_ops.views.view import Section, View

if TYPE_CHECKING:
    from omnigraph_ops.coordination.holds import Hold
    from omnigraph_ops.graph import Graph


class FreezeRequest(TablesRequest):
    """Keep the graph, with all its branches, as it is now."""

    ttl: Annotated[Seconds, Option(metavar="DURATION")] = DEFAULT_TTL_SECONDS
    """End the freeze after this, as in `12h`, even if its run was killed."""
    reason: Annotated[str, Option(metavar="TEXT")] = ""
    """Shown to everybody whom the freeze stops."""
    owner: Annotated[str, Option(shell=False, form=False)] = ""
    """Whose freeze it is; empty: the user's at this shell."""


class FreezeStage(RunStage[FreezeRequest, Freeze]):
    """Keeps a graph as it is."""

    name = "freeze"
    effect = Effect.WRITES
    summary = "Keep the graph, with all its branches, as it is now readable until the freeze ends."
    examples = ("g.omni --ttl 12h", "s3://bucket/g.omni --table node:Person --yes")
    does = "keeps the graph as it is and stops its maintenance"
    unharmed = "nothing was frozen"
    panel = "Backup"
    recorded = False
    request = FreezeRequest
    fence_help = "Keep engine writers away while the freeze is taken: all branches at one instant."
    form = (FormField(name="ttl", title="Frozen at most"),)

    def run(self, graph: Graph, request: FreezeRequest, tell: Progress, submit: Submit | None = None) -> Freeze:
        """Freeze. Writes tags and a hold."""
        from omnigraph_ops.stages.freeze.take import freeze_graph

        return freeze_graph(
            graph,
            tables=request.tables,
            ttl_seconds=float(request.ttl),
            reason=request.reason,
            owner=request.owner or None,
            progress=tell,
        )

    def view(self, value: Freeze) -> View:
        """What was frozen, by which cut, and how to go on. Pure."""
        cut = value.cut
        what = ", ".join(value.tables) if value.tables else count(len(cut.datasets), "dataset")
        facts = [("id", value.freeze_id)]
        if not cut.one_instant and cut.branches:
            busy = "each branch is exact, but writers were too busy to see all of them at one instant"
            facts.append(("Branches", busy))
        tagged = count(len(cut.pins), "version")
        facts.append(("Tagged", f"{tagged}; `omnigraph-ops files {value.uri} --freeze {value.freeze_id}`"))
        branches = tuple((b.branch or "main", str(b.manifest_version)) for b in cut.branches)
        return View.of(
            f"freeze {value.uri} — {what} until {moment_at(value.expires_at)}",
            Section.table("Branches", ("Branch", "Graph version"), branches),
            facts=facts,
        )


def unfreeze_view(report: UnfreezeReport) -> View:
    """What was ended. Pure."""
    ended = ", ".join(report.released) or "nothing"
    return View(title=f"released {ended} of {report.uri}, {count(report.tags_removed, 'tag')} removed")


def hold_view(uri: str, hold: Hold) -> View:
    """A hold that was just taken. Pure."""
    return View(title=f"hold {uri} — {hold.hold_id} until {moment_at(hold.expires_at)}")


def holds_view(listed: HoldList) -> View:
    """Who holds what until when, and what of a cut is gone or cannot be read. Pure."""
    gone = tuple(
        (hold.hold_id, p.path, p.branch or "main", str(p.version), p.reason)
        for hold in listed.holds
        for p in hold.problems
    )
    header = ("Hold", "Kind", "What", "By", "Since", "Until", "Why")
    return View.of(
        f"holds {listed.uri} — {len(listed.holds)}",
        Section.table("Holds", header, map(_cells, listed.holds)),
        Section.table("Gone or unreadable", ("Hold", "Path", "Branch", "Version", "Why"), gone),
        Section(title="Ended and removed", lines=listed.swept),
    )


def _cells(hold: ListedHold) -> tuple[str, ...]:
    if hold.state is HoldState.UNKNOWN:
        return (hold.hold_id, hold.kind, hold.what, "", "", "", hold.reason)
    state = " (starting)" if hold.state is HoldState.STARTING else ""
    return (
        hold.hold_id,
        f"{hold.kind}{state}",
        hold.what,
        hold.owner,
        age(hold.age_seconds or 0),
        moment_at(hold.expires_at or 0),
        hold.reason,
    )


def file_list(graph: Graph, freeze_id: str, files: Sequence[CutFile]) -> CutFiles:
    """The list as a person or a script reads it. Pure."""
    return CutFiles(
        uri=graph.target,
        freeze_id=freeze_id,
        files=tuple(
            FileRow(
                file=f.file,
                normalized=graph.storage.uri(f.source),
                size=f.size,
                kind=f.kind,
                records_root=f.records_root,
                checksum=f.checksum,
            )
            for f in files
        ),
    )


def files_view(listed: CutFiles) -> View:
    """The files of a cut, in the columns that a script reads as CSV. Pure."""
    header = ("file", "normalized", "size", "kind", "records_root", "checksum")
    rows = tuple(
        (f.file, f.normalized, str(f.size), f.kind, str(f.records_root).lower(), f.checksum or "") for f in listed.files
    )
    return View(
        title=f"files {listed.uri} — {count(len(listed.files), 'file')}, {human_bytes(listed.total_bytes)}",
        # With its header where there is no file: a script reads it.
        sections=(Section.table("Files", header, rows),),
    )
