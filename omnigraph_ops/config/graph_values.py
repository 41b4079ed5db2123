"""The values in a graphs file that need a check of their own, and the settings that it overrides."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, time
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    NonNegativeInt,
    PositiveInt,
    StringConstraints,
    model_validator,
)

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.spark_stages import EntryText
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.cleanup import SHORTEST_AGE_SECONDS
from omnigraph_ops.models.optimize import BinaryCopy
from omnigraph_ops.quantities import duration, parse_duration
from omnigraph_ops.requests import Bytes, Seconds
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
_CLASS = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"
_WINDOW = re.compile(r"(\d\d:\d\d)-(\d\d:\d\d)")


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
    found = _WINDOW.fullmatch(text)
    try:
        start, end = (time.fromisoformat(part) for part in found.groups()) if found else (None, None)
    except ValueError:
        start = end = None
    if start is None or end is None or start == end:
        raise InvalidInput(f"'{text}' is not a window of the day, as in 22:00-06:00")
    return start, end


def _check_timezone(text: str) -> None:
    try:
        ZoneInfo(text)
    except (KeyError, OSError, ValueError):
        raise InvalidInput(f"'{text}' is not a time zone, as in Europe/Berlin") from None


def _check_place(text: str) -> None:
    if text.strip() and "://" not in text and not text.startswith("/"):
        raise InvalidInput(f"'{text}' is relative, and every worker has a working directory of its own")
    locate(text)


def _check_graph_id(text: str) -> None:
    graph_root("", text)


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
GraphId = Annotated[str, StringConstraints(min_length=1), _checked(_check_graph_id)]
ClassPath = Annotated[str, StringConstraints(pattern=f"^{_CLASS}$")]
AssetUri = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]*:\S+$|^[^\s:]+$")]
Cron = Annotated[str, _checked(check_cron)]
Hours = Annotated[str, _checked(hours_of)]
Timezone = Annotated[str, _checked(_check_timezone)]


_VARIABLES = {"concurrency": "OMNIGRAPH_MAINTENANCE_CONCURRENCY"}
_SECONDS = {"recovery_grace", "lease_ttl", "lease_wait", "plan_ttl", "engine_timeout"}


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
            raise ValueError(str(error)) from None
        return self

    def variables(self) -> dict[str, str]:
        """The same as environment variables, which is how Spark's driver gets them. Pure."""
        return {variable_of(name): _text(value) for name, value in self if value is not None}


def variable_of(name: str) -> str:
    """The environment variable of a key. Pure."""
    suffix = "_SECONDS" if name in _SECONDS else ""
    return _VARIABLES.get(name, f"OMNIGRAPH_OPS_{name.upper()}{suffix}")


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
