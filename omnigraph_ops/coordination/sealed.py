"""Plans that a person approves: a digest over everything they would do, an expiry, and a place to keep them.

A plan is sealed when it is made and checked when it is applied, wherever it travelled in between: an
approval names the digest and nothing else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TypeVar

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.environment import MOST_SECONDS_APART, clock_problem
from omnigraph_ops.coordination.state import PLANS_DIR, Records
from omnigraph_ops.errors import InvalidInput, StalePlan
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models.outcomes import Sealable
from omnigraph_ops.quantities import age, moment
from omnigraph_ops.storage.store import Storage

_MOST_AHEAD_US = int(MOST_SECONDS_APART * 1_000_000)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
KEPT_AFTER_EXPIRY_US = 7 * 86_400 * 1_000_000
"""A stored plan stays this long past its expiry, so that last week's decision can still be read."""


P = TypeVar("P", bound=Sealable)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRef:
    """The name of a kept plan: small enough to hand around where a plan is not."""

    uri: str
    digest: str
    path: str
    """Relative to the graph."""
    expires_at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expiry:
    """The one field of any kept file that the sweep needs."""

    expires_at_us: int


_EXPIRIES = Records(_Expiry)


def seal(plan: P) -> P:
    """The plan with the digest of all its other fields. Pure."""
    return replace(plan, digest=serde.digest(replace(plan, digest="")))  # type: ignore[type-var]


def expiry(planned_at_us: int, settings: Settings) -> int:
    """Until when a plan of that moment may be applied, in microseconds since the epoch. Pure."""
    return planned_at_us + int(settings.plan_ttl_seconds * 1_000_000)


def verify(plan: Sealable, *, uri: str, consequence: str) -> None:
    """Refuse a plan that was altered, expired, or made for another graph. Reads the clock.

    Args:
        uri: the graph it is about to be applied to.
        consequence: what did not happen, for the message: `nothing was deleted`.

    Raises:
        StalePlan: in each of these cases.
    """
    if not _is_intact(plan):
        why = "the plan was altered after it was made, or another release made it"
        raise StalePlan(f"{why}; {consequence}; plan again")
    if plan.uri != uri:
        raise StalePlan(f"the plan is for {plan.uri}, not {uri}; {consequence}; plan this one")
    if plan.planned_at_us > now_us() + _MOST_AHEAD_US:
        # Its ages were told by another clock than the one that is to expire it.
        raise StalePlan(
            f"the plan was made at {moment(plan.planned_at_us)}, which by this host's clock is later than now, "
            f"{moment(now_us())}; {consequence}; set the clock that is wrong, then plan again"
        )
    if now_us() > plan.expires_at_us:
        since = age((now_us() - plan.expires_at_us) / 1e6)
        raise StalePlan(f"the plan expired {since} ago; {consequence}; plan again and have it approved")


_FOUND_INTACT: list[Sealable] = []
"""The plan that was last found to be as it was made."""


def _is_intact(plan: Sealable) -> bool:
    """Whether a plan is as it was made. Pure.

    No plan changes in memory, and one that is applied table by table is verified for each of them: that of many tables
    takes seconds to digest.
    """
    if not any(found is plan for found in _FOUND_INTACT):
        if serde.digest(replace(plan, digest="")) != plan.digest:  # type: ignore[type-var]
            return False
        _FOUND_INTACT[:] = [plan]
    return True


def store(storage: Storage, plan: Sealable) -> PlanRef:
    """Keep a plan in the graph and return its name; drops long expired ones. Writes."""
    path = plan_path(plan.digest)
    sweep(storage, PLANS_DIR)
    Records(type(plan)).write(storage, path, plan)
    return PlanRef(uri=plan.uri, digest=plan.digest, path=path, expires_at_us=plan.expires_at_us)


def load(storage: Storage, cls: type[P], digest: str, *, again: str = "plan again") -> P:
    """The kept plan of that digest. Reads.

    Args:
        again: what to do where no such plan is kept, for the message.

    Raises:
        StalePlan: it is gone, damaged or not the one the digest names; nothing was done.
    """
    path = plan_path(digest)
    plan = Records(cls, unreadable=lambda _, error: _refuse(storage, path, error)).read(storage, path)
    if plan is None:
        raise StalePlan(f"the plan {digest} is not or no longer kept in {PLANS_DIR}; nothing was done; {again}")
    if plan.digest != digest:
        raise StalePlan(f"{path} holds another plan; nothing was done; plan again")
    return plan


def _refuse(storage: Storage, path: str, error: InvalidInput) -> None:
    if _is_whole(storage.read(path)):
        raise StalePlan(
            f"{path} is no plan of this stage, or another release made it ({error}); nothing was done; name a plan of "
            "this stage, or plan again"
        ) from None
    raise StalePlan(f"{path} is damaged, or from another release ({error}); nothing was done; plan again") from None


def _is_whole(data: bytes) -> bool:
    """Whether a kept plan, of whichever stage or release, is what its digest names. Pure."""
    try:
        fields = json.loads(data)
        return isinstance(fields, dict) and serde.digest({**fields, "digest": ""}) == fields.get("digest")
    except ValueError:
        return False


def plan_path(digest: str) -> str:
    """Where the plan of a digest is kept, relative to the graph. Pure."""
    if _DIGEST.fullmatch(digest) is None:
        raise InvalidInput(
            f"{digest!r} is not the digest of a plan; nothing was done; a preview prints it, as sha256:…"
        )
    return f"{PLANS_DIR}/{digest.removeprefix('sha256:')}.json"


def sweep(storage: Storage, folder: str) -> None:
    """Drop the files of a folder that expired long ago; one that cannot be read stays for a person. Destroys files."""
    for name in storage.list(folder):
        path = f"{folder}/{name}"
        kept = _EXPIRIES.read(storage, path)
        if kept is None:
            continue
        if now_us() > kept.expires_at_us + KEPT_AFTER_EXPIRY_US and clock_problem(storage) is None:
            storage.delete(path)
