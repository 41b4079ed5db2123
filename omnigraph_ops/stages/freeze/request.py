"""What somebody asks of a freeze."""

from __future__ import annotations

from typing import Annotated

from omnigraph_ops.requests import Option, Seconds, TablesRequest

DEFAULT_TTL_SECONDS = 86_400


class FreezeRequest(TablesRequest):
    """Keep the graph, with all its branches, as it is now."""

    ttl: Annotated[Seconds, Option(metavar="DURATION")] = DEFAULT_TTL_SECONDS
    """End the freeze after this, as in `12h`, even if its run was killed."""
    reason: Annotated[str, Option(metavar="TEXT")] = ""
    """Shown to everybody whom the freeze stops."""
    owner: Annotated[str, Option(shell=False, form=False)] = ""
    """Whose freeze it is; empty: the user's at this shell."""
