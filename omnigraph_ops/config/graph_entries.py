"""What a graphs file says about a graph, settings included. Unknown keys and values of another type are errors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import datetime, time
from functools import partial
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeInt,
    PositiveInt,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)

from omnigraph_ops.config.settings import EntryText, Settings
from omnigraph_ops.config.settings import variable_of as setting_variable
from omnigraph_ops.config.terms import BudgetTerms, ExpiryTerms, RetentionTerms, RewriteTerms
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.cleanup import SHORTEST_AGE_SECONDS
from omnigraph_ops.models.optimize import BinaryCopy
from omnigraph_ops.models.repair import EvidenceTier
from omnigraph_ops.quantities import duration, parse_duration
from omnigraph_ops.requests import Bytes, Request, Seconds
from omnigraph_ops.storage.location import graph_root, locate

_PRESETS = {"@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"}
_FIELDS = ("minute", "hour", "day of month", "month", "day of week")


def check_cron(text: str) -> None:
    """Raise `InvalidInput` for what is no cron expression, or for one whose day never comes. Pure."""
    if text in _PRESETS:
        return
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise InvalidInput(f"'{text}' is not a cron expression of five fields")
    for place, (title, said) in enumerate(zip(_FIELDS, fields, strict=True)):
        alone = ["*"] * len(_FIELDS)
        alone[place] = said
        # croniter reads `r` as a random value: every parse of the DAG would give it another schedule.
        if said.lower().startswith("r") or not croniter.is_valid(" ".join(alone)):
            raise InvalidInput(f"'{said}' does not fit the {title} of a cron expression")
    try:
        croniter(text, datetime(2000, 1, 1)).get_next()
    except CroniterBadDateError:
        raise InvalidInput(f"'{text}' never comes: no month that it names has such a day") from None


NAME = r"[a-z][a-z0-9_-]{0,63}"
"""What a graph may be called: it becomes part of DAG ids, asset URIs and links. Templates make numbers of digits."""
GRAPHS_FILE = "OMNIGRAPH_GRAPHS_FILE"
"""The environment variable that names the graphs file."""
NIGHTLY = "omnigraph_maintenance"
"""The DAG of the deployment's graph; that of a graph of the file has the graph's name behind it."""


def nightly_dag_id(name: str) -> str:
    """The nightly DAG of a graph of the file. Pure."""
    return f"{NIGHTLY}__{name}"


_CLASS = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"
_WINDOW = re.compile(r"\d\d:\d\d-\d\d:\d\d")


def _checked(check: Callable[[str], object]) -> AfterValidator:
    def validate(text: str) -> str:
        try:
            check(text)
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(validate)


def hours_of(text: str) -> tuple[time, time]:
    """The two ends of a window as in `22:00-06:00`; `InvalidInput` otherwise. Pure."""
    if _WINDOW.fullmatch(text):
        with contextlib.suppress(ValueError):  # as of 25:00
            start, end = map(time.fromisoformat, text.split("-"))
            if start != end:
                return start, end
    raise InvalidInput(f"'{text}' is not a window of the day, as in 22:00-06:00")


def _check_timezone(text: str) -> None:
    try:
        ZoneInfo(text)
    except (KeyError, OSError, ValueError):
        raise InvalidInput(f"'{text}' is not a time zone, as in Europe/Berlin") from None


def _check_place(text: str) -> None:
    if text.strip() and "://" not in text and not text.startswith("/"):
        raise InvalidInput(f"'{text}' is relative, and every worker has a working directory of its own")
    locate(text)


def old_enough(said: Any) -> Any:
    """An age as somebody wrote it, if no running query may still read versions of that age. Pure."""
    try:
        if isinstance(said, str) and parse_duration(said) < SHORTEST_AGE_SECONDS:
            least = duration(SHORTEST_AGE_SECONDS)
            raise InvalidInput(f"'{said}' takes versions that a running query may still read; write at least {least}")
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return said


Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)]
"""What Airflow takes as a tag: a longer one would cost every graph of the file its DAG."""
Place = Annotated[str, StringConstraints(min_length=1), _checked(_check_place)]
GraphId = Annotated[str, StringConstraints(min_length=1), _checked(partial(graph_root, ""))]
ClassPath = Annotated[str, StringConstraints(pattern=f"^{_CLASS}$")]
AssetUri = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]*:\S+$|^[^\s:]+$")]
Cron = Annotated[str, _checked(check_cron)]
Hours = Annotated[str, _checked(hours_of)]
Timezone = Annotated[str, _checked(_check_timezone)]


class SettingsOverrides(BaseModel):
    """Every key is a variable of docs/reference/settings.md without its prefix; durations lose `_seconds`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    concurrency: PositiveInt | None = None
    small_table_bytes: Bytes | None = None
    spark_copy_threshold_bytes: Bytes | None = None
    spark_stages: tuple[EntryText, ...] | None = None
    target_rows_per_fragment: PositiveInt | None = None
    commit_batch_tasks: NonNegativeInt | None = None
    tier_fan_in: PositiveInt | None = None
    tier_unindexed_share: float | None = None
    window_share: float | None = None
    auto_unindexed_share: float | None = None
    auto_deleted_share: float | None = None
    auto_off: tuple[Text, ...] | None = None
    max_concurrent_rewrites: NonNegativeInt | None = None
    max_rewrite_bytes_per_second: Bytes | None = None
    max_deletes_per_second: NonNegativeInt | None = None
    recovery_grace: Seconds | None = None
    lease_ttl: Seconds | None = None
    lease_wait: Seconds | None = None
    plan_ttl: Seconds | None = None
    defer_index_remap: bool | None = None
    retrain_vectors: bool | None = None
    purge_deleted: bool | None = None
    binary_copy: BinaryCopy | None = None
    history_days: PositiveInt | None = None
    exclusive: bool | None = None
    engine: Text | None = None
    engine_timeout: Seconds | None = None
    engine_root: Text | None = None

    @model_validator(mode="after")
    def _as_the_deployment_would(self) -> SettingsOverrides:
        try:
            Settings.from_env(self.variables())
        except InvalidInput as error:
            variable, _, said = str(error).partition(" ")
            keys = {variable_of(name): name for name in type(self).model_fields}
            raise ValueError(f"{keys.get(variable, variable)} {said}") from None
        return self

    def variables(self) -> dict[str, str]:
        """The same as environment variables, which is how Spark's driver gets them. Pure."""
        return {variable_of(name): _text(value) for name, value in self if value is not None}


