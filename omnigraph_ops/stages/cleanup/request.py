"""Which old versions somebody asks to remove."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, model_validator

from omnigraph_ops.config.terms import ExpiryTerms, RetentionTerms
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.cleanup import SHORTEST_AGE_SECONDS, RetentionPolicy, SnapshotExpiry
from omnigraph_ops.quantities import duration
from omnigraph_ops.requests import TablesRequest

_SECONDS = "time_retained_secs"
_ALSO = {_SECONDS: {"type": "integer", "minimum": SHORTEST_AGE_SECONDS}}


class ExpiryRequest(ExpiryTerms):
    """Snapshot expiry: a policy of its own, per table, never mixed with --keep or --older-than."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema["properties"].update(_ALSO))

    @model_validator(mode="before")
    @classmethod
    def _in_seconds(cls, said: Any) -> Any:
        """Take `time_retained_secs`, too, as plans and the forms of earlier releases have it. Pure."""
        if not isinstance(said, dict) or _SECONDS not in said:
            return said
        others = {name: value for name, value in said.items() if name != _SECONDS}
        return {"time_retained": f"{said[_SECONDS]}s", **others}


class CleanupRequest(TablesRequest, RetentionTerms[ExpiryRequest]):
    """Remove old versions by number and age, or by snapshot expiry."""

    @model_validator(mode="after")
    def _bounded(self) -> CleanupRequest:
        try:
            check_policy(self.policy)
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return self


def check_policy(policy: RetentionPolicy) -> None:
    """Refuse a policy that bounds nothing, mixes two kinds, or holds a value that means nothing. Pure."""
    by_count_or_age = policy.keep_versions is not None or policy.older_than_secs is not None
    if policy.expiry is not None:
        if by_count_or_age:
            raise InvalidInput(
                "snapshot expiry is a policy of its own and is never mixed with --keep or --older-than; "
                "nothing was read or deleted"
            )
        _check_expiry(policy.expiry)
    elif not by_count_or_age:
        raise InvalidInput("cleanup requires at least one of --keep or --older-than; nothing was read or deleted")
    if (policy.keep_versions or 0) < 0 or (policy.older_than_secs or 0) < 0:
        raise InvalidInput("keep and older-than must not be negative; nothing was deleted")


def _check_expiry(expiry: SnapshotExpiry) -> None:
    if expiry.retain_min < 1:
        raise InvalidInput(f"retain-min must be at least 1, not {expiry.retain_min}; nothing was deleted")
    if expiry.retain_max is not None and expiry.retain_max < expiry.retain_min:
        raise InvalidInput(
            f"retain-max {expiry.retain_max} must not be below retain-min {expiry.retain_min}; nothing was deleted"
        )
    if expiry.time_retained_secs < 0 or expiry.expire_limit < 1:
        raise InvalidInput("time-retained must not be negative and expire-limit at least 1; nothing was deleted")


def too_young(policy: RetentionPolicy) -> str | None:
    """Why a policy must be asked for explicitly: by its ages, versions younger than an hour go. Pure."""
    age = policy.older_than_secs if policy.expiry is None else policy.expiry.time_retained_secs
    if age is None or age >= SHORTEST_AGE_SECONDS:
        return None
    return (
        f"an age of {duration(age)} takes versions that a running query may still read; nothing was deleted; "
        f"give at least {duration(SHORTEST_AGE_SECONDS)}"
    )
