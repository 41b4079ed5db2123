"""Where things are and how much to do at once; every value has an environment variable."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from omnigraph_ops.errors import InvalidInput

MIB = 1024 * 1024
LONGEST_TTL_SECONDS = 3600.0
"""A lease that ends further away than this is damage, not a holder."""
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Deployment settings. Construct directly in code, or with `from_env` at the outer edge."""

    concurrency: int = 8
    """Tables in flight at once (`OMNIGRAPH_MAINTENANCE_CONCURRENCY`, as the engine reads it)."""
    small_table_bytes: int = 64 * MIB
    """Below this a table folds and rewrites in one armed window (`OMNIGRAPH_OPS_SMALL_TABLE_BYTES`)."""
    spark_threshold_bytes: int = 4096 * MIB
    """Rewrites of at least this many bytes go to Spark (`OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES`)."""
    target_rows_per_fragment: int = 1_048_576
    """The engine's default; the same value everywhere keeps its next optimize idle."""
    recovery_grace_seconds: float = 900.0
    """How old a foreign sidecar must be before `recover` finishes it (`OMNIGRAPH_OPS_RECOVERY_GRACE_SECONDS`)."""
    lease_ttl_seconds: float = 60.0
    """A committer lease not renewed for this long is dead (`OMNIGRAPH_OPS_LEASE_TTL_SECONDS`)."""
    lease_wait_seconds: float = 600.0
    """How long a committer waits for its turn (`OMNIGRAPH_OPS_LEASE_WAIT_SECONDS`)."""
    plan_ttl_seconds: float = 86_400.0
    """How long a plan may wait for its approval and be applied (`OMNIGRAPH_OPS_PLAN_TTL_SECONDS`)."""
    exclusive: bool = False
    """Nobody else publishes during the run, so internal tables may be compacted (`OMNIGRAPH_OPS_EXCLUSIVE`)."""
    engine_root: str | None = None
    """How the engine spells this graph's root (`OMNIGRAPH_OPS_ENGINE_ROOT`); default: the absolute path."""
    publish_attempts: int = 6
    """The engine's budget: five retries after the first attempt."""

    def __post_init__(self) -> None:
        for name in ("concurrency", "publish_attempts", "target_rows_per_fragment"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("small_table_bytes", "spark_threshold_bytes", "recovery_grace_seconds"):
            if getattr(self, name) < 0:
                raise InvalidInput(f"{name} must not be negative, it is {getattr(self, name)}")
        if self.lease_ttl_seconds <= 0 or self.lease_wait_seconds < 0 or self.plan_ttl_seconds <= 0:
            raise InvalidInput("lease times and the TTL of plans must be positive")
        if self.lease_ttl_seconds > LONGEST_TTL_SECONDS:
            raise InvalidInput(f"the lease TTL must be at most {LONGEST_TTL_SECONDS:.0f} s")

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Settings from the process environment; `InvalidInput` names a malformed variable. Reads."""
        env = os.environ if environment is None else environment
        prefix, base = "OMNIGRAPH_OPS_", cls()
        return cls(
            concurrency=_engine_concurrency(env),
            small_table_bytes=_number(env, prefix + "SMALL_TABLE_BYTES", base.small_table_bytes, int),
            spark_threshold_bytes=_number(env, prefix + "SPARK_THRESHOLD_BYTES", base.spark_threshold_bytes, int),
            recovery_grace_seconds=_number(env, prefix + "RECOVERY_GRACE_SECONDS", base.recovery_grace_seconds, float),
            lease_ttl_seconds=_number(env, prefix + "LEASE_TTL_SECONDS", base.lease_ttl_seconds, float),
            lease_wait_seconds=_number(env, prefix + "LEASE_WAIT_SECONDS", base.lease_wait_seconds, float),
            plan_ttl_seconds=_number(env, prefix + "PLAN_TTL_SECONDS", base.plan_ttl_seconds, float),
            exclusive=env.get(prefix + "EXCLUSIVE", "").strip().lower() in {"1", "true", "yes", "on"},
            engine_root=env.get(prefix + "ENGINE_ROOT") or None,
        )


def _engine_concurrency(env: Mapping[str, str]) -> int:
    # The engine ignores anything that is not a positive integer; so do we, for the same variable.
    text = env.get("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "").strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else Settings().concurrency


def _number(env: Mapping[str, str], name: str, default: N, kind: type[N]) -> N:
    text = env.get(name)
    if text is None or not text.strip():
        return default
    try:
        value = kind(text)
    except ValueError:
        raise InvalidInput(f"{name} must be a number, it is {text!r}") from None
    if not math.isfinite(value):
        raise InvalidInput(f"{name} must be a finite number, it is {text!r}")
    return value
