"""List who holds what: freezes with what is gone of them, other holds, and tags whose record is lost."""

from __future__ import annotations

import time

from omnigraph_ops.coordination.freeze_release import stored_tags, sweep_ended
from omnigraph_ops.coordination.holds import Hold, active_holds, freezes
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.freeze import CutProblem, HoldList, HoldState, ListedHold
from omnigraph_ops.stages.freeze.take import read_freeze
from omnigraph_ops.stages.freeze.verify import verify_cut

_NO_RECORD = "its record is lost, so nobody knows until when; end it with `omnigraph-ops unfreeze`"


def list_holds(graph: Graph) -> HoldList:
    """Everything that holds versions now, after ending what has expired. Destroys ended freezes.

    Raises:
        CorruptGraph: a hold cannot be read, so what it protects is unknown.
    """
    swept = sweep_ended(graph)
    holds = active_holds(graph.storage)
    recorded = {h.hold_id for h in freezes(graph.storage)}
    lost = {freeze_id: tags for freeze_id, tags in stored_tags(graph).items() if freeze_id not in recorded}
    return HoldList(
        uri=graph.target,
        holds=(*(_listed(graph, h) for h in holds), *(_unknown(i, len(tags)) for i, tags in sorted(lost.items()))),
        swept=swept,
    )


def _listed(graph: Graph, hold: Hold) -> ListedHold:
    return ListedHold(
        hold_id=hold.hold_id,
        kind=hold.kind.value,
        state=HoldState.STARTING if hold.starting else HoldState.ACTIVE,
        owner=hold.owner,
        reason=hold.reason,
        what=_what(hold),
        versions=len(hold.versions),
        created_at=hold.created_at,
        expires_at=hold.expires_at,
        age_seconds=max(int(time.time() - hold.created_at), 0),
        problems=() if hold.starting else _problems(graph, hold),
    )


def _problems(graph: Graph, hold: Hold) -> tuple[CutProblem, ...]:
    if hold.freeze is None:
        return ()
    return verify_cut(graph, read_freeze(graph, hold.hold_id))


def _what(hold: Hold) -> str:
    if hold.freeze is not None:
        return ", ".join(hold.freeze.tables) or "the whole graph"
    places = [f"{v.table_path}{f' branch {v.branch}' if v.branch else ''} version {v.version}" for v in hold.versions]
    return ", ".join(places) or "nothing"


def _unknown(freeze_id: str, tags: int) -> ListedHold:
    return ListedHold(
        hold_id=freeze_id,
        kind="freeze",
        state=HoldState.UNKNOWN,
        owner="",
        reason=_NO_RECORD,
        what=f"{tags} tags",
        versions=tags,
        created_at=None,
        expires_at=None,
        age_seconds=None,
    )
