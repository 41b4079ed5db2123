"""Orphan removal as a stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.models.orphans import OrphanFile, OrphansPlan, OrphansReport
from omnigraph_ops.models.runs import Outcome
from omnigraph_ops.outcomes.of_reports import of_orphans
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import duration
from omnigraph_ops.stages.orphans.request import SAFE_AGE_SECONDS, OrphansRequest
from omnigraph_ops.stages.orphans.view import plan_view, question, report_view
from omnigraph_ops.stages.stage import WRITERS_REFUSED, Effect, FormField, Measure, PlannedStage, Submit, TaskIds
from omnigraph_ops.views.view import Question, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class Orphans(PlannedStage[OrphansRequest, OrphansPlan, OrphansReport]):
    """Removes files that nothing refers to."""

    name = "orphans"
    effect = Effect.DESTROYS
    summary = "Remove files that no version, branch or tag refers to. Without --confirm it prints the plan."
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

    def plan(self, graph: Graph, request: OrphansRequest, tell: Progress) -> OrphansPlan:
        """Which files go, by a listing of the store or an inventory of it. Reads."""
        from omnigraph_ops.stages.orphans.plan import plan_orphans

        listing = None if request.listing is None else _local_file(request.listing)
        return plan_orphans(
            graph,
            older_than_seconds=request.older_than,
            quarantine=request.quarantine,
            listing=listing,
            progress=tell,
        )

    def plan_on_spark(self, graph: Graph, request: OrphansRequest, tell: Progress, submit: Submit) -> OrphansPlan:
        """The same; from the threshold on by the job `orphans`, the files of the plan in parts. Writes them."""
        from omnigraph_ops.graph.layout import new_ulid
        from omnigraph_ops.stages.orphans.parts import folder_of
        from omnigraph_ops.stages.orphans.size import known_files

        least = graph.settings.spark_from(self.name) or 0
        if least and (known := known_files(graph)) < least:
            tell(f"planned in this process: the graph is known to have {known:,} files, Spark is for {least:,} or more")
            return self.plan(graph, request, tell)
        if request.listing is not None:
            request = request.model_copy(update={"listing": str(_local_file(request.listing))})
        plan_id = new_ulid()
        words = ("--graph", graph.target, "--plan-id", plan_id, "--request", request.said)
        try:
            return submit(self.name, words, OrphansPlan, graph.run.check)
        except BaseException:
            graph.storage.delete_tree(folder_of(plan_id))
            raise

    def apply(self, graph: Graph, plan: OrphansPlan, tell: Progress, *, force: bool = False) -> OrphansReport:
        """Delete the planned files that still nothing refers to, or move them to quarantine. Destroys."""
        from omnigraph_ops.stages.orphans.apply import apply_orphans

        return apply_orphans(graph, plan, progress=tell)

    def nothing_to_do(self, plan: OrphansPlan) -> str | None:
        return None if plan.total_files or plan.folders else "no unreferenced files that are old enough"

    def too_young(self, of: OrphansRequest | OrphansPlan, *, asked: bool = False) -> str | None:
        age = of.older_than if isinstance(of, OrphansRequest) else of.older_than_secs
        # Planning itself takes nothing below an hour on a graph where others write.
        if asked or age >= SAFE_AGE_SECONDS:
            return None
        return (
            f"a file younger than {self.age} may belong to a long write; nothing was deleted; give at least {self.age}"
        )

    def attention(self, plan: OrphansPlan, drift: Sequence[DriftFinding] | None) -> list[str]:
        unread = [f"{skipped.path} was not searched for orphans: {skipped.reason}" for skipped in plan.skipped]
        unknown = f"{plan.unknown_files} unknown file(s) lie in the graph; they are never removed"
        return [*unread, unknown] if plan.unknown_files else unread

    def size(self, plan: OrphansPlan) -> tuple[int, int]:
        return plan.total_files, plan.total_bytes

    def files(self, plan: OrphansPlan) -> Sequence[OrphanFile]:
        return plan.shown_files

    def view(self, value: OrphansPlan | OrphansReport) -> View:
        return plan_view(value) if isinstance(value, OrphansPlan) else report_view(value)

    def question(self, plan: OrphansPlan, *, force: bool = False) -> Question:
        return question(plan)

    def outcome(self, report: OrphansReport) -> Outcome:
        return of_orphans(report)


def _local_file(address: str) -> Path:
    """Where an inventory is on this machine. Reads the working directory."""
    from omnigraph_ops.storage.location import locate

    place = locate(address)
    if not place.is_local:
        raise InvalidInput(f"the inventory {address} is not on this machine; nothing was deleted; copy it here")
    return Path(place.root)