def variable_of(name: str) -> str:
    """The environment variable of a key. Pure."""
    return setting_variable(name if name in Settings.model_fields else f"{name}_seconds")


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    """Ids of the Airflow users who may answer; empty: everybody who may act on the DAG. Numbers stand in quotes, as in
    `["5"]`."""
    answer_within: Seconds = 20 * _HOUR
    """An answer later than this after the start of the run counts as Reject, of a night and of a run by hand. Keep it
    below the schedule's interval. A question waits at least five minutes, and not longer than its plan may be applied
    (`plan_ttl`). Airflow fails a night that goes on for three hours more, or with `between` for one day and three hours
    more."""
    notify: tuple[Notifier, ...] = ()
    """Called on a worker when a question is asked, and again by the reminder."""
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
    """When a run may begin. A run that a person triggers does not wait for the hours of `between`."""

    between: Hours | None = None
    """Hours of the day in the graph's time zone, as in `22:00-06:00`."""
    quiet_for: Seconds = 300
    """Start only after nobody has published for this long."""
    wait_at_most: Seconds = 3 * _HOUR
    """A run that could not begin for this long fails. With `between`, it fails one day later."""


class Lateness(Block):
    """What to do about a run that takes too long."""

    after: Seconds
    """Counted from when the run was queued."""
    notify: Annotated[tuple[Notifier, ...], Field(min_length=1)]


class Alerts(Block):
    """Who hears of trouble."""

    on_failure: tuple[Notifier, ...] = ()
    """Called in the DAG processor, once for every run that ends failed."""
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
    """A task that runs longer is ended, and tried up to three times, `check_recovery` up to nine times."""
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
