"""Freezes as everybody else meets them: their names, the sentence that refuses, and how they end."""

from __future__ import annotations

import contextlib
import logging
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from omnigraph_ops.coordination.environment import clock_problem, is_running
from omnigraph_ops.coordination.holds import Hold, active_holds, freezes, is_active, read_hold, release_hold, write_hold
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.coordination.state import FREEZES_DIR
from omnigraph_ops.errors import CorruptGraph, GraphFrozen, InvalidInput, LeaseHeld, StorageError, lacks_rights
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import INTERNAL_DATASETS, is_ulid
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import DatasetMissing, LanceFailure
from omnigraph_ops.lance.versions import delete_tag
from omnigraph_ops.models.freeze import UnfreezeReport
from omnigraph_ops.quantities import moment_at
from omnigraph_ops.storage.inventory import TABLE_FOLDERS, folders_in
from omnigraph_ops.storage.store import Storage

_PREFIX = "omnigraph-ops.freeze."
_IS_FROZEN = " is frozen by "


def tag_name(freeze_id: str, number: int) -> str:
    """The name of one tag of a freeze; numbers count within a dataset. Pure."""
    return f"{_PREFIX}{freeze_id}.{number}"


def freeze_of_tag(name: str) -> str | None:
    """The id of the freeze that a tag belongs to, None for anybody else's tag. Pure."""
    if not name.startswith(_PREFIX):
        return None
    freeze_id, _, number = name.removeprefix(_PREFIX).partition(".")
    return freeze_id if is_ulid(freeze_id) and number.isdigit() else None


def contract_folder(freeze_id: str) -> str:
    """Where a freeze keeps the root's files as they were, relative to the graph. Pure."""
    return f"{FREEZES_DIR}/{freeze_id}"


def refuse_frozen(graph: Graph, table_key: str | None = None) -> None:
    """Raise `GraphFrozen` if the whole graph is frozen, or this table.

    Reads; where a freeze seems over it writes and removes a probe: that counts only where the clocks agree.
    """
    holds, entry = _counting(graph.storage), None
    if table_key is not None and any(h.freeze is not None and h.freeze.tables for h in holds):
        entry = graph.state_of(table_key).get(table_key)
    hold = next((h for h in holds if covers(h, table_key, entry.path if entry is not None else None)), None)
    if hold is not None:
        raise GraphFrozen(frozen_text(graph.target, hold))


def refuse_any_freeze(graph: Graph) -> None:
    """Raise `GraphFrozen` if anything of the graph is frozen; `CorruptGraph` where a record does not tell. Reads."""
    for hold in (h for h in active_holds(graph.storage) if h.freeze is not None):
        raise GraphFrozen(frozen_text(graph.target, hold))


def why_frozen(graph: Graph, holds: Iterable[Hold], entry: TableEntry) -> str | None:
    """The sentence for one table, from holds that are known to count; None when it is not frozen. Pure."""
    hold = next((h for h in holds if covers(h, entry.table_key, entry.path)), None)
    return frozen_text(graph.target, hold) if hold is not None else None


def active_freezes(storage: Storage) -> tuple[Hold, ...]:
    """Every freeze that counts now, one that is being taken included. Reads.

    A damaged record is not asked here: its tags keep the cut, and nothing is deleted beside it.
    """
    return tuple(h for h in freezes(storage) if is_active(h))


def _counting(storage: Storage) -> tuple[Hold, ...]:
    """Every freeze that may count: all whose process is not gone where no age can be told. May write a probe."""
    running = [hold for hold in freezes(storage) if is_running(hold)]
    active = tuple(filter(is_active, running))
    if len(active) < len(running):
        with contextlib.suppress(StorageError):  # whoever may not write a probe writes nothing to the graph either
            return active if clock_problem(storage) is None else tuple(running)
    return active


def covers(hold: Hold, table_key: str | None, path: str | None = None) -> bool:
    """Whether a freeze is about the whole graph or about that table. Pure.

    Args:
        path: of the table now; None where it is not live. A freeze follows a table that is renamed, and leaves
            another one that takes its name.
    """
    if hold.freeze is None or not hold.freeze.tables:
        return hold.freeze is not None
    cut = hold.freeze.cut
    if cut is None or path is None:
        return table_key in hold.freeze.tables
    return any(pin.path == path and pin.table_key in hold.freeze.tables for pin in cut.pins)


