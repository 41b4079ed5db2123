"""What a stage is. The shell, the DAGs, the page, the history and the reference know stages only by this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from omnigraph_ops.models.outcomes import Sealable, StageReport
from omnigraph_ops.outcomes.results import Recorded
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import count
from omnigraph_ops.requests import Q
from omnigraph_ops.views.markdown import some
from omnigraph_ops.views.view import Question, View

if TYPE_CHECKING:
    from omnigraph_ops.config.settings import Settings
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.models.health import DriftFinding

P = TypeVar("P", bound=Sealable)
R = TypeVar("R")
"""The report of a stage."""
D = TypeVar("D", bound=StageReport)
"""The report of a stage that plans first."""


T = TypeVar("T")


class Submit(Protocol):
    """Runs one job of the Spark application and waits for it."""

    def __call__(self, job: str, arguments: Sequence[str], value: type[T], check: Callable[[], None]) -> T:
        """What the job returned. The effect of the job.

        Args:
            check: called while the job runs; whatever it raises ends the submit.

        Raises:
            StorageError: the job failed, and the same submit may succeed later.
            OpsError: the job failed.
        """


class Effect(StrEnum):
    """What a stage may do to a graph: decides about consent, approval and locks."""

    READS = "reads"
    PUBLISHES = "publishes"
    WRITES = "writes"
    DESTROYS = "destroys"


WRITERS_REFUSED = "Hold the engine's schema-apply lock meanwhile, so that its writers are refused"
"""The help of `--fence` for most stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIds:
    """What the tasks of a stage are called in every DAG; a DAG that has the first one has the stage."""

    plan: str
    approve: str = ""
    """Empty, here and below: there is no such task."""
    apply: str = ""
    others: tuple[str, ...] = ()
    """Those that do the work of a stage which asks nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Something that a person may ask for beyond what a plan does by itself."""

    title: str
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How large a plan is, for bounds below which a confirmation alone is enough."""

    noun: str
    """Plural of what is counted."""
    default: int
    """How many of them the trigger form offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """How a field of the request stands in a trigger form, where that is not as the request says."""

    name: str
    title: str = ""
    default: Any = None
    """None, and an empty title: those of the request."""
    instead: str = ""
    """A field that stands in its place: where that is filled in, the default of this one is nobody's choice."""


class Stage(ABC, Recorded[R], Generic[Q, R]):
    """One thing that this tool does to a graph. Stages are stateless; importing one loads no Lance.

    Its name is the verb, the audit entry, and the addresses of the page.
    """

    effect: ClassVar[Effect]
    summary: ClassVar[str]
    """One line of help."""
    examples: ClassVar[tuple[str, ...]]
    """What a person types after the verb."""
    does: ClassVar[str] = ""
    """What it does to a graph, as in `publishes the heads of drifted tables`, for the question about consent.

    A stage that nobody has to approve asks for consent only where this says something.
    """
    unharmed: ClassVar[str] = "nothing was done"
    """What is true when it is refused."""
    panel: ClassVar[str] = ""
    """Heading of its verb in the help; empty: by its effect."""
    request: type[Q]
    form: ClassVar[tuple[FormField, ...]] = ()
    """The fields of the request that stand otherwise in a trigger form."""
    fence_help: ClassVar[str] = ""
    """What `--fence`, which keeps the engine's writers away, does for it; empty: it has no such option."""
    spark_help: ClassVar[str] = ""
    """What `--spark MASTER` does for it; empty: it has no such option."""

    @abstractmethod
    def view(self, value: Any) -> View:
        """A plan or a report of this stage for a person. Pure."""


class RunStage(Stage[Q, R]):
    """A stage that nobody has to approve."""

    tasks: ClassVar[TaskIds | None] = None
    """None: no DAG has a section about it in its report."""
    recorded: ClassVar[bool] = True
    """Whether the history keeps its runs, of a stage that does more than read."""

    @abstractmethod
    def run(self, graph: Graph, request: Q, tell: Progress, submit: Submit | None = None) -> R:
        """Do it; returns the report.

        Args:
            submit: submits its heavy part, where it has a job for that; None: this process does it all.
        """

    def settings(self, request: Q, settings: Settings) -> Settings:
        """The settings of the deployment with what the request says otherwise. Pure."""
        return settings

    def problem(self, report: R) -> str:
        """What went wrong, what was not harmed and what to do next; empty: nothing went wrong. Pure."""
        return ""

    def exit_code(self, report: R) -> int:
        """What the shell exits with where nothing went wrong. Pure."""
        return 0


def not_read(tables: Sequence[str]) -> str:
    """The problem of a verb that only looks: tables that it could not look at, empty where there are none. Pure."""
    if not tables:
        return ""
    many, named = count(len(tables), "table"), some(tables)
    return f"{many} cannot be read: {named}; nothing was written; run `omnigraph-ops check`"


