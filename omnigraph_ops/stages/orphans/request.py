"""Which unreferenced files somebody asks to remove."""

from __future__ import annotations

from typing import Annotated

from omnigraph_ops.requests import Option, Request, Seconds

SAFE_AGE_SECONDS = 7 * 86_400
"""A younger file may belong to a long write, and goes only on an explicit demand."""


class OrphansRequest(Request):
    """Remove files that no version, branch or tag refers to."""

    older_than: Annotated[Seconds, Option(metavar="DURATION", decides=True)] = SAFE_AGE_SECONDS
    """Remove only files older than this, as in `12h`, `7d`. A younger file may belong to a write at work."""
    listing: Annotated[str | None, Option(metavar="FILE", form=False)] = None
    """Read this inventory (CSV, JSON lines, Parquet) instead of listing the store."""
    quarantine: bool = False
    """Move the files aside instead of deleting them. With a digest, its plan says which."""
