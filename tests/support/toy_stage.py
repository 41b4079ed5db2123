"""A stage of the tests: it shelves a marker below `__maintenance/`, and no module of the product has heard of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import pytest

from omnigraph_ops.coordination import sealed
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models.cleanup import PlannedFile
from omnigraph_ops.models.history import Work
from omnigraph_ops.models.outcomes import Outcome, StageReport
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes.results import STAGES
from omnigraph_ops.progress import Progress
from omnigraph_ops.requests import Option, Positive, Request
from omnigraph_ops.stages.registry import BY_NAME
from omnigraph_ops.stages.stage import Effect, FormField, Measure, PlannedStage, Submit, TaskIds
from omnigraph_ops.views.markdown import sealed_facts
from omnigraph_ops.views.view import Question, Section, View

SHELF = "__maintenance/shelf"


class ShelveRequest(Request):
    """Put markers on the shelf."""

    markers: Annotated[Positive, Option(metavar="N", decides=True)] = 2
    """Put so many markers on the shelf."""
    label: Annotated[str, Option(metavar="TEXT")] = "toy"
    """Write this on every marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelvePlan:
    """Which markers will be put there."""

    uri: str
    planned_at_us: int
    expires_at_us: int
    markers: tuple[str, ...]
    label: str
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelveReport(StageReport):
    """Which markers were put there."""

    stage = "shelve"
    uri: str
    markers: tuple[str, ...]

    def outcome(self, plan: object = None) -> Outcome:
        detail = f"{len(self.markers)} markers shelved"
        return Outcome(stage=self.stage, detail=detail, changed=bool(self.markers), work=Work(files_removed=0))

    def then(self, later: ShelveReport) -> ShelveReport:
        return replace(later, markers=(*self.markers, *later.markers))


class Shelve(PlannedStage[ShelveRequest, ShelvePlan, ShelveReport]):
    """Puts markers on a shelf."""

    name = "shelve"
    effect = Effect.DESTROYS
    summary = "Put markers on the shelf of a graph."
    examples = ("g.omni",)
    unharmed = "nothing was shelved"
    request = ShelveRequest
    plan_type = ShelvePlan
    report_type = ShelveReport
    tasks = TaskIds(plan="plan_shelve", approve="approve_shelve", apply="shelve")
    dag_id = "omnigraph_shelve"
    measure = Measure(noun="markers", default=1)
    form = (FormField(name="label", title="Label of the markers"),)
    button = "Shelve markers"

    def plan(self, graph: Graph, request: ShelveRequest, tell: Progress, submit: Submit | None = None) -> ShelvePlan:
        """Name the markers. Reads."""
        now = now_us()
        return sealed.seal(
            ShelvePlan(
                uri=graph.uri,
                planned_at_us=now,
                expires_at_us=sealed.expiry(now, graph.settings),
                markers=tuple(f"marker-{number}" for number in range(request.markers)),
                label=request.label,
            )
        )

    def apply(
        self, graph: Graph, plan: ShelvePlan, tell: Progress, submit: Submit | None = None, *, force: bool = False
    ) -> ShelveReport:
        """Write the markers. Writes."""
        sealed.verify(plan, uri=graph.uri, consequence=self.unharmed)
        for number, marker in enumerate(plan.markers, start=1):
            files = (PlannedFile(path=marker, size=len(plan.label), kind="marker"),)
            unit = Unit(name=marker, stage=self.name, digest=plan.digest, files=files)
            graph.run.begins(unit)
            graph.storage.write(f"{SHELF}/{marker}", plan.label.encode())
            graph.run.ended(unit, ShelveReport(uri=graph.uri, markers=(marker,)))
            tell.at("shelving", number, len(plan.markers), "files")
        return ShelveReport(uri=graph.uri, markers=plan.markers)

    def nothing_to_do(self, plan: ShelvePlan) -> str | None:
        return None if plan.markers else "nothing to shelve"

    def size(self, plan: ShelvePlan) -> tuple[int, int]:
        return len(plan.markers), 0

    def view(self, value: ShelvePlan | ShelveReport) -> View:
        facts = sealed_facts(value) if isinstance(value, ShelvePlan) else ()
        section = Section(title="Markers", header=("Marker",), rows=tuple((marker,) for marker in value.markers))
        return View(title=f"shelve {value.uri} — {len(value.markers)} markers", facts=facts, sections=(section,))

    def question(self, plan: ShelvePlan, *, force: bool = False) -> Question:
        return Question(
            subject=f"Shelve {len(plan.markers)} markers?",
            intro=f"Markers with the label {plan.label} are put on the shelf.",
            on_approve="the markers are written.",
            on_reject="nothing is written.",
        )

    def told(self, graph: Graph, unit: Unit) -> ShelveReport:
        """The markers of the unit that are there. Reads."""
        there = set(graph.storage.list(SHELF))
        return ShelveReport(uri=graph.uri, markers=tuple(f.path for f in unit.files if f.path in there))

    def removed(self, report: ShelveReport) -> tuple[str, ...]:
        return (f"{len(report.markers)} gaps",)


def register(patch: pytest.MonkeyPatch) -> None:
    """Do what its line in the registry would."""
    patch.setitem(BY_NAME, Shelve.name, Shelve())
    patch.setitem(STAGES, Shelve.name, Shelve())
