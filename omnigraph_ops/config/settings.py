"""Where things are and how much to do at once; every value has an environment variable."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.optimize import BinaryCopy, RewritePolicy

MIB = 1024 * 1024
LONGEST_TTL_SECONDS = 3600.0
"""A lease that ends further away than this is damage, not a holder."""
_NOT_NEGATIVE = (
    *("small_table_bytes", "spark_threshold_bytes", "recovery_grace_seconds", "commit_batch_tasks"),
    *("max_concurrent_rewrites", "max_rewrite_bytes_per_second", "max_deletes_per_second"),
)
_OFF, _ON = ("", "0", "false", "no", "off"), ("1", "true", "yes", "on")
_SWITCH = dict.fromkeys(_OFF, False) | dict.fromkeys(_ON, True)
N = TypeVar("N", int, float)
C = TypeVar("C", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Deployment settings. Construct directly in code, or with `from_env` at the outer edge."""

    concurrency: int = 8
    """Tables in flight at once; the engine's variable, read as the engine reads it
    (`OMNIGRAPH_MAINTENANCE_CONCURRENCY`)."""
    small_table_bytes: int = 64 * MIB
    """Below this a table is rewritten at once, without a journal to resume from (`OMNIGRAPH_OPS_SMALL_TABLE_BYTES`)."""
    spark_threshold_bytes: int = 4096 * MIB
    """Rewrites of at least this many bytes go to Spark (`OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES`)."""
    target_rows_per_fragment: int = 1_048_576
    """The engine's value; any other one makes its next optimize rewrite what this one wrote
    (`OMNIGRAPH_OPS_TARGET_ROWS_PER_FRAGMENT`)."""
    commit_batch_tasks: int = 0
    """Fragment groups per commit of a rewrite, 0 for all in one; a smaller batch bounds the driver's memory and what a
    conflict costs, and each batch has a window of its own (`OMNIGRAPH_OPS_COMMIT_BATCH_TASKS`)."""
    policy: RewritePolicy = RewritePolicy.CONVERGE
    """Which fragments a rewrite wants, `converge` or `tiered`; see docs/budgets.md (`OMNIGRAPH_OPS_POLICY`)."""
    tier_fan_in: int = 4
    """`tiered`: how many neighbours of one size become one fragment (`OMNIGRAPH_OPS_TIER_FAN_IN`)."""
    tier_unindexed_share: float = 0.05
    """`tiered`: indexes are folded once one leaves more than this share of the rows uncovered, 0 for every night;
    below 1 (`OMNIGRAPH_OPS_TIER_UNINDEXED_SHARE`)."""
    cutoff: int | None = None
    """Bound on fragments below the target size, per table; none by default, for `--auto` twice the cores
    (`OMNIGRAPH_OPS_CUTOFF`)."""
    auto_unindexed_share: float = 0.1
    """`--auto` takes tables with a larger share of rows that an index does not cover
    (`OMNIGRAPH_OPS_AUTO_UNINDEXED_SHARE`)."""
    auto_deleted_share: float = 0.1
    """`--auto` takes tables with a larger share of deleted rows (`OMNIGRAPH_OPS_AUTO_DELETED_SHARE`)."""
    auto_off: tuple[str, ...] = ()
    """Tables that `--auto` never takes, as in `node:A,edge:B` (`OMNIGRAPH_OPS_AUTO_OFF`)."""
    auto: bool = False
    """Only tables that are past a threshold; an option of the run."""
    defer_index_remap: bool = False
    """Plain Lance without stable row ids: a rewrite leaves index files as they are; see docs/plain-lance.md
    (`OMNIGRAPH_OPS_DEFER_INDEX_REMAP`)."""
    binary_copy: BinaryCopy = BinaryCopy.AUTO
    """Whether a rewrite copies encoded pages where no row is deleted and no column is a blob: `auto`, where they are
    large, `always` or `never`; see docs/spark.md (`OMNIGRAPH_OPS_BINARY_COPY`)."""
    max_concurrent_rewrites: int = 0
    """Compaction tasks of a graph at once, in whatever process they run, 0 for no bound
    (`OMNIGRAPH_OPS_MAX_CONCURRENT_REWRITES`)."""
    max_rewrite_bytes_per_second: int = 0
    """Bytes that all of them read per second, on the average of two tasks, of which each reads at most ten seconds'
    worth; 0 for no bound (`OMNIGRAPH_OPS_MAX_REWRITE_BYTES_PER_SECOND`)."""
    max_deletes_per_second: int = 0
    """Files that cleanup and orphans delete per second, 0 for no bound (`OMNIGRAPH_OPS_MAX_DELETES_PER_SECOND`)."""
    recovery_grace_seconds: float = 900.0
    """How old a foreign sidecar must be before `recover` finishes it (`OMNIGRAPH_OPS_RECOVERY_GRACE_SECONDS`)."""
    lease_ttl_seconds: float = 60.0
    """A committer lease that is not renewed for this long is dead (`OMNIGRAPH_OPS_LEASE_TTL_SECONDS`)."""
    lease_wait_seconds: float = 600.0
    """How long a committer waits for its turn (`OMNIGRAPH_OPS_LEASE_WAIT_SECONDS`)."""
    window_share: float = 0.005
    """The share of the time in which windows may be open while other writers publish; 1 for no pauses
    (`OMNIGRAPH_OPS_WINDOW_SHARE`)."""
    plan_ttl_seconds: float = 86_400.0
    """How long a plan may wait for its approval and be applied (`OMNIGRAPH_OPS_PLAN_TTL_SECONDS`)."""
    history_days: int = 400
    """How long the record of a run stays in the history; see docs/history.md (`OMNIGRAPH_OPS_HISTORY_DAYS`)."""
    exclusive: bool = False
    """Nobody else publishes during the run, so internal tables may be compacted (`OMNIGRAPH_OPS_EXCLUSIVE`)."""
    engine_root: str | None = None
    """How the engine spells the graph's root, as its sidecars must; by default the absolute path
    (`OMNIGRAPH_OPS_ENGINE_ROOT`)."""
    engine: str | None = None
    """Path of the engine's binary, which deletes expired rows of graphs; see docs/row-retention.md
    (`OMNIGRAPH_OPS_ENGINE`)."""
    engine_timeout_seconds: float = 600.0
    """How long one command of the engine may take before it is stopped (`OMNIGRAPH_OPS_ENGINE_TIMEOUT_SECONDS`)."""
    text_indexers: str | None = None
    """Folder of the older pylance releases that write text indexes; by default below the prefix of this Python, where
    `omnigraph-ops install-text-indexer` puts them (`OMNIGRAPH_OPS_TEXT_INDEXERS`)."""
    publish_attempts: int = 6
    """The engine's budget: five retries after the first attempt."""

    def __post_init__(self) -> None:
        for name in ("concurrency", "publish_attempts", "target_rows_per_fragment", "history_days"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise InvalidInput(f"{name} must not be negative, it is {getattr(self, name)}")
        self._check_policy()
        if self.engine_timeout_seconds <= 0:
            raise InvalidInput("the time a command of the engine may take must be positive")
        if self.lease_ttl_seconds <= 0 or self.lease_wait_seconds < 0 or self.plan_ttl_seconds <= 0:
            raise InvalidInput("lease times and the TTL of plans must be positive")
        if self.lease_ttl_seconds > LONGEST_TTL_SECONDS:
            raise InvalidInput(f"the lease TTL must be at most {LONGEST_TTL_SECONDS:.0f} s")

    def _check_policy(self) -> None:
        if self.tier_fan_in < 2:
            raise InvalidInput(f"tier_fan_in must be at least 2, not {self.tier_fan_in}")
        if not 0 <= self.tier_unindexed_share < 1:
            raise InvalidInput(
                f"tier_unindexed_share must be at least 0 and below 1, it is {self.tier_unindexed_share}"
            )
        if self.cutoff is not None and self.cutoff < 1:
            raise InvalidInput(f"the cutoff must be at least 1, not {self.cutoff}")
        if not 0 < self.window_share <= 1:
            raise InvalidInput(f"window_share must be above 0 and at most 1, it is {self.window_share}")
        for name in ("auto_unindexed_share", "auto_deleted_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInput(f"{name} must be between 0 and 1, it is {getattr(self, name)}")

    def for_run(
        self, *, policy: str | None, cutoff: int | None, auto: bool, defer_index_remap: bool = False
    ) -> Settings:
        """These settings with what one run says otherwise; None and an empty text leave the deployment's. Pure."""
        return replace(
            self,
            policy=RewritePolicy(policy) if policy else self.policy,
            cutoff=cutoff or self.cutoff,
            auto=auto,
            defer_index_remap=self.defer_index_remap or defer_index_remap,
        )

    @property
    def fragment_cutoff(self) -> int:
        """The cutoff, by default twice the cores of this machine. Reads."""
        return self.cutoff if self.cutoff is not None else 2 * (os.cpu_count() or 1)

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Settings from the process environment; `InvalidInput` names a malformed variable. Reads."""
        env = os.environ if environment is None else environment
        prefix, base = "OMNIGRAPH_OPS_", cls()
        return cls(
            concurrency=_engine_concurrency(env),
            small_table_bytes=_number(env, prefix + "SMALL_TABLE_BYTES", base.small_table_bytes, int),
            spark_threshold_bytes=_number(env, prefix + "SPARK_THRESHOLD_BYTES", base.spark_threshold_bytes, int),
            target_rows_per_fragment=_number(
                env, prefix + "TARGET_ROWS_PER_FRAGMENT", base.target_rows_per_fragment, int
            ),
            commit_batch_tasks=_number(env, prefix + "COMMIT_BATCH_TASKS", base.commit_batch_tasks, int),
            policy=_choice(env, prefix + "POLICY", base.policy),
            tier_fan_in=_number(env, prefix + "TIER_FAN_IN", base.tier_fan_in, int),
            tier_unindexed_share=_number(env, prefix + "TIER_UNINDEXED_SHARE", base.tier_unindexed_share, float),
            cutoff=_number(env, prefix + "CUTOFF", 0, int) if env.get(prefix + "CUTOFF", "").strip() else None,
            auto_unindexed_share=_number(env, prefix + "AUTO_UNINDEXED_SHARE", base.auto_unindexed_share, float),
            auto_deleted_share=_number(env, prefix + "AUTO_DELETED_SHARE", base.auto_deleted_share, float),
            auto_off=tuple(key.strip() for key in env.get(prefix + "AUTO_OFF", "").split(",") if key.strip()),
            max_concurrent_rewrites=_number(env, prefix + "MAX_CONCURRENT_REWRITES", 0, int),
            max_rewrite_bytes_per_second=_number(env, prefix + "MAX_REWRITE_BYTES_PER_SECOND", 0, int),
            max_deletes_per_second=_number(env, prefix + "MAX_DELETES_PER_SECOND", 0, int),
            recovery_grace_seconds=_number(env, prefix + "RECOVERY_GRACE_SECONDS", base.recovery_grace_seconds, float),
            lease_ttl_seconds=_number(env, prefix + "LEASE_TTL_SECONDS", base.lease_ttl_seconds, float),
            lease_wait_seconds=_number(env, prefix + "LEASE_WAIT_SECONDS", base.lease_wait_seconds, float),
            window_share=_number(env, prefix + "WINDOW_SHARE", base.window_share, float),
            plan_ttl_seconds=_number(env, prefix + "PLAN_TTL_SECONDS", base.plan_ttl_seconds, float),
            history_days=_number(env, prefix + "HISTORY_DAYS", base.history_days, int),
            defer_index_remap=_switch(env, prefix + "DEFER_INDEX_REMAP"),
            binary_copy=_choice(env, prefix + "BINARY_COPY", base.binary_copy),
            exclusive=_switch(env, prefix + "EXCLUSIVE"),
            engine_root=env.get(prefix + "ENGINE_ROOT") or None,
            engine=env.get(prefix + "ENGINE") or None,
            text_indexers=env.get(prefix + "TEXT_INDEXERS") or None,
            engine_timeout_seconds=_number(env, prefix + "ENGINE_TIMEOUT_SECONDS", base.engine_timeout_seconds, float),
        )


def _engine_concurrency(env: Mapping[str, str]) -> int:
    # The engine ignores anything that is not a positive integer; so do we, for the same variable.
    text = env.get("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "").strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else Settings().concurrency


def _switch(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "").strip()
    if text.lower() not in _SWITCH:
        raise InvalidInput(f"{name} must be on or off (1 or 0, true or false, yes or no), it is {text!r}")
    return _SWITCH[text.lower()]


def _choice(env: Mapping[str, str], name: str, default: C) -> C:
    text = env.get(name, "").strip().lower()
    try:
        return type(default)(text) if text else default
    except ValueError:
        *others, last = (str(choice) for choice in type(default))
        raise InvalidInput(f"{name} must be {', '.join(others)} or {last}, it is {text!r}") from None


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