class PlannedStage(Stage[Q, D], Generic[Q, P, D]):
    """A stage that plans first: the plan is sealed, a person may approve it, and it is applied unchanged."""

    plan_type: type[P]
    tasks: ClassVar[TaskIds]
    dag_id: ClassVar[str]
    """Of the DAG that a person triggers."""
    measure: ClassVar[Measure | None] = None
    """None: no bounds limit what a confirmation alone covers."""
    routine: ClassVar[str] = ""
    """Without a measure: what a confirmation alone does, as in `verified maintenance is published`; empty: nothing."""
    switch: ClassVar[Switch | None] = None
    about: ClassVar[str] = ""
    """What the page about its DAG says beside the tasks, as Markdown."""
    button: ClassVar[str] = ""
    """What leads to its form on the page of a graph; empty: nothing does, because the form has to be filled in."""
    age: ClassVar[str] = ""
    """Below which age `--allow-young` is needed, as in `1h`; empty: there is no such age."""
    younger_in_forms: ClassVar[bool] = False
    """Whether the form of its DAG has that switch, too; else only the shell takes a younger age."""
    uses_engine: ClassVar[bool] = False
    """Whether the engine's own binary does the work, which `--engine` may name."""
    applies_on_spark: ClassVar[bool] = False
    """Whether a job does the heavy part of its apply; of the other stages with jobs, of their plan."""
    keeps_previews: ClassVar[bool] = False
    """Whether a preview is kept in the graph, so that `--plan DIGEST` finds it."""

    @abstractmethod
    def plan(self, graph: Graph, request: Q, tell: Progress, submit: Submit | None = None) -> P:
        """What it would do. Reads.

        Args:
            submit: submits its heavy part, where planning has a job for that; None: this process does it all.
        """

    def check_ready(self, graph: Graph) -> None:
        """Raise `OpsError` if no plan could be applied here, for want of something outside of the graph. Reads."""

    @abstractmethod
    def apply(self, graph: Graph, plan: P, tell: Progress, submit: Submit | None = None, *, force: bool = False) -> D:
        """Carry out the plan unchanged, after checking its preconditions again.

        Args:
            submit: submits its heavy part, where it has a job for that; None: this process does it all.
            force: the switch is on.
        """

    @abstractmethod
    def nothing_to_do(self, plan: P) -> str | None:
        """Why nobody needs to be asked about the plan, None when somebody does. Pure."""

    def left_by_default(self, plan: P) -> str | None:
        """What the plan shows and leaves alone unless its switch is on, None when that is nothing. Pure."""
        return None

    @abstractmethod
    def question(self, plan: P, *, force: bool = False) -> Question:
        """What a person is asked. Pure."""

    def is_routine(self, plan: P) -> bool:
        """Whether the whole plan is of the routine that a confirmation alone covers. Pure."""
        return False

    def is_carried_out(self, plan: P, report: D) -> bool:
        """Whether an earlier attempt with this report has done the whole plan, which cannot be done again. Pure."""
        return False

    def attention(self, plan: P, drift: Sequence[DriftFinding] | None) -> Sequence[str]:
        """What a plan leaves for a person to look at. Pure.

        Args:
            drift: tables that are ahead of what is published when the run ends; None: nobody could look.
        """
        return ()

    def left_out(self, plan: P) -> D | None:
        """The report on tables that a plan leaves out because they are damaged; None: there are none. Pure.

        They count as failed in a run that carries out the plan, or whose plan has nothing else to do.
        """
        return None

    def failures(self, report: D) -> Sequence[str]:
        """What failed, a sentence each. Any of it makes a run fail. Pure."""
        outcome = report.outcome()
        return (*(f"{t.table_key}: {t.error}" for t in outcome.tables if t.error is not None), *outcome.failures)

    def removed(self, report: D) -> Sequence[str]:
        """What it removed, each kind as in `3 rows`, for the audit log. Pure."""
        return ()

    def preview(self, plan: P) -> object:
        """What the shell prints of a plan, as JSON or as its view. Pure."""
        return plan

    def size(self, plan: P) -> tuple[int, int]:
        """How many of the measure's things go, and how many bytes. Pure."""
        return 0, 0

    def files(self, plan: P) -> Sequence[Any]:
        """Every file that goes, with `path` and `size`. Pure."""
        return ()

    def terms(self, of: Q | P) -> str:
        """The policy in a phrase, empty when there is none. Pure."""
        return ""

    def warnings(self, of: Q | P) -> tuple[str, ...]:
        """What a person should hear before anything is planned or carried out. Pure."""
        return ()

    def too_young(self, of: Q | P) -> str | None:
        """Why its age needs `--allow-young`, None when it does not. Pure."""
        return None


class PartedStage(PlannedStage[Q, P, D]):
    """A planned stage of which each part can be done by itself: a DAG maps one task over lots of them."""

    @abstractmethod
    def parts_in(self, report: D) -> Sequence[str]:
        """The parts about which a report says anything. Pure."""

    @abstractmethod
    def parts(self, plan: P) -> Sequence[str]:
        """The parts that have work, in the order of their turn. Pure."""

    @abstractmethod
    def apply_part(self, graph: Graph, plan: P, part: str) -> D:
        """Carry out one part of the plan unchanged, after checking its preconditions again."""

    def side_by_side(self, settings: Settings) -> int:
        """How many parts may be carried out at once, in threads of one process. Pure."""
        return 1


AnyPlanned = PlannedStage[Any, Any, Any]
AnyRun = RunStage[Any, Any]
