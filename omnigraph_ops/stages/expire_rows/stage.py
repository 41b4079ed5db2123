"""Row expiry as a stage: policies as people write them, its question, and views of its plans and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, model_validator

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.models.rows import (
    EpochUnit,
    RowBounds,
    RowPolicy,
    RowRetentionPlan,
    RowRetentionReport,
    TableRowPlan,
    TableRowStats,
    distinct,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import count, moment
from omnigraph_ops.requests import Option, Positive, Request, Seconds
from omnigraph_ops.stages.stage import Effect, FormField, PlannedStage, Submit, TaskIds
from omnigraph_ops.views.markdown import by_cause, counted, human_seconds, sealed_facts
from omnigraph_ops.views.view import Question, Section, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

_RECLAIM = (
    "The rows are marked as deleted and still stored: `optimize --purge-deleted` rewrites the fragments and indexes "
    "that hold them, and cleanup removes the versions before, after which no version can bring them back."
)


def _age(seconds: int) -> int:
    if seconds == 0:
        raise ValueError("the age must be more than zero")
    return seconds


class RowPolicyEntry(Request):
    """One policy, as in `{table: node:Event, property: happened_at, older_than: 90d}`."""

    table: Annotated[str, Field(min_length=1), Option(metavar="KEY")]
    """Table key, as in `node:Event`; `table:items` in plain Lance."""
    property: Annotated[str, Field(min_length=1), Option(metavar="NAME")]
    """A Date, a DateTime or, with `unit`, an integer."""
    older_than: Annotated[Seconds, AfterValidator(_age), Option(metavar="DURATION")]
    """Rows with an older value go, as in `90d`."""
    unit: EpochUnit | None = None
    """What an integer counts since 1970."""

    def policy(self) -> RowPolicy:
        """The policy that is meant. Pure."""
        return RowPolicy(
            table_key=self.table,
            property=self.property,
            older_than_secs=self.older_than,
            unit=self.unit,
        )


class ExpireRowsRequest(Request):
    """Delete rows that are older than a policy allows."""

    policies: Annotated[tuple[RowPolicyEntry, ...], Option(metavar="FILE", section="Policies")] = ()
    """A list of policies, as in `[{"table": "node:Event", "property": "happened_at", "older_than": "90d"}]`."""
    max_share: Annotated[float, Field(gt=0, le=1), Option(metavar="SHARE", decides=True)] = 0.5
    """Refuse a table that would lose a larger share of its rows."""
    max_rows: Annotated[Positive | None, Option(metavar="N")] = None
    """Refuse a table of which more than N rows would go; without it, as many go as were planned."""
    branch: Annotated[str | None, Field(min_length=1), Option(metavar="NAME")] = None
    """A branch instead of main."""

    @model_validator(mode="after")
    def _distinct(self) -> ExpireRowsRequest:
        try:
            _ = self.row_policies
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def row_policies(self) -> tuple[RowPolicy, ...]:
        """The policies by table; `InvalidInput` when there is none, or two for one table. Pure."""
        return distinct(entry.policy() for entry in self.policies)

    @property
    def branch_name(self) -> str | None:
        """None for main, which has no name. Pure."""
        return None if self.branch == "main" else self.branch


class ExpireRows(PlannedStage[ExpireRowsRequest, RowRetentionPlan, RowRetentionReport]):
    """Deletes rows that are older than a policy allows."""

    name = "expire-rows"
    effect = Effect.DESTROYS
    summary = "Delete rows that are older than a policy allows. Without --confirm it prints the plan."
    examples = ("g.omni --policies rows.yaml --save-plan plan.json", "g.omni --plan plan.json --confirm")
    unharmed = "nothing was deleted"
    request = ExpireRowsRequest
    plan_type = RowRetentionPlan
    report_type = RowRetentionReport
    tasks = TaskIds(plan="plan_row_retention", approve="approve_row_retention", apply="expire_rows")
    dag_id = "omnigraph_row_retention"
    uses_engine = True
    applies_on_spark = True
    keeps_previews = True

    spark_help = "Delete in tasks on this Spark master; only of plain Lance, on a graph the engine deletes."
    about = (
        "On a graph the engine deletes: `OMNIGRAPH_OPS_ENGINE` names its binary on the workers. The bytes come back "
        "with optimize and cleanup."
    )
    form = (
        FormField(name="max_share", title="At most this share of a table"),
        FormField(name="max_rows", title="At most so many rows of a table"),
    )

    def plan(
        self, graph: Graph, request: ExpireRowsRequest, tell: Progress, submit: Submit | None = None
    ) -> RowRetentionPlan:
        """Which rows expire; with an engine named, also for what that release can delete. Reads."""
        from omnigraph_ops.stages.expire_rows.apply import engine_of
        from omnigraph_ops.stages.expire_rows.plan import plan_row_retention

        return plan_row_retention(
            graph,
            request.row_policies,
            bounds=RowBounds(max_share=request.max_share, max_rows=request.max_rows),
            branch=request.branch_name,
            engine=engine_of(graph) if graph.settings.engine else None,
        )

    def apply(
        self, graph: Graph, plan: RowRetentionPlan, tell: Progress, submit: Submit | None = None, *, force: bool = False
    ) -> RowRetentionReport:
        """Delete the planned rows that are still below the cuts. Destroys rows.

        On plain Lance the job `expire` finds the rows of tables above the threshold.
        """
        from omnigraph_ops.stages.expire_rows.apply import SubmittedDelete, delete_here, engine_of, expire_rows

        least = graph.settings.spark_from(self.name) or 0
        delete = delete_here if submit is None else SubmittedDelete(submit=submit, graph=graph, from_rows=least)
        return expire_rows(graph, plan, engine=engine_of(graph), delete=delete, progress=tell)

    def told(self, graph: Graph, unit: Unit) -> RowRetentionReport | None:
        from omnigraph_ops.stages.expire_rows.apply import expired

        done = expired(graph, unit)
        if done is None:
            return None
        return RowRetentionReport(uri=graph.uri, branch=unit.branch or None, digest=unit.digest, tables=(done,))

    def removed(self, report: RowRetentionReport) -> list[str]:
        return [count(report.rows_removed, "row")] if report.rows_removed else []

    def check_ready(self, graph: Graph) -> None:
        from omnigraph_ops.stages.expire_rows.apply import engine_of

        engine_of(graph)

    def nothing_to_do(self, plan: RowRetentionPlan) -> str | None:
        return None if plan.total_rows else "no rows that are older than the policies and inside the bounds"

    def attention(self, plan: RowRetentionPlan, drift: Sequence[DriftFinding] | None) -> list[str]:
        refused = ((t.table_key, t.refused) for t in plan.tables if t.refused)
        return list(by_cause(("", key, f"keeps its expired rows: {why}") for key, why in refused))

    def size(self, plan: RowRetentionPlan) -> tuple[int, int]:
        return plan.total_rows, 0

    def view(self, value: RowRetentionPlan | RowRetentionReport) -> View:
        return plan_view(value) if isinstance(value, RowRetentionPlan) else report_view(value)

    def question(self, plan: RowRetentionPlan, *, force: bool = False) -> Question:
        """What a person is asked about row expiry. Pure."""
        rows, edges = count(plan.total_rows, "row"), count(plan.total_edges, "edge")
        target = plan.uri + (f", branch {plan.branch}" if plan.branch else "")
        return Question(
            subject=f"Delete {count(plan.total_rows, 'expired row')} and {plan.total_edges:,} of their edges?",
            intro=f"Row retention of {target} deletes {rows} and {edges} of theirs.",
            on_approve="rows below these cuts are deleted. They are counted again at that moment: a row that was "
            "updated since stays, and a table with more rows below its cut than planned keeps them all.",
            on_reject="nothing is deleted.",
            notes=(_RECLAIM,),
        )


def plan_view(plan: RowRetentionPlan) -> View:
    """Which rows expire, and what goes with them. Pure."""
    going = [t for t in plan.tables if t.refused is None]
    where = f" branch {plan.branch}" if plan.branch else ""
    header = ("Table", "Rows deleted", "Rows", "Share", "Rule", "Below", "Oldest", "Newest", "Never more than")
    edges = tuple((t.table_key, e.table_key, counted(e.rows)) for t in going for e in t.edges if e.rows)
    return View.of(
        f"expire-rows {plan.uri}{where} — {count(plan.total_rows, 'row')}, {count(plan.total_edges, 'edge')} "
        f"go, at most {100 * plan.max_share:g}% of a table",
        Section.table("Tables", header, (_row_cells(t) for t in plan.tables)),
        Section.table("Edges that go with them", ("Nodes", "Edges", "How many"), edges),
        Section.table(
            "Some of the rows", ("Table", "Keys"), ((t.table_key, ", ".join(t.sample)) for t in going if t.sample)
        ),
        facts=(
            ("Deletes", f"{count(plan.total_rows, 'row')} and {plan.total_edges:,} of their edges"),
            ("Branch", plan.branch or "main"),
            *sealed_facts(plan),
        ),
    )


def _row_cells(table: TableRowPlan) -> tuple[str, ...]:
    return (
        table.table_key,
        f"refused: {table.refused}" if table.refused else counted(table.expired),
        counted(table.rows),
        f"{table.share:.1%}",
        f"{table.policy.property} older than {human_seconds(table.policy.older_than_secs)}",
        moment(table.cut_at_us),
        *("" if end is None else moment(end) for end in (table.oldest_us, table.newest_us)),
        counted(table.max_rows),
    )


def report_view(report: RowRetentionReport) -> View:
    """What was deleted, refused and failed, and what is still to do. Pure."""
    header = ("Table", "Outcome", "Edges that went with them", "Attempts", "Came below the cut meanwhile")
    return View.of(
        f"expire-rows {report.uri} — {count(report.rows_removed, 'row')} and "
        f"{count(report.edges_removed, 'edge')} deleted",
        Section.table("Tables", header, map(_stats, report.tables)),
        Section(title="Storage", lines=(_RECLAIM,) if report.rows_removed else ()),
    )


def _stats(stats: TableRowStats) -> tuple[str, ...]:
    if stats.refused or stats.error:
        why = f"refused: {stats.refused}" if stats.refused else f"failed: {stats.error}"
        return (stats.table_key, why, "", "", "")
    return (
        stats.table_key,
        f"{count(stats.rows_removed, 'row')} deleted",
        ", ".join(f"{e.table_key} {e.rows:,}" for e in stats.edges if e.rows),
        str(stats.attempts) if stats.attempts > 1 else "",
        count(stats.rows_left, "row") if stats.rows_left else "",
    )
