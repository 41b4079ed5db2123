"""Which rows somebody asks to delete: policies as people write them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.rows import EpochUnit, RowPolicy
from omnigraph_ops.requests import Option, Positive, Request, Seconds


def _age(seconds: int) -> int:
    if seconds == 0:
        raise ValueError("the age must be more than zero")
    return seconds


class RowPolicyEntry(Request):
    """One policy, as in `{table: node:Event, property: happened_at, older_than: 90d}`."""

    table: Annotated[str, Field(min_length=1), Option(metavar="KEY")]
    """Table key, as in `node:Event`; `table:items` in plain Lance."""
    property: Annotated[str, Field(min_length=1), Option(metavar="NAME")]
    """A Date, a DateTime or, with `unit`, an integer."""
    older_than: Annotated[Seconds, AfterValidator(_age), Option(metavar="DURATION")]
    """Rows with an older value go, as in `90d`."""
    unit: EpochUnit | None = None
    """What an integer counts since 1970."""

    def policy(self) -> RowPolicy:
        """The policy that is meant. Pure."""
        return RowPolicy(
            table_key=self.table,
            property=self.property,
            older_than_secs=self.older_than,
            unit=self.unit,
        )


def distinct(policies: Iterable[RowPolicy]) -> tuple[RowPolicy, ...]:
    """The policies by table; `InvalidInput` when there is none, or two for one table. Pure."""
    ordered = tuple(sorted(policies, key=lambda p: p.table_key))
    if not ordered:
        raise InvalidInput("no policy: name --table, --property and --older-than, or --policies FILE")
    twice = {a.table_key for a, b in pairwise(ordered) if a.table_key == b.table_key}
    if twice:
        raise InvalidInput(f"{min(twice)} has more than one policy; nothing was deleted")
    return ordered


class ExpireRowsRequest(Request):
    """Delete rows that are older than a policy allows."""

    policies: Annotated[tuple[RowPolicyEntry, ...], Option(metavar="FILE", section="Policies")] = ()
    """A list of policies, as in `[{"table": "node:Event", "property": "happened_at", "older_than": "90d"}]`."""
    max_share: Annotated[float, Field(gt=0, le=1), Option(metavar="SHARE", decides=True)] = 0.5
    """Refuse a table that would lose a larger share of its rows."""
    max_rows: Annotated[Positive | None, Option(metavar="N")] = None
    """Delete at most N rows of a table; without it, as many as were planned."""
    branch: Annotated[str | None, Field(min_length=1), Option(metavar="NAME")] = None
    """A branch instead of main."""

    @model_validator(mode="after")
    def _distinct(self) -> ExpireRowsRequest:
        try:
            _ = self.row_policies
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def row_policies(self) -> tuple[RowPolicy, ...]:
        """The policies by table; `InvalidInput` when there is none, or two for one table. Pure."""
        return distinct(entry.policy() for entry in self.policies)

    @property
    def branch_name(self) -> str | None:
        """None for main, which has no name. Pure."""
        return None if self.branch == "main" else self.branch