def frozen_text(target: str, hold: Hold) -> str:
    """Who froze what, why, since when, until when, and how to end it. Reads the clock."""
    tables = hold.freeze.tables if hold.freeze is not None else ()
    what = f"{', '.join(tables)} of {target}" if tables else target
    why = f" ({hold.reason})" if hold.reason else ""
    over = "" if is_active(hold) else ", which is over by the clock of this host; the clock of the store differs"
    return (
        f"{what}{_IS_FROZEN}{hold.owner}{why} since {moment_at(hold.created_at)}, "
        f"until {moment_at(hold.expires_at)}{over}; nothing was written; "
        f"wait for its end; `omnigraph-ops unfreeze {shlex.quote(target)} {hold.hold_id}` ends it if nobody needs it"
    )


def tells_of_freeze(reason: str) -> bool:
    """Whether the reason that a plan gives for leaving a table alone is a freeze, as `frozen_text` says it. Pure."""
    return _IS_FROZEN in reason


TagsByFreeze = dict[str, list[tuple[str, str]]]
"""Freeze to the (dataset path, tag name) of its tags."""
_LOG = logging.getLogger(__name__)


def unfreeze(graph: Graph, freeze_id: str) -> UnfreezeReport:
    """End one freeze with all its tags, also one whose record is gone or damaged. Destroys tags and record.

    Raises:
        InvalidInput: there is neither a record nor a tag of it.
        StorageError: it has ended, but tags of datasets that cannot be read stay.
    """
    with committer_turn(graph, f"unfreeze {freeze_id}"):
        hold, damaged = _record(graph, freeze_id)
        if hold is not None and hold.freeze is None:
            raise InvalidInput(f"{freeze_id} is a hold, not a freeze; `omnigraph-ops release` ends it")
        tags = stored_tags(graph).get(freeze_id, [])
        if hold is None and not tags and not damaged:
            known = ", ".join(h.hold_id for h in freezes(graph.storage)) or "none"
            raise InvalidInput(f"{graph.target} has no freeze {freeze_id}; nothing was changed; its freezes: {known}")
        removed = _end(graph, freeze_id, hold, tags)
    return UnfreezeReport(uri=graph.target, released=(freeze_id,), tags_removed=removed)


def unfreeze_all(graph: Graph, owner: str) -> UnfreezeReport:
    """End every freeze of that owner. Destroys tags and records.

    Raises:
        StorageError: of the first that could not be ended, or not with all its tags; it hinders no other.
    """
    ended, failures = list[UnfreezeReport](), list[StorageError]()
    for hold in (h for h in active_freezes(graph.storage) if h.owner == owner):
        try:
            with contextlib.suppress(InvalidInput):  # another process ended it meanwhile
                ended.append(unfreeze(graph, hold.hold_id))
        except StorageError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    released = tuple(freeze_id for report in ended for freeze_id in report.released)
    return UnfreezeReport(uri=graph.target, released=released, tags_removed=sum(r.tags_removed for r in ended))


def end_freeze(graph: Graph, hold: Hold) -> int:
    """End a freeze by the names in its record; how many tags went. Destroys tags and record.

    Raises:
        StorageError: as `unfreeze`.
    """
    cut = hold.freeze.cut if hold.freeze is not None else None
    tags = [(pin.path, pin.tag) for pin in cut.pins] if cut is not None else []
    return _end(graph, hold.hold_id, hold, tags)


def _end(graph: Graph, freeze_id: str, hold: Hold | None, tags: Sequence[tuple[str, str]]) -> int:
    """End a freeze; how many tags went. A record stays with the tags that do, for whoever sweeps. Destroys both."""
    _mark_ended(graph, hold)
    removed, unread = _remove_tags(graph, tags)
    if hold is None or not unread:
        _forget(graph, freeze_id)
    if not unread:
        return removed
    later = "the next `omnigraph-ops holds`, optimize or cleanup removes"
    if hold is None:
        later = f"a later `omnigraph-ops unfreeze {shlex.quote(graph.target)} {freeze_id}` removes"
    raise StorageError(
        f"freeze {freeze_id} of {graph.target} has ended, but its tags on {', '.join(unread)} stay and keep versions "
        f"there: {next(iter(unread.values()))}; {later} them once that can be read again"
    )


