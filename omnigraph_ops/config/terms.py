"""The terms of maintenance that a person sets for one run, at the shell or in a form, and for all nights in a file."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import Field, model_validator

from omnigraph_ops.models.cleanup import SHORTEST_AGE_SECONDS, RetentionPolicy, SnapshotExpiry
from omnigraph_ops.models.optimize import RewritePolicy
from omnigraph_ops.requests import Bytes, Count, Option, Positive, Request, Seconds

_BUDGET, POLICY = "Budget", "Policy"


class ExpiryTerms(Request):
    """Snapshot expiry."""

    retain_min: Annotated[Positive, Option(metavar="N", decides=True)] = 10
    """Retain the newest N versions whatever their age."""
    time_retained: Annotated[Seconds, Option(metavar="DURATION", decides=True)] = SHORTEST_AGE_SECONDS
    """Between the two, remove versions that are at least this old."""
    expire_limit: Annotated[Positive, Option(metavar="N", decides=True)] = 10
    """Remove at most N versions of a table in one run."""
    retain_max: Annotated[Positive | None, Option(metavar="N")] = None
    """Remove versions beyond the newest N whatever their age."""

    @model_validator(mode="after")
    def _ordered(self) -> ExpiryTerms:
        if self.retain_max is not None and self.retain_max < self.retain_min:
            raise ValueError(f"retain-max {self.retain_max} must not be below retain-min {self.retain_min}")
        return self

    @property
    def terms(self) -> SnapshotExpiry:
        """The same as cleanup takes it. Pure."""
        return SnapshotExpiry(
            retain_min=self.retain_min,
            retain_max=self.retain_max,
            time_retained_secs=self.time_retained,
            expire_limit=self.expire_limit,
        )


E = TypeVar("E", bound=ExpiryTerms)


class RetentionTerms(Request, Generic[E]):
    """Which old versions go."""

    keep: Annotated[Count | None, Option(metavar="N")] = None
    """Retain the N newest versions of each table."""
    older_than: Annotated[Seconds | None, Option(metavar="DURATION")] = None
    """Remove only versions older than this, as in `7d`. With `1h` or more, a version that was the newest within the
    last hour stays, too. Where a number of versions to keep is given as well, both must agree."""
    expiry: Annotated[E | None, Option(section="Snapshot expiry", flag="expire")] = None
    """Instead of number and age."""
    between_pins: bool = False
    """Also remove unprotected versions above the oldest version that a branch reads."""

    @property
    def policy(self) -> RetentionPolicy:
        """The same as cleanup takes it. Pure."""
        return RetentionPolicy(
            keep_versions=self.keep,
            older_than_secs=self.older_than,
            expiry=None if self.expiry is None else self.expiry.terms,
            between_pins=self.between_pins,
        )


class BudgetTerms(Request):
    """How much an optimize does at most."""

    max_bytes: Annotated[Bytes | None, Option(metavar="SIZE", section=_BUDGET)] = None
    """Write about this much at most, as in `20GiB`. The first table is always taken; what does not fit waits."""
    max_tables: Annotated[Positive | None, Option(metavar="N", section=_BUDGET)] = None
    """Optimize at most N tables, those with the most benefit per byte."""
    deadline: Annotated[Seconds | None, Option(metavar="DURATION", section=_BUDGET)] = None
    """Start no table later than this after the plan, as in `90m`, `4h`. Running ones are finished."""


UNBOUNDED = BudgetTerms()


class RewriteTerms(Request):
    """Which fragments an optimize rewrites."""

    policy: Annotated[RewritePolicy | None, Option(section=POLICY)] = None
    """`converge`: one fragment up to the target size; `tiered`: merge fragments of like size. Default: the
    deployment's setting."""
    cutoff: Annotated[Positive | None, Option(metavar="N", section=POLICY)] = None
    """Small fragments: `converge` rewrites only tables with more than N, `tiered` leaves at most N."""
    auto: Annotated[bool, Option(section=POLICY)] = False
    """Only tables past a threshold: small fragments, unindexed rows, deleted rows."""
    retrain_vectors: Annotated[bool, Option(section=POLICY)] = False
    """Build vector indexes anew whose partitions do not fit their rows. Queries with `limit 1` then find less."""
    purge_deleted: Annotated[bool, Option(section=POLICY)] = False
    """Also rewrite every fragment with a deleted row, however few, and every index that keeps entries of such rows.
    A cleanup can then remove the last files that hold them."""


Pace = Annotated[
    Annotated[Bytes, Field(ge=1)] | None,
    Field(description="Go no faster than this, as in `50MB`."),
    Option(metavar="SIZE"),
]
"""Bytes per second; None: no bound."""


class BackupOptions(Request):
    """How a backup is made."""

    freeze_id: Annotated[str | None, Option(name="freeze", metavar="ID", form=False)] = None
    """Copy this freeze (default: one of its own)."""
    incremental_from: Annotated[str | None, Option(metavar="BACKUP", form=False)] = None
    """Take unchanged files from this earlier backup, read the rest."""
    checksum: bool = False
    """Compute the SHA-256 of every file, also where the store could copy by itself."""
    max_bytes_per_second: Pace = None
