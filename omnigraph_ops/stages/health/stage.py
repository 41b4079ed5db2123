"""Health as a stage, and its view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from omnigraph_ops.models.health import HealthReport, TableHealth, VectorHealth, VersionGap
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import count, human_bytes, moment
from omnigraph_ops.requests import Count, Option, TablesRequest
from omnigraph_ops.stages.stage import Effect, RunStage, Submit, not_read
from omnigraph_ops.views.markdown import some
from omnigraph_ops.views.view import Section, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

_HEADER = (
    *("Table", "Score", "What takes points off", "Small / all fragments", "Deleted", "Unindexed", "Versions"),
    *("Live", "Dead", "Maintained", "Note"),
)
_VECTOR_HEADER = (
    *("Index", "Kind", "Partitions / recommended", "Rows in smallest / largest", "Segments", "Unindexed", "Size"),
    *("Recall@1 / 10", "Bytes per query", "Drift", "Note"),
)


_SHOWN = 3
"""Branches that are named for one version."""


class HealthRequest(TablesRequest):
    """Score tables."""

    recall: Annotated[Count, Option(metavar="QUERIES")] = 0
    """Ask every vector index this many queries, for its recall and what they read. Reads samples of the vectors."""
    files: bool = False
    """Look for each data, deletion and index file of the versions that main and all branches publish. Lists folders."""


class Health(RunStage[HealthRequest, HealthReport]):
    """Scores every table."""

    name = "health"
    effect = Effect.READS
    summary = (
        "Score every table from 0 to 100, worst first. Writes nothing.\n\n"
        "Small fragments, deleted and unindexed rows, versions and dead bytes count. Reads metadata only, unless "
        "--recall asks for queries."
    )
    examples = ("g.omni", "s3://bucket/g.omni --files")
    request = HealthRequest

    def run(self, graph: Graph, request: HealthRequest, tell: Progress, submit: Submit | None = None) -> HealthReport:
        """Score. Reads."""
        from omnigraph_ops.stages.health.read import health

        return health(graph, tables=request.tables, recall=request.recall, files=request.files)

    def view(self, value: HealthReport) -> View:
        """One row per table, worst first. Pure."""
        overall = "unknown" if value.score is None else f"{value.score} of 100 by bytes"
        unread = sum(1 for table in value.tables if table.score is None)
        overall += f" without {unread} that cannot be read" if unread else ""
        section = Section.table("Tables", _HEADER, map(_cells, value.tables))
        rows = tuple(_vector(t.table_key, index) for t in value.tables for index in t.vectors)
        vectors = Section.table("Vector indexes", _VECTOR_HEADER, rows)
        stored = Section.table(
            "Internal tables",
            ("Table", "Versions", "Fragments", "Files", "Stored"),
            (
                (t.table_key, f"{t.versions:,}", f"{t.fragments:,}", f"{t.files:,}", human_bytes(t.stored_bytes))
                for t in value.internal
            ),
        )
        gone = Section.table(
            "Published and not all there",
            ("Table", "Version", "Published on", "What is gone"),
            map(_gap_cells, value.gaps or ()),
        )
        whole = "; every data, deletion and index file of their published versions is there" if value.gaps == () else ""
        return View.of(
            f"health {value.uri} — {count(len(value.tables), 'table')}, {overall}, worst first{whole}",
            gone,
            section,
            vectors,
            stored,
        )

    def problem(self, report: HealthReport) -> str:
        unread = not_read([table.table_key for table in report.tables if table.error is not None])
        failing = sum(index.recall_error is not None for table in report.tables for index in table.vectors)
        vectors = count(failing, "vector index", "vector indexes")
        queries = f"queries of {vectors} fail; see why in the rows" if failing else ""
        gaps = report.gaps or ()
        lost = _LOST if any(not gap.is_unknown and not gap.is_rebuildable for gap in gaps) else ""
        moved = _MOVED if any(gap.version is None for gap in gaps) else ""
        rebuildable = _REBUILDABLE if any(gap.is_rebuildable for gap in gaps) else ""
        unknown = _UNKNOWN if any(gap.is_unknown for gap in gaps) else ""
        return "; ".join(filter(None, (unread, queries, lost, moved, rebuildable, unknown)))


_LOST = (
    "files of published versions are gone: reads that need them fail; nothing was changed; restore the graph from a "
    "backup, or delete the branch if no other one publishes that version"
)
_MOVED = "before you delete a branch that cannot be read run `omnigraph-ops check`: the graph may only have been moved"
_REBUILDABLE = (
    "files of indexes are gone: every row can be read, queries that use these indexes fail; nothing was changed; "
    "`omnigraph-ops optimize` builds the indexes of main anew"
)
_UNKNOWN = "published versions could not be looked at, so files of them may be gone; run `omnigraph-ops check`"


def _gap_cells(gap: VersionGap) -> tuple[str, ...]:
    lacks = f"cannot be told: {gap.lacks}" if gap.is_unknown else gap.lacks
    return (gap.table_key, "" if gap.version is None else str(gap.version), some(gap.branches, _SHOWN), lacks)


def _cells(table: TableHealth) -> tuple[str, ...]:
    if table.score is None:
        return (table.table_key, "?", *[""] * 8, table.error or "")
    index = f" ({table.worst_index})" if table.unindexed_share and table.worst_index else ""
    return (
        table.table_key,
        str(table.score),
        ", ".join(f"{p.name} -{p.points:g} of {p.most}" for p in table.parts if p.points),
        f"{table.small_fragments} / {table.fragments} (cutoff {table.cutoff})",
        f"{table.deleted_share:.0%}",
        f"{table.unindexed_share:.0%}{index}",
        str(table.versions),
        human_bytes(table.data_bytes),
        "unknown" if table.dead_bytes is None else human_bytes(table.dead_bytes),
        "never recorded" if table.maintained_at_us is None else moment(table.maintained_at_us),
        table.note or "",
    )


def _vector(table_key: str, index: VectorHealth) -> tuple[str, ...]:
    asked = index.recall is not None and index.recall_at_1 is not None
    notes = ["deleted rows take places among the nearest; optimize folds it"] if index.dead_entries else []
    notes += [f"queries fail: {index.recall_error}"] if index.recall_error else []
    if index.problem:
        cost = "; of several partitions a query with `limit 1` reads one" if index.recommended > 1 else ""
        notes.append(f"{index.problem}; optimize --retrain-vectors mends that if its vectors allow{cost}")
    return (
        f"{table_key} {index.name}",
        f"{index.kind} {index.metric}",
        f"{index.partitions} / {index.recommended}",
        f"{index.smallest:,} / {index.largest:,}",
        str(index.segments),
        f"{index.uncovered_rows:,}",
        human_bytes(index.size_bytes),
        f"{index.recall_at_1:.2f} / {index.recall:.2f}" if asked else "not asked",
        human_bytes(index.bytes_per_query or 0) if asked else "",
        f"{index.drift:g}" if asked else "",
        "; ".join(notes),
    )
