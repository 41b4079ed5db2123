"""Take freezes and holds of readers, and list who holds what.

The announcement is a hold that is bound to this process and already keeps our stages out: a running optimize stops
at its next unit and resumes after the freeze. The record names every tag before the first one is made, so whoever
comes by after a crash can remove them by name.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from omnigraph_ops.coordination.environment import refuse_wrong_clock
from omnigraph_ops.coordination.freezes import (
    active_freezes,
    contract_folder,
    end_freeze,
    stored_tags,
    sweep_ended,
    sweep_ended_here,
)
from omnigraph_ops.coordination.holds import (
    FreezeTerms,
    HeldVersion,
    Hold,
    HoldKind,
    freezes,
    holds_and_faults,
    is_active,
    place_hold,
    read_hold,
    refuse_removed,
    release_hold,
    write_hold,
)
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.errors import CorruptGraph, InvalidInput, OpsError, PublishConflict, unknown_table
from omnigraph_ops.graph.graph import Graph, select_entries
from omnigraph_ops.lance.gateway import DatasetMissing
from omnigraph_ops.lance.versions import create_tag, without_twins
from omnigraph_ops.models.freeze import (
    DEFAULT_TTL_SECONDS,
    CutProblem,
    Freeze,
    FrozenCut,
    FrozenPin,
    HoldList,
    HoldState,
    ListedHold,
    UnfreezeReport,
)
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.quantities import count, duration
from omnigraph_ops.stages.freeze.observe import observe_cut, verify_cut

LONGEST_TTL_SECONDS = 30 * 86_400.0
_GONE = "it was removed"


def freeze_graph(
    graph: Graph,
    *,
    tables: Sequence[str] = (),
    ttl_seconds: float = DEFAULT_TTL_SECONDS,
    reason: str = "",
    owner: str | None = None,
    progress: Progress = SILENT,
) -> Freeze:
    """Keep the graph (or these tables) as it is now readable until the freeze ends. Writes tags and a hold.

    Raises:
        InvalidInput: the time is not positive or too long, or was over before the freeze was taken.
        ClockWrong: this host and the store disagree about the time: others would see another end.
        RecoveryPending: a schema apply is under way; nothing is frozen.
        LeaseHeld: a unit of maintenance did not finish in time; nothing is frozen.
        UnknownTable: a named table is not live; nothing is frozen.
    """
    check_ttl(ttl_seconds)
    refuse_wrong_clock(graph.storage, "nothing was frozen")
    if tables:  # nobody waits for running maintenance, nor holds it up, for a name that is not there
        select_entries(graph, graph.state(), tables)
    hold = place_hold(
        graph.storage,
        (),
        kind=HoldKind.FREEZE,
        reason=reason,
        ttl_seconds=ttl_seconds,
        bound_to_process=True,
        owner=owner or audit_log.shell_actor(),
        freeze=FreezeTerms(tables=tuple(tables) or graph.addressed),
    )
    try:
        progress(f"freeze {hold.hold_id} announced, waiting for running maintenance")
        return _take(graph, hold, progress)
    except BaseException:
        # What a kill would leave, too: the next stage that comes by ends it then.
        with contextlib.suppress(OpsError):
            end_freeze(graph, read_hold(graph.storage, hold.hold_id) or hold)
        raise


def extend_freeze(graph: Graph, freeze_id: str, ttl_seconds: float) -> Freeze:
    """Let a freeze end that many seconds from now. Writes its record.

    Raises:
        InvalidInput: there is no such freeze, or it has ended.
        ClockWrong: this host and the store disagree about the time.
    """
    check_ttl(ttl_seconds)
    refuse_wrong_clock(graph.storage, f"freeze {freeze_id} ends when it would have ended")
    with committer_turn(graph, f"extend freeze {freeze_id}"):
        hold, cut = _active(graph, freeze_id)
        hold = replace(hold, expires_at=time.time() + ttl_seconds)
        write_hold(graph.storage, hold)
        return _freeze_of(graph, hold, cut)


def read_freeze(graph: Graph, freeze_id: str) -> Freeze:
    """The freeze of that id, ended or not; `InvalidInput` when there is none that was finished. Reads."""
    return _freeze_of(graph, *_taken(graph, freeze_id))


def active_freeze(graph: Graph, freeze_id: str) -> Freeze:
    """The freeze of that id; `InvalidInput` when there is none, or it has ended. Reads."""
    return _freeze_of(graph, *_active(graph, freeze_id))


def refuse_lost(graph: Graph, freeze: Freeze, consequence: str) -> None:
    """Refuse a freeze that has lost something of its cut, a branch for instance; `CorruptGraph`. Reads.

    Args:
        consequence: what did not happen, for the message: `nothing was copied`.
    """
    problems = verify_cut(graph, freeze)
    if problems:
        raise CorruptGraph(
            f"freeze {freeze.freeze_id} has lost something of what it keeps: {said_of(problems)}; {consequence}; "
            "end it with unfreeze, and freeze again"
        )


def said_of(problems: Sequence[CutProblem]) -> str:
    """What is gone, of many things the first. Pure."""
    gone = problems[0]
    where = f"branch {gone.branch} of {gone.path}" if gone.branch else gone.path
    more = f", and {count(len(problems) - 1, 'more version')}" if len(problems) > 1 else ""
    return f"{where} version {gone.version}: {gone.reason}{more}"


def _active(graph: Graph, freeze_id: str) -> tuple[Hold, FrozenCut]:
    hold, cut = _taken(graph, freeze_id)
    if not is_active(hold):
        raise InvalidInput(f"freeze {freeze_id} of {graph.target} has ended; freeze again")
    return hold, cut


def _taken(graph: Graph, freeze_id: str) -> tuple[Hold, FrozenCut]:
    hold = read_hold(graph.storage, freeze_id)
    if hold is None or hold.freeze is None or hold.freeze.cut is None:
        known = ", ".join(h.hold_id for h in active_freezes(graph.storage)) or "none"
        raise InvalidInput(f"{graph.target} has no freeze {freeze_id}; nothing was changed; its freezes: {known}")
    if hold.starting:
        raise InvalidInput(
            f"freeze {freeze_id} of {graph.target} is still being taken, or its process died meanwhile; "
            "`omnigraph-ops holds` shows it; wait, or freeze again"
        )
    return hold, hold.freeze.cut


def _take(graph: Graph, hold: Hold, progress: Progress) -> Freeze:
    tables = hold.freeze.tables if hold.freeze is not None else ()
    with committer_turn(graph, f"freeze {hold.hold_id}") as keeper:
        sweep_ended_here(graph)
        _refuse_ended(graph, hold)
        look = observe_cut(graph, hold.hold_id, tables)
        versions = tuple(HeldVersion(table_path=p.path, version=p.version, branch=p.branch) for p in look.cut.pins)
        hold = replace(hold, versions=versions, freeze=FreezeTerms(tables=tables, cut=look.cut))
        write_hold(graph.storage, hold)
        refuse_removed(graph.storage, versions)
        for name, data in look.contract:  # a later schema apply replaces these files of the root
            graph.storage.write(f"{contract_folder(hold.hold_id)}/{name}", data)
        progress(f"tagging {count(len(look.cut.pins), 'version')} of {count(len(look.cut.datasets), 'dataset')}")
        keeper.assert_held()
        _tag_all(graph, look.cut)
        freeze = _freeze_of(graph, hold, look.cut)
        # A cleanup that began before the tags may have removed a version after the look.
        if problems := verify_cut(graph, freeze):
            raise _gone(graph, problems[0])
        keeper.assert_held()
        _refuse_ended(graph, hold)
        write_hold(graph.storage, replace(hold, pid=0, machine="", process_started=""))
    return freeze


def _refuse_ended(graph: Graph, hold: Hold) -> None:
    """Somebody may have ended it while it waited, or its time was over: it is not brought back. Reads."""
    current = read_hold(graph.storage, hold.hold_id)
    if current is None or not is_active(current):
        raise InvalidInput(
            f"freeze {hold.hold_id} of {graph.target} ended before it was taken; nothing stays frozen; freeze again, "
            "perhaps for a longer time"
        )


def _tag_all(graph: Graph, cut: FrozenCut) -> None:
    def one(pins: Sequence[FrozenPin]) -> None:
        dataset = graph.open_at(pins[0].path)
        for pin in pins:
            try:
                create_tag(dataset, pin.tag, branch=pin.branch, version=pin.version)
            except DatasetMissing:
                problem = CutProblem(path=pin.path, branch=pin.branch, version=pin.version, reason=_GONE)
                raise _gone(graph, problem) from None

    with without_twins([graph.storage.uri(path) for path in cut.datasets]):
        in_parallel(one, list(cut.by_dataset().values()), workers=graph.settings.concurrency)


def _gone(graph: Graph, problem: CutProblem) -> OpsError:
    """What to say of a version of the cut that is not there. Reads: a branch that still has it had it gone before."""
    for branch in (None, *graph.branches()) if graph.format.publishes else ():
        for entry in graph.state(branch).entries:
            if (entry.path, entry.branch, entry.version) == (problem.path, problem.branch, problem.version):
                where = f"branch {branch!r}" if branch is not None else "main"
                cure = f"delete {where} with omnigraph" if branch is not None else "restore the graph from a backup"
                return CorruptGraph(
                    f"{where} publishes version {entry.version} of {entry.table_key}, which is gone: nobody can read "
                    f"it there; nothing stays frozen; {cure}, and freeze again"
                )
    return PublishConflict(
        f"version {problem.version} of {problem.path} went while {graph.target} was being frozen: {problem.reason}; "
        "nothing stays frozen; freeze again when nobody cleans up or deletes branches"
    )


def _freeze_of(graph: Graph, hold: Hold, cut: FrozenCut) -> Freeze:
    return Freeze(
        freeze_id=hold.hold_id,
        uri=graph.target,
        owner=hold.owner,
        reason=hold.reason,
        created_at=hold.created_at,
        expires_at=hold.expires_at,
        tables=hold.freeze.tables if hold.freeze is not None else (),
        cut=cut,
    )


def check_ttl(seconds: float) -> None:
    """Refuse a time that is not positive or that nobody would look after; `InvalidInput`. Pure."""
    if not 1 <= seconds <= LONGEST_TTL_SECONDS:
        raise InvalidInput(
            f"a freeze or hold lasts at least 1 s and at most {LONGEST_TTL_SECONDS / 86_400:.0f} days, not "
            f"{duration(int(seconds)) if math.isfinite(seconds) else seconds}; nothing was written"
        )


def hold_version(
    graph: Graph,
    table_key: str,
    *,
    version: int | None,
    branch: str | None,
    ttl_seconds: float,
    reason: str,
    owner: str,
) -> Hold:
    """Hold one version of a table, by default the one that the branch publishes now. Writes a hold.

    Under the lease, and with a look for announced removals: a cleanup has either seen the hold, or removed the version
    before, or is found to be about to.

    Raises:
        InvalidInput, UnknownTable: there is no such table, branch or version, or the time is out of bounds.
        StalePlan: a cleanup is removing it.
        ClockWrong: this host and the store disagree about the time.
    """
    check_ttl(ttl_seconds)
    refuse_wrong_clock(graph.storage, "nothing was held")
    branch = None if branch == "main" else branch
    with committer_turn(graph, f"hold {table_key}"):
        if branch is not None and graph.format.publishes and branch not in graph.branches():
            raise InvalidInput(f"{graph.target} has no branch {branch!r}; nothing was held")
        state = graph.state(branch)
        (entry,) = select_entries(graph, state, (table_key,)) if branch is None else (state.get(table_key),)
        if entry is None:
            known = [e.table_key for e in state.entries]
            raise unknown_table(f"branch {branch!r} of {graph.target}", table_key, known, "nothing was held")
        number = entry.version if version is None else version
        try:
            graph.open_version(entry, number)
        except DatasetMissing:
            raise InvalidInput(
                f"{table_key} has no version {number}, or not any more; nothing was held; it is published at version "
                f"{entry.version}"
            ) from None
        held = HeldVersion(table_path=entry.path, version=number, branch=entry.branch)
        hold = place_hold(
            graph.storage, (held,), kind=HoldKind.READER, reason=reason, ttl_seconds=ttl_seconds, owner=owner
        )
        try:
            refuse_removed(graph.storage, (held,))
        except OpsError:
            release_hold(graph.storage, hold.hold_id)
            raise
        return hold


def release(graph: Graph, hold_id: str) -> UnfreezeReport:
    """End a reader's hold. Destroys only the hold.

    Raises:
        InvalidInput: there is no such hold, or it is a freeze or a running rewrite's.
    """
    hold = read_hold(graph.storage, hold_id)
    if hold is None:
        raise InvalidInput(
            f"{graph.target} has no hold {hold_id}; nothing was changed; `omnigraph-ops holds` lists them"
        )
    if hold.kind is HoldKind.PLAN or hold.freeze is not None:
        raise InvalidInput(
            f"{hold_id} is a {hold.kind} hold; a freeze ends with `omnigraph-ops unfreeze`, a plan by itself"
        )
    release_hold(graph.storage, hold_id)
    return UnfreezeReport(uri=graph.target, released=(hold_id,), tags_removed=0)


_NO_RECORD = "its record is lost, so nobody knows until when; end it with `omnigraph-ops unfreeze`"


def list_holds(graph: Graph) -> HoldList:
    """Everything that holds versions now, after ending what has expired. Destroys ended freezes."""
    swept = sweep_ended(graph)
    holds, unreadable = holds_and_faults(graph.storage)
    recorded = {h.hold_id for h in freezes(graph.storage)}
    lost = {freeze_id: tags for freeze_id, tags in stored_tags(graph).items() if freeze_id not in recorded}
    keys = dict[str, str]()
    with contextlib.suppress(OpsError):
        keys = {entry.path: entry.table_key for entry in graph.state().entries}
    return HoldList(
        uri=graph.target,
        holds=(
            *(_listed(graph, h, keys) for h in holds),
            *(_unknown(i, "hold", "unknown", why) for i, why in unreadable.items()),
            *(
                _unknown(i, "freeze", count(len(tags), "tag"), _NO_RECORD, len(tags))
                for i, tags in sorted(lost.items())
                if i not in unreadable
            ),
        ),
        swept=swept,
    )


def _listed(graph: Graph, hold: Hold, keys: Mapping[str, str]) -> ListedHold:
    freeze = None if hold.starting or hold.freeze is None else read_freeze(graph, hold.hold_id)
    return ListedHold(
        hold_id=hold.hold_id,
        kind=hold.kind.value,
        state=HoldState.STARTING if hold.starting else HoldState.ACTIVE,
        owner=hold.owner,
        reason=hold.reason,
        what=_what(hold, keys),
        versions=len(hold.versions),
        created_at=hold.created_at,
        expires_at=hold.expires_at,
        age_seconds=max(int(time.time() - hold.created_at), 0),
        problems=() if freeze is None else verify_cut(graph, freeze, with_damaged=True),
    )


def _what(hold: Hold, keys: Mapping[str, str]) -> str:
    """The tables that a hold is about, by their keys as far as they are published. Pure."""
    if hold.freeze is not None:
        return ", ".join(hold.freeze.tables) or "the whole graph"
    places = [
        f"{keys.get(v.table_path, v.table_path)}{f' branch {v.branch}' if v.branch else ''} version {v.version}"
        for v in hold.versions
    ]
    return ", ".join(places) or "nothing"


def _unknown(hold_id: str, kind: str, what: str, reason: str, versions: int = 0) -> ListedHold:
    return ListedHold(
        hold_id=hold_id,
        kind=kind,
        state=HoldState.UNKNOWN,
        owner="",
        reason=reason,
        what=what,
        versions=versions,
    )
