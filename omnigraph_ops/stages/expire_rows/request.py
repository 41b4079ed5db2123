"""Which rows somebody asks to delete."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.retention import RowPolicy
from omnigraph_ops.requests import Option, Positive, Request
from omnigraph_ops.stages.expire_rows.policy import RowPolicyEntry, distinct


class ExpireRowsRequest(Request):
    """Delete rows that are older than a policy allows."""

    policies: Annotated[tuple[RowPolicyEntry, ...], Option(metavar="FILE", section="Policies")] = ()
    """A list of policies, as in `[{"table": "node:Event", "property": "happened_at", "older_than": "90d"}]`."""
    max_share: Annotated[float, Field(gt=0, le=1), Option(metavar="SHARE", decides=True)] = 0.5
    """Refuse a table that would lose a larger share of its rows."""
    max_rows: Annotated[Positive | None, Option(metavar="N")] = None
    """Delete at most N rows of a table; without it, as many as were planned."""
    branch: Annotated[str | None, Option(metavar="NAME")] = None
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
        return None if self.branch in {None, "", "main"} else self.branch
