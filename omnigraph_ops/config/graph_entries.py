"""What a graphs file says about a graph. Unknown keys and values of another type are errors."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, NonNegativeInt, PositiveInt, Tag, model_validator

from omnigraph_ops.config.graph_values import (
    Age,
    AssetUri,
    ClassPath,
    Cron,
    Duration,
    GraphId,
    Hours,
    Label,
    Name,
    Place,
    SettingsOverrides,
    Size,
    Text,
    Timezone,
)
from omnigraph_ops.models.cleanup import RetentionPolicy, SnapshotExpiry
from omnigraph_ops.models.optimize import RewritePolicy
from omnigraph_ops.quantities import parse_duration
from omnigraph_ops.storage.location import graph_root, locate


class Block(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class ClusterTarget(Block):
    """One graph of a cluster."""

    cluster: Place
    """Directory or storage root of the cluster."""
    id: GraphId
    """Which of its graphs."""


class Expiry(Block):
    """Snapshot expiry, a policy of its own."""

    retain_min: PositiveInt = 10
    """The newest so many versions stay, whatever their age."""
    retain_max: PositiveInt | None = None
    """Versions beyond the newest so many go, whatever their age."""
    time_retained: Age = "1h"
    """Between the two, versions that are at least this old go."""
    expire_limit: PositiveInt = 10
    """At most so many versions of a table go in one run."""

    @model_validator(mode="after")
    def _ordered(self) -> Expiry:
        if self.retain_max is not None and self.retain_max < self.retain_min:
            raise ValueError(f"retain_max {self.retain_max} must not be below retain_min {self.retain_min}")
        return self


class Retention(Block):
    """Which old versions may go: by count and age, or by snapshot expiry."""

    keep: NonNegativeInt | None = None
    """Cleanup keeps at least this many versions per table."""
    older_than: Age | None = None
    """Only versions older than this go, as in `7d`. With `keep`, both must agree."""
    between_pins: bool = False
    """Also versions above the oldest one that a branch reads."""
    expiry: Expiry | None = None
    """Instead of `keep` and `older_than`."""

    @model_validator(mode="after")
    def _bounded(self) -> Retention:
        counted = self.keep is not None or self.older_than is not None
        if self.expiry is not None and counted:
            raise ValueError("expiry is a policy of its own, never beside keep or older_than")
        if self.expiry is None and not counted:
            raise ValueError("one of keep, older_than or expiry is needed")
        return self

    @property
    def policy(self) -> RetentionPolicy:
        """The same as cleanup takes it. Pure."""
        said = self.expiry
        return RetentionPolicy(
            keep_versions=self.keep,
            older_than_secs=None if self.older_than is None else parse_duration(self.older_than),
            between_pins=self.between_pins,
            expiry=None
            if said is None
            else SnapshotExpiry(
                retain_min=said.retain_min,
                retain_max=said.retain_max,
                time_retained_secs=parse_duration(said.time_retained),
                expire_limit=said.expire_limit,
            ),
        )


class StandingCleanup(Block):
    """Bounds of the cleanups that nobody needs to be asked about."""

    max_versions: NonNegativeInt
    max_bytes: Size


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
    answer_within: Duration = "20h"
    """An answer later than this after the start of the run counts as Reject. Keep it below the schedule's interval."""
    notify: tuple[Notifier, ...] = ()
    """Told when a question is asked, and again by the reminder."""
    remind_after: Duration | None = None
    """Remind when the run is still open so long after it was queued."""

    @model_validator(mode="after")
    def _reminded(self) -> Approvals:
        if self.remind_after is None:
            return self
        if not self.notify:
            raise ValueError("remind_after needs somebody to notify")
        if parse_duration(self.remind_after) >= parse_duration(self.answer_within):
            raise ValueError("remind_after must be shorter than answer_within")
        return self


class Optimize(Block):
    """How optimize works on this graph."""

    executor: Literal["auto", "in_process", "spark"] = "auto"
    """Where rewrites run; `auto`: on Spark from `spark_threshold` on."""
    spark_threshold: Size | None = None
    """With `auto`: rewrites of at least this size run on Spark; default: the deployment's setting."""
    policy: RewritePolicy | None = None
    """Which fragments a rewrite wants; default: the deployment's setting."""
    cutoff: PositiveInt | None = None
    """Bound on small fragments."""
    auto: bool = False
    """Only tables past a threshold."""

    @model_validator(mode="after")
    def _one_rule(self) -> Optimize:
        if self.spark_threshold is not None and self.executor != "auto":
            raise ValueError(f"spark_threshold is for executor auto, not for {self.executor}")
        return self


class NightBudget(Block):
    """Bounds of one night's optimize."""

    max_bytes: Size | None = None
    """Data and indexes written, as in `20GiB`."""
    max_tables: PositiveInt | None = None
    """Tables optimized."""
    deadline: Duration | None = None
    """No table starts later than this after the plan."""


class Window(Block):
    """When a run may begin; one that a person triggers minds `quiet_for` only."""

    between: Hours | None = None
    """Hours of the day in the graph's time zone, as in `22:00-06:00`."""
    quiet_for: Duration = "5m"
    """Nobody has published for this long."""
    wait_at_most: Duration = "3h"
    """A run that could not begin for this long fails."""


class Lateness(Block):
    """What to do about a run that takes too long."""

    after: Duration
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
    retention: Retention = Retention(keep=10, older_than="7d")
    approvals: Approvals = Approvals()
    optimize: Optimize = Optimize()
    budget: NightBudget = NightBudget()
    window: Window = Window()
    alerts: Alerts = Alerts()
    evidence: Literal["counts", "sample", "full"] = "sample"
    """How much a repair preview reads."""
    pool: Text = "default_pool"
    """Airflow pool of every task of the graph."""
    task_timeout: Duration | None = None
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


def span(text: str) -> timedelta:
    """A duration of the file as Airflow wants it. Pure."""
    return timedelta(seconds=parse_duration(text))
