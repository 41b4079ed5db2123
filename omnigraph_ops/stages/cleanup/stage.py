"""Cleanup as a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph_ops.models import (
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    DriftFinding,
    OrphanedFork,
    PlannedFile,
)
from omnigraph_ops.models.history import Work
from omnigraph_ops.models.outcome import Outcome, TableOutcome
from omnigraph_ops.stages.cleanup.request import CleanupRequest, too_young
from omnigraph_ops.stages.cleanup.view import plan_view, question, report_view
from omnigraph_ops.stages.stage import Effect, FormField, Measure, PartedStage, TaskIds, Tell
from omnigraph_ops.views.view import Question, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.outcomes.history.results import RunResults

ORPHANED_FORKS = "orphaned forks"
"""The part of a plan that is about no table."""


class Cleanup(PartedStage[CleanupRequest, CleanupPlan, CleanupReport]):
    """Removes old versions and orphaned forks."""

    name = "cleanup"
    effect = Effect.DESTROYS
    summary = "Remove old versions. Without --confirm it prints the plan and deletes nothing."
    unharmed = "nothing was deleted"
    request = CleanupRequest
    plan_type = CleanupPlan
    report_type = CleanupReport
    tasks = TaskIds(plan="plan_cleanup", approve="approve_cleanup", apply="cleanup_table")
    dag_id = "omnigraph_cleanup"
    measure = Measure(noun="versions", default=1000)
    fences = True
    form = (
        FormField(name="keep", title="Keep newest versions", default=10),
        FormField(name="older_than", title="Remove only older than", default="7d"),
        FormField(name="expiry", title="Snapshot expiry"),
    )
    button = "Clean up versions"

    def plan(self, graph: Graph, request: CleanupRequest, tell: Tell) -> CleanupPlan:
        """Which versions go, and what holds the others. Reads."""
        from omnigraph_ops.stages.cleanup.plan import plan_cleanup

        return plan_cleanup(graph, request.policy, tables=request.tables)

    def apply(self, graph: Graph, plan: CleanupPlan, tell: Tell, *, force: bool = False) -> CleanupReport:
        """Remove exactly the planned versions and forks. Destroys."""
        from omnigraph_ops.stages.cleanup.apply import cleanup_all

        return cleanup_all(
            graph,
            plan,
            on_progress=lambda done: tell(
                f"{done.table_key}: "
                + (done.error or f"{done.old_versions_removed} versions, {done.bytes_removed} bytes removed")
            ),
        )

    def parts(self, plan: CleanupPlan) -> list[str]:
        """The tables with versions to remove, and the orphaned forks of all tables as one. Pure."""
        tables = [table.table_key for table in plan.tables if table.versions]
        return [*tables, ORPHANED_FORKS] if plan.orphaned_forks else tables

    def apply_part(self, graph: Graph, plan: CleanupPlan, part: str) -> CleanupReport:
        """Remove the planned versions of one table, or the planned forks. Destroys."""
        from omnigraph_ops.stages.cleanup.apply import cleanup_table, remove_orphaned_forks

        if part == ORPHANED_FORKS:
            return _report((), remove_orphaned_forks(graph, plan), graph.uri)
        return _report((cleanup_table(graph, plan, part),), (), graph.uri)

    def joined(self, reports: Sequence[CleanupReport]) -> CleanupReport:
        tables = [table for report in reports for table in report.tables]
        forks = [f for r in reports for f in (*r.orphaned_forks_removed, *r.orphaned_forks_failed)]
        return _report(tables, forks, reports[0].uri)

    def report_in(self, results: RunResults) -> CleanupReport | None:
        """Every part has left rows of its own. Pure."""
        return _report(results.cleanup, results.forks) if results.cleanup or results.forks else None

    def attention(self, plan: CleanupPlan, drift: Sequence[DriftFinding] | None) -> list[str]:
        return [f"{table.table_key} was not cleaned: {table.refused}" for table in plan.tables if table.refused]

    def failures(self, report: CleanupReport) -> list[tuple[str, str]]:
        forks = [(f"fork {fork.branch} of {fork.table_key}", fork.error) for fork in report.orphaned_forks_failed]
        rows = [(table.table_key, table.error) for table in report.tables]
        return [(what, why) for what, why in (*rows, *forks) if why is not None]

    def nothing_to_do(self, plan: CleanupPlan) -> str | None:
        return "nothing to remove" if plan.is_empty else None

    def too_young(self, of: CleanupRequest | CleanupPlan) -> str | None:
        return too_young(of.policy)

    def size(self, plan: CleanupPlan) -> tuple[int, int]:
        return plan.total_versions, plan.total_bytes

    def files(self, plan: CleanupPlan) -> Sequence[PlannedFile]:
        ours = [file for table in plan.tables for file in table.files]
        return [*ours, *(file for fork in plan.orphaned_forks for file in fork.files)]

    def view(self, value: CleanupPlan | CleanupReport) -> View:
        return plan_view(value) if isinstance(value, CleanupPlan) else report_view(value)

    def question(self, plan: CleanupPlan, *, force: bool = False) -> Question:
        return question(plan)

    def outcome(self, report: CleanupReport) -> Outcome:
        removed, forks = report.versions_removed, len(report.orphaned_forks_removed)
        failed = len(report.failed) + len(report.orphaned_forks_failed)
        return Outcome(
            stage=self.name,
            detail=f"{removed} versions and {forks} forks removed, {failed} failed",
            changed=bool(removed or forks),
            problem=_problem(report),
            tables=tuple(
                TableOutcome(
                    table_key=stats.table_key,
                    work=Work(versions_removed=stats.old_versions_removed, bytes_reclaimed=stats.bytes_removed),
                    changed=bool(stats.old_versions_removed),
                    error=stats.error,
                )
                for stats in report.tables
            ),
        )


def _report(tables: Sequence[CleanupStats], forks: Sequence[OrphanedFork], uri: str = "") -> CleanupReport:
    """The report of some parts. Pure."""
    return CleanupReport(
        uri=uri,
        keep_versions=None,
        older_than_secs=None,
        tables=tuple(tables),
        versions_removed=sum(table.old_versions_removed for table in tables),
        orphaned_forks_removed=tuple(fork for fork in forks if fork.error is None),
        orphaned_forks_failed=tuple(fork for fork in forks if fork.error is not None),
    )


def _problem(report: CleanupReport) -> str:
    if report.orphaned_forks_failed:
        return (
            f"{len(report.orphaned_forks_failed)} orphaned fork(s) could not be removed, no live branch is affected; "
            "run cleanup again"
        )
    if report.failed:
        return (
            f"cleanup failed for {len(report.failed)} of {len(report.tables)} table(s), nothing else is affected; "
            "resolve what their rows say and run cleanup again"
        )
    return ""
