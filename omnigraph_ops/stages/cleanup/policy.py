"""Which versions a retention policy lets go, before anything that protects them is looked at. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from omnigraph_ops.lance.cleanup import VersionFacts
from omnigraph_ops.models import RetentionPolicy, SnapshotExpiry
from omnigraph_ops.stages.cleanup.protect import Protection

_MICROS = 1_000_000


def candidates(versions: Sequence[VersionFacts], policy: RetentionPolicy, now_us: int) -> tuple[int, ...]:
    """Versions that the policy alone would let go, ascending. Pure.

    Args:
        versions: every existing version of the main chain, ascending.
        now_us: microseconds since the epoch.
    """
    if policy.expiry is not None:
        return _expired(versions, policy.expiry, now_us)
    kept = max(policy.keep_versions, 1) if policy.keep_versions is not None else 1
    old = versions[:-kept]
    if policy.older_than_secs is not None:
        cutoff = now_us - policy.older_than_secs * _MICROS
        old = [v for v in old if v.committed_at_us < cutoff]
    return tuple(v.version for v in old)


def removable(
    wanted: Sequence[int], protection: Protection, *, between_pins: bool, expiry: SnapshotExpiry | None = None
) -> tuple[tuple[int, ...], str | None]:
    """What may go of what the policy wants, and what blocked the rest. Pure.

    Collection stops at the lowest pin of any branch, so that history stays continuous above it, unless the
    policy also takes what lies between the pins. An expiry takes one continuous range.
    """
    held = protection.numbers()
    free = [v for v in wanted if v not in held]
    if expiry is not None:
        free = _one_run(wanted, held)[: expiry.expire_limit]
    if between_pins:
        return tuple(free), None
    below = tuple(v for v in free if v < protection.floor)
    blocked = any(v > protection.floor for v in wanted)
    return below, f"version {protection.floor}: {protection.floor_reason}" if blocked else None


def _expired(versions: Sequence[VersionFacts], expiry: SnapshotExpiry, now_us: int) -> tuple[int, ...]:
    """The oldest versions beyond `retain_max`, and those beyond `retain_min` that are old enough. Pure.

    `expire_limit` is left to the caller, which knows what is protected. Versions below a gap are what an
    earlier cleanup left on purpose: out of scope.
    """
    run = versions[_last_gap([v.version for v in versions]) :]
    surplus = max(len(run) - expiry.retain_max, 0) if expiry.retain_max is not None else 0
    end = max(len(run) - expiry.retain_min, 0)
    cutoff = now_us - expiry.time_retained_secs * _MICROS
    young = next((i for i in range(surplus, end) if run[i].committed_at_us >= cutoff), end)
    return tuple(v.version for v in run[:young])


def _last_gap(versions: Sequence[int]) -> int:
    """The index where the continuous run that ends with the newest version begins. Pure."""
    gaps = [i for i, (a, b) in enumerate(pairwise(versions), start=1) if b != a + 1]
    return gaps[-1] if gaps else 0


def _one_run(wanted: Sequence[int], held: Collection[int]) -> list[int]:
    """The first stretch of wanted versions without a protected one in it. Pure."""
    run: list[int] = []
    for version in wanted:
        if version not in held:
            run.append(version)
        elif run:
            break
    return run
