"""Settings of one graph: the deployment's variables by their field names, checked as the variables are."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, model_validator

from omnigraph_ops.config.graphs_file.kinds import Duration, Size, Text
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.durations import parse_duration
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models import BinaryCopy
from omnigraph_ops.sizes import parse_bytes

_VARIABLES = {"concurrency": "OMNIGRAPH_MAINTENANCE_CONCURRENCY"}
_SECONDS = {"recovery_grace", "lease_ttl", "lease_wait", "plan_ttl", "engine_timeout"}


class SettingsOverrides(BaseModel):
    """Every key is a variable of docs/reference/settings.md without its prefix; durations lose `_seconds`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    concurrency: PositiveInt | None = None
    small_table_bytes: Size | None = None
    target_rows_per_fragment: PositiveInt | None = None
    commit_batch_tasks: NonNegativeInt | None = None
    tier_fan_in: PositiveInt | None = None
    tier_unindexed_share: float | None = None
    window_share: float | None = None
    auto_unindexed_share: float | None = None
    auto_deleted_share: float | None = None
    auto_off: tuple[Text, ...] | None = None
    max_concurrent_rewrites: NonNegativeInt | None = None
    max_rewrite_bytes_per_second: Size | None = None
    max_deletes_per_second: NonNegativeInt | None = None
    recovery_grace: Duration | None = None
    lease_ttl: Duration | None = None
    lease_wait: Duration | None = None
    plan_ttl: Duration | None = None
    defer_index_remap: bool | None = None
    binary_copy: BinaryCopy | None = None
    history_days: PositiveInt | None = None
    exclusive: bool | None = None
    engine: Text | None = None
    engine_timeout: Duration | None = None
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
        return {variable_of(name): _text(name, value) for name, value in self if value is not None}


def variable_of(name: str) -> str:
    """The environment variable of a key. Pure."""
    suffix = "_SECONDS" if name in _SECONDS else ""
    return _VARIABLES.get(name, f"OMNIGRAPH_OPS_{name.upper()}{suffix}")


def _text(name: str, value: Any) -> str:
    if name in _SECONDS:
        return str(parse_duration(value))
    if name in {"small_table_bytes", "max_rewrite_bytes_per_second"}:
        return str(parse_bytes(value))
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
