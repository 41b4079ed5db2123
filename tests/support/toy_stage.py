"""A stage that is no part of the package: it marks a graph. Nothing outside of this file knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from omnigraph_ops.coordination import sealed
from omnigraph_ops.graph.ids import now_us
from omnigraph_ops.graph.layout import MAINTENANCE_DIR
from omnigraph_ops.models.outcome import Outcome
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.requests import Option, Request
from omnigraph_ops.stages.stage import Effect, FormField, Measure, PlannedStage, TaskIds, Tell
from omnigraph_ops.views.plan import sealed_facts
from omnigraph_ops.views.view import Question, Section, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

MARKS = f"{MAINTENANCE_DIR}/toy"


class ToyRequest(Request):
    """Mark a graph."""

    marks: Annotated[int, Field(ge=0)] = 1
    """Write so many marks."""
    color: Annotated[str | None, Option(section="Looks")] = None
    """In which color."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyPlan:
    """Which marks are written."""

    uri: str
    planned_at_us: int
    expires_at_us: int
    marks: tuple[str, ...]
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyReport:
    """Which marks were written."""

    uri: str
    marks: tuple[str, ...]


class Toy(PlannedStage[ToyRequest, ToyPlan, ToyReport]):
    """Writes marks below a graph's `__maintenance/`."""

    name = "toy"
    effect = Effect.WRITES
    summary = "Mark a graph. Without --confirm it prints the plan."
    request = ToyRequest
    plan_type = ToyPlan
    report_type = ToyReport
    tasks = TaskIds(plan="plan_toy", approve="approve_toy", apply="write_marks")
    dag_id = "omnigraph_toy"
    measure = Measure(noun="marks", default=5)
    form = (FormField(name="color", title="Color of the marks"),)
    button = "Mark the graph"

    def plan(self, graph: Graph, request: ToyRequest, tell: Tell) -> ToyPlan:
        """Which marks would be written. Reads the clock."""
        now = now_us()
        marks = tuple(f"{request.color or 'plain'}-{number}" for number in range(request.marks))
        expires = sealed.expiry(now, graph.settings)
        return sealed.seal(ToyPlan(uri=graph.uri, planned_at_us=now, expires_at_us=expires, marks=marks))

    def apply(self, graph: Graph, plan: ToyPlan, tell: Tell, *, force: bool = False) -> ToyReport:
        """Write them. Writes."""
        sealed.verify(plan, uri=graph.uri, consequence=self.unharmed)
        unit = Unit(name="marks", stage=self.name, digest=plan.digest)
        graph.run.begins(unit)
        for mark in plan.marks:
            graph.storage.write(f"{MARKS}/{mark}", b"")
            tell(f"wrote {mark}")
        graph.run.ended(unit, None)
        return ToyReport(uri=graph.uri, marks=plan.marks)

    def nothing_to_do(self, plan: ToyPlan) -> str | None:
        return None if plan.marks else "no marks were asked for"

    def size(self, plan: ToyPlan) -> tuple[int, int]:
        return len(plan.marks), 0

    def view(self, value: ToyPlan | ToyReport) -> View:
        facts = sealed_facts(value) if isinstance(value, ToyPlan) else ()
        section = Section(title="Marks", header=("Mark",), rows=tuple((mark,) for mark in value.marks))
        return View(title="Plan of some marks", facts=(("Marks", str(len(value.marks))), *facts), sections=(section,))

    def question(self, plan: ToyPlan, *, force: bool = False) -> Question:
        return Question(
            subject=f"Write {len(plan.marks)} marks?",
            intro="Marks lie below the graph and harm nothing.",
            on_approve="they are written.",
            on_reject="none is written.",
        )

    def outcome(self, report: ToyReport) -> Outcome:
        return Outcome(stage=self.name, detail=f"{len(report.marks)} marks written", changed=bool(report.marks))