def sweep_ended(graph: Graph) -> tuple[str, ...]:
    """End what expired or was killed; does nothing while another run works. Returns the ids. Destroys ended freezes.

    An account that may not is told so and goes on: an ended freeze stops nobody, its tags only keep versions.
    """
    if not _ended(graph):
        return ()
    with (
        _left_to_others("ended freezes"),
        contextlib.suppress(LeaseHeld),
        committer_turn(graph, "end freezes", wait_seconds=0),
    ):
        return sweep_ended_here(graph)
    return ()


def _can_tell_time(graph: Graph) -> bool:
    """Whether what seems to have ended has; if not, a line in the log says why nothing is ended. Writes a probe."""
    problem: str | None = "the store refuses a probe"
    with _left_to_others("ended freezes"):
        problem = clock_problem(graph.storage)
    if problem is not None:
        _LOG.warning("ended freezes stay: %s", problem)
    return problem is None


def sweep_ended_here(graph: Graph) -> tuple[str, ...]:
    """The same for a caller that holds the committer lease. Destroys ended freezes."""
    swept: list[str] = []
    for hold in _ended(graph):
        with _left_to_others(f"ended freeze {hold.hold_id}"):
            end_freeze(graph, hold)
            swept.append(hold.hold_id)
    return tuple(swept)


def _ended(graph: Graph) -> list[Hold]:
    """Freezes that have ended; none where the clock cannot be trusted, with a line in the log. Writes a probe."""
    ended = [hold for hold in freezes(graph.storage) if not is_active(hold)]
    return ended if ended and _can_tell_time(graph) else []


def stored_tags(graph: Graph) -> TagsByFreeze:
    """Every tag of a freeze in any dataset of the graph, by the files that make them. Reads."""
    found: TagsByFreeze = {}
    for path in _datasets(graph):
        for name in graph.storage.list(f"{path}/_refs/tags"):
            freeze_id = freeze_of_tag(name.removesuffix(".json")) if name.endswith(".json") else None
            if freeze_id is not None:
                found.setdefault(freeze_id, []).append((path, name.removesuffix(".json")))
    return found


@contextlib.contextmanager
def _left_to_others(what: str) -> Iterator[None]:
    """Go on when the store refuses, with a line in the log. Pure."""
    try:
        yield
    except StorageError as error:
        _LOG.warning("%s: tags stay until a run that may delete them comes by; %s", what, error)


def _datasets(graph: Graph) -> list[str]:
    """Folders of datasets, of dropped types too. Reads."""
    if not graph.format.publishes:
        return [entry.path for entry in graph.state().entries]
    return [*INTERNAL_DATASETS, *(path for f in TABLE_FOLDERS for path in folders_in(graph.storage, f))]


def _remove_tags(graph: Graph, tags: Iterable[tuple[str, str]]) -> tuple[int, dict[str, str]]:
    """How many tags went, and why no tag of some datasets did. Destroys only tags."""
    by_path: dict[str, list[str]] = {}
    for path, name in tags:
        by_path.setdefault(path, []).append(name)
    removed, unread = 0, dict[str, str]()
    for path, names in by_path.items():
        try:
            dataset = graph.open_at(path)
        except DatasetMissing:
            continue  # gone with its type
        except LanceFailure as error:
            unread[path] = damage_of(graph, path, error)
        else:
            removed += sum(delete_tag(dataset, name) for name in names)
    return removed, unread


def damage_of(graph: Graph, path: str, error: LanceFailure) -> str:
    """What is wrong with one dataset, for a failure to open it. Reads.

    Raises:
        StorageError: this account may not read it, or the store does not answer: that is not about one dataset.
    """
    if lacks_rights(error):
        raise error
    graph.storage.list(f"{path}/_versions")
    return str(error)


def _mark_ended(graph: Graph, hold: Hold | None) -> None:
    """Half a freeze is none: from its first lost tag on it counts no more, and whoever comes by ends it. Writes."""
    if hold is not None and is_active(hold):
        write_hold(graph.storage, replace(hold, expires_at=time.time()))


def _record(graph: Graph, freeze_id: str) -> tuple[Hold | None, bool]:
    """The record, and whether there is one that cannot be read. Reads."""
    try:
        return read_hold(graph.storage, freeze_id), False
    except CorruptGraph:
        return None, True


def _forget(graph: Graph, freeze_id: str) -> None:
    graph.storage.delete_tree(contract_folder(freeze_id))
    release_hold(graph.storage, freeze_id)
