"""What a graphs file says about a graph. Unknown keys and values of another type are errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, NonNegativeInt, Tag, field_validator, model_validator

from omnigraph_ops.config.graph_values import (
    AssetUri,
    ClassPath,
    Cron,
    GraphId,
    Hours,
    Label,
    Name,
    Place,
    SettingsOverrides,
    Text,
    Timezone,
    old_enough,
)
from omnigraph_ops.config.terms import BudgetTerms, ExpiryTerms, RetentionTerms, RewriteTerms
from omnigraph_ops.models.repair import EvidenceTier
from omnigraph_ops.requests import Bytes, Request, Seconds
from omnigraph_ops.storage.location import graph_root, locate

_HOUR = 3600


class Block(Request):
    """A mapping of the file. The reader validates it strictly."""


class ClusterTarget(Block):
    """One graph of a cluster."""

    cluster: Place
    """Directory or storage root of the cluster."""
    id: GraphId
    """Which of its graphs."""


class Expiry(ExpiryTerms):
    """Snapshot expiry, a policy of its own."""

    _aged = field_validator("time_retained", mode="before")(old_enough)


class Retention(RetentionTerms[Expiry]):
    """Which old versions may go: by count and age, or by snapshot expiry."""

    _aged = field_validator("older_than", mode="before")(old_enough)

    @model_validator(mode="after")
    def _bounded(self) -> Retention:
        counted = self.keep is not None or self.older_than is not None
        if self.expiry is not None and counted:
            raise ValueError("expiry is a policy of its own, never beside keep or older_than")
        if self.expiry is None and not counted:
            raise ValueError("one of keep, older_than or expiry is needed")
        return self


class StandingCleanup(Block):
    """Bounds of the cleanups that nobody needs to be asked about."""

    max_versions: NonNegativeInt
    max_bytes: Bytes


class Notifier(Block):
    """An Airflow notifier: its class and what it is constructed with."""

    notifier: ClassPath
    """Dotted path of the class, as in `airflow.providers.smtp.notifications.smtp.SmtpNotifier`."""
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")
    """Its keyword arguments; templates are rendered as the notifier does."""


class Approvals(Block):
    """Who is asked, when nobody needs to be, and for how long a question stands."""

    cleanup: StandingCleanup | None = None
    """Standing approval of cleanups within these bounds."""
    repair: Literal["verified_maintenance"] | None = None
    """Standing approval of repairs that publish verified maintenance only."""
    approvers: tuple[Text, ...] = ()
    """Airflow users who may answer; empty: everybody who may act on the DAG."""
    answer_within: Seconds = 20 * _HOUR
    """An answer later than this after the start of the run counts as Reject. Keep it below the schedule's interval.
    A question waits at least five minutes."""
    notify: tuple[Notifier, ...] = ()
    """Told when a question is asked, and again by the reminder."""
    remind_after: Seconds | None = None
    """Remind when the run is still open so long after it was queued."""

    @model_validator(mode="after")
    def _reminded(self) -> Approvals:
        if self.remind_after is None:
            return self
        if not self.notify:
            raise ValueError("remind_after needs somebody to notify")
        if self.remind_after >= self.answer_within:
            raise ValueError("remind_after must be shorter than answer_within")
        return self


class Optimize(RewriteTerms):
    """How optimize works on this graph."""

    executor: Literal["auto", "in_process", "spark"] = "auto"
    """Where rewrites run; `auto`: on Spark from `spark_threshold` on."""
    spark_threshold: Bytes | None = None
    """With `auto`: rewrites of at least this size run on Spark; default: the deployment's setting."""

    @model_validator(mode="after")
    def _one_rule(self) -> Optimize:
        if self.spark_threshold is not None and self.executor != "auto":
            raise ValueError(f"spark_threshold is for executor auto, not for {self.executor}")
        return self


class NightBudget(BudgetTerms):
    """Bounds of one night's optimize."""


class Window(Block):
    """When a run may begin; one that a person triggers minds `quiet_for` only."""

    between: Hours | None = None
    """Hours of the day in the graph's time zone, as in `22:00-06:00`."""
    quiet_for: Seconds = 300
    """Nobody has published for this long."""
    wait_at_most: Seconds = 3 * _HOUR
    """A run that could not begin for this long fails."""


class Lateness(Block):
    """What to do about a run that takes too long."""

    after: Seconds
    """Counted from when the run was queued."""
    notify: Annotated[tuple[Notifier, ...], Field(min_length=1)]


class Alerts(Block):
    """Who hears of trouble."""

    on_failure: tuple[Notifier, ...] = ()
    """Told once for every run that ends failed."""
    late: Lateness | None = None
    """Told when a run has not ended in time."""


def _target_kind(value: Any) -> str:
    return "cluster" if isinstance(value, (dict, ClusterTarget)) else "path"


Target = Annotated[
    Annotated[Place, Tag("path")] | Annotated[ClusterTarget, Tag("cluster")], Discriminator(_target_kind)
]


class Defaults(Block):
    """What every graph has that does not say otherwise."""

    connection: Text | None = None
    """Airflow connection of type `omnigraph`: endpoint, region, credentials."""
    schedule: Cron | None = "0 1 * * *"
    """Cron expression; null: never by the clock."""
    timezone: Timezone = "UTC"
    """Of the schedule and the window."""
    triggered_by: tuple[AssetUri, ...] = ()
    """Assets of load pipelines: an update of any of them starts a run, beside the schedule."""
    owner: Text = "omnigraph"
    tags: tuple[Label, ...] = ()
    description: Text | None = None
    retention: Retention = Retention.model_validate({"keep": 10, "older_than": "7d"})
    approvals: Approvals = Approvals()
    optimize: Optimize = Optimize()
    budget: NightBudget = NightBudget()
    window: Window = Window()
    alerts: Alerts = Alerts()
    evidence: EvidenceTier = EvidenceTier.SAMPLE
    """How much a repair preview reads."""
    pool: Text = "default_pool"
    """Airflow pool of every task of the graph."""
    task_timeout: Seconds | None = None
    """A task that runs longer is killed, and repeated where that is right."""
    settings: SettingsOverrides = SettingsOverrides()
    """Deployment settings that are otherwise for this graph."""


class GraphEntry(Defaults):
    """One graph of the file."""

    name: Name
    target: Target
    """Path or `s3://` URI of a graph, a plain Lance dataset or a folder of them; or a graph of a cluster."""

    @property
    def place(self) -> str:
        """The target as one text, for people. Pure."""
        return f"{self.target.cluster}#{self.target.id}" if isinstance(self.target, ClusterTarget) else self.target

    @property
    def root(self) -> str:
        """Where the graph lies, in one spelling: what tells two graphs apart. Pure."""
        if isinstance(self.target, ClusterTarget):
            return graph_root(locate(self.target.cluster).root, self.target.id)
        return locate(self.target).root
