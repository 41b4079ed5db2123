"""Which versions are protected, which of the others a retention policy lets go, and with which files.

Of the graph manifest and its companions, too. Every publish leaves a version of the graph manifest that lists all its
fragments, so their total grows with the square of the publishes until it is compacted. An old version is read for three
things only: to open a commit, as the base of a merge, and as the fork of a branch. One that serves none of them goes as
the retention policy says. The companions of stamp 3 are read at their newest version, so there only forks count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import ClassVar

from omnigraph_ops.coordination.freezes import why_frozen
from omnigraph_ops.coordination.graph_view import GraphView, look
from omnigraph_ops.errors import CorruptGraph, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MANIFEST_DIR, any_version_of, chain_folder
from omnigraph_ops.graph.references import lost_reference
from omnigraph_ops.graph.stamp import newest_foreign
from omnigraph_ops.graph.state import BranchState, GraphCommit, TableEntry, by_id
from omnigraph_ops.lance.gateway import Dataset, DatasetMissing, LanceGateway
from omnigraph_ops.lance.versions import VersionFacts, branch_base_paths, existing_versions, needed_files
from omnigraph_ops.models.cleanup import (
    SHORTEST_AGE_SECONDS,
    UNREADABLE,
    ProtectedVersion,
    RetentionPolicy,
    SnapshotExpiry,
    TableCleanupPlan,
)

_MICROS = 1_000_000
_MORE_LOOKS = 2
"""After which what cannot be opened is no work of somebody else."""
NOT_ALONE = "others may publish: only a run with --fence, or an exclusive one, removes versions of internal tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Protected versions of one table's main chain with every reason, and the lowest branch pin.

    The recovery floor is the published version: a sidecar that could roll a table back further is pending,
    and beside anything pending nothing is collected at all.
    """

    versions: tuple[ProtectedVersion, ...]
    floor: int
    """The lowest version that a graph branch reads on the main chain; nothing below it is a hole."""
    floor_reason: str

    def numbers(self) -> frozenset[int]:
        """The versions that must stay. Pure."""
        return frozenset(p.version for p in self.versions)

    def with_reasons(self, reasons: Iterable[tuple[int, str]]) -> Protection:
        """The same with more that keeps a version. Pure."""
        ours = [(p.version, reason) for p in self.versions for reason in p.reasons]
        return replace(self, versions=_collect([*ours, *reasons]))


def protect(lance: LanceGateway, entry: TableEntry, head: Dataset, view: GraphView) -> Protection:
    """Everything that keeps a version of this table: head, pins, bases of merges, forks, tags, holds, plans. Reads."""
    pins = [(entry.version, "published on main")]
    pins += [(version, f"branch {state.branch!r} reads it") for state, version in _read_by(view.branches, entry)]
    reasons = [(int(head.version), "Lance HEAD"), *pins]
    for ref in lance.branches(head):
        if ref.parent_branch is None:
            reasons.append((ref.parent_version, f"Lance branch {ref.name!r} forks here"))
    for name, branch, version in lance.tags(head):
        if branch is None:
            reasons.append((version, f"tag {name!r}"))
    for state, version in _read_by(view.bases, entry):
        start = f"merges start from version {state.manifest_version} of {state.branch or 'main'}"
        reasons.append((version, start))
    reasons += view.held(entry.path, None)
    floor, reason = min(pins)
    return Protection(versions=_collect(reasons), floor=floor, floor_reason=reason)


def _read_by(states: Iterable[BranchState], entry: TableEntry) -> Iterator[tuple[BranchState, int]]:
    """Which versions of a table's main chain these states read. Pure."""
    return ((s, e.version) for s in states for e in s.at(entry.path) if e.branch is None)


def spelling_problem(head: Dataset, forks: Iterable[str], table_uri: str) -> str | None:
    """Why Lance would not see that a branch shares files with this table, None when it would. Reads.

    Lance compares the recorded root with the URI that the cleanup opens, as strings.
    """
    own = table_uri.rstrip("/")
    for name in forks:
        for base in branch_base_paths(head, name):
            # A fork of a fork also records the folder of its parent, below the same table.
            if base.rstrip("/") != own and not base.startswith(f"{own}/tree/"):
                return (
                    f"branch {name!r} records this table at {base!r}, not {table_uri!r}; version cleanup under "
                    "another spelling would delete files that the branch still reads"
                )
    return None


def _collect(reasons: Iterable[tuple[int, str]]) -> tuple[ProtectedVersion, ...]:
    by_version: dict[int, list[str]] = {}
    for version, reason in reasons:
        by_version.setdefault(version, []).append(reason)
    return tuple(
        ProtectedVersion(version=version, reasons=tuple(by_version[version])) for version in sorted(by_version)
    )


def candidates(versions: Sequence[VersionFacts], policy: RetentionPolicy, now_us: int) -> tuple[int, ...]:
    """Versions that the policy alone would let go, ascending; none without a bound. Pure.

    Args:
        versions: every existing version of the main chain, ascending.
        now_us: microseconds since the epoch.
    """
    if policy.expiry is not None:
        return _expired(versions, policy.expiry, now_us)
    if policy.keep_versions is None and policy.older_than_secs is None:
        return ()
    kept = max(policy.keep_versions, 1) if policy.keep_versions is not None else 1
    old = versions[:-kept]
    if policy.older_than_secs is not None:
        cutoff = now_us - policy.older_than_secs * _MICROS
        # A branch that the engine began to make while a version was the newest still needs it, however old that is.
        # Below an hour a person asked for less than that (`--allow-young`).
        in_use = now_us - SHORTEST_AGE_SECONDS * _MICROS if policy.older_than_secs >= SHORTEST_AGE_SECONDS else now_us
        followed = zip(old, versions[1:], strict=False)
        old = [v for v, after in followed if v.committed_at_us < cutoff and after.committed_at_us < in_use]
    return tuple(v.version for v in old)


def removable(
    wanted: Sequence[int], protection: Protection, *, between_pins: bool, expiry: SnapshotExpiry | None = None
) -> tuple[tuple[int, ...], str | None]:
    """What may go of what the policy wants, and what blocked the rest. Pure.

    Collection stops at the lowest pin of any branch, so that history stays continuous above it, unless the
    policy also takes what lies between the pins. An expiry takes one continuous range.
    """
    held = protection.numbers()
    free = [v for v in wanted if v not in held]
    if expiry is not None:
        free = _one_run(wanted, held)[: expiry.expire_limit]
    if between_pins:
        return tuple(free), None
    below = tuple(v for v in free if v < protection.floor)
    blocked = any(v > protection.floor for v in wanted)
    return below, f"version {protection.floor}: {protection.floor_reason}" if blocked else None


def _expired(versions: Sequence[VersionFacts], expiry: SnapshotExpiry, now_us: int) -> tuple[int, ...]:
    """The oldest versions beyond `retain_max`, and those beyond `retain_min` that are old enough. Pure.

    `expire_limit` is left to the caller, which knows what is protected. Versions below a gap are what an
    earlier cleanup left on purpose: out of scope.
    """
    run = versions[_last_gap([v.version for v in versions]) :]
    surplus = max(len(run) - expiry.retain_max, 0) if expiry.retain_max is not None else 0
    end = max(len(run) - expiry.retain_min, 0)
    cutoff = now_us - expiry.time_retained_secs * _MICROS
    young = next((i for i in range(surplus, end) if run[i].committed_at_us >= cutoff), end)
    return tuple(v.version for v in run[:young])


def _last_gap(versions: Sequence[int]) -> int:
    """The index where the continuous run that ends with the newest version begins. Pure."""
    gaps = [i for i, (a, b) in enumerate(pairwise(versions), start=1) if b != a + 1]
    return gaps[-1] if gaps else 0


def _one_run(wanted: Sequence[int], held: Collection[int]) -> list[int]:
    """The first stretch of wanted versions without a protected one in it. Pure."""
    run: list[int] = []
    for version in wanted:
        if version not in held:
            run.append(version)
        elif run:
            break
    return run


def internal_entry(graph: Graph, table: TableCleanupPlan) -> TableEntry | None:
    """The internal table that a row of a plan is about, None where it is about another one. Reads."""
    if (table.table_key, table.table_path) not in graph.format.internal_tables(graph.context):
        return None
    return _entry(graph, table.table_key, table.table_path)


def _entry(graph: Graph, key: str, path: str) -> TableEntry:
    head = graph.open_at(path)
    return TableEntry(table_key=key, path=path, version=int(head.version), branch=None, row_count=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTables:
    """The tables that branches publish, as one look at the graph sees them."""

    is_internal: ClassVar = False
    graph: Graph
    view: GraphView
    clones: Mapping[str, str]
    """Who else reads files of a table, as a sentence, by the path of the table."""

    def refusal(self, entry: TableEntry, ignoring: Collection[str] = ()) -> str | None:
        """Why no version of one may be collected right now, None when it may. Reads.

        Args:
            ignoring: Lance branches that go first.
        """
        if (why := _stays_whole(self.graph, self.view, entry, "pins")) is not None:
            return why
        head = self.graph.open_head(entry)
        if head.version != entry.version:
            return (
                f"uncovered HEAD drift: manifest version {entry.version}, Lance HEAD {head.version}; "
                "`omnigraph-ops check` says what settles it"
            )
        lost = self._lost_pin(entry)
        if lost is not None:
            return lost
        if entry.path in self.clones:
            return self.clones[entry.path]
        forks = [b.name for b in self.graph.lance.branches(head) if b.name not in ignoring]
        return spelling_problem(head, forks, self.graph.table_uri(entry))

    def _lost_pin(self, entry: TableEntry) -> str | None:
        """Which published version of the main chain lacks rows: an older one may be the last to have them. Reads."""
        published = ((s, e) for s in (*self.view.branches, self.view.main) for e in s.at(entry.path))
        pinned = {e.version: (s, e) for s, e in published if e.branch is None}
        needed: dict[str, tuple[int, str]] = {}
        for state, other in pinned.values():
            # What a named branch lacks is no fault of main, which stays maintained.
            damaged = "" if state.branch else UNREADABLE
            publisher = f"{damaged}branch {state.branch or 'main'!r} pins version {other.version}, which"
            try:
                files = needed_files(self.graph.open_pinned(other))
            except OpsError as error:
                return f"{publisher} cannot be opened: {error}"
            needed |= {f"{entry.path}/{f.path}": (f.size, publisher) for f in files if f.base is None}
        lost = self.graph.first_lost({path: size for path, (size, _) in needed.items()})
        if lost is None:
            return None
        return (
            f"{needed[lost][1]} lacks {lost}, and an older version may be the last to have its rows; "
            "`omnigraph-ops health --files` names all that is gone; bring the file back or restore the graph"
        )

    def protect(self, entry: TableEntry, head: Dataset, wanted: Collection[int]) -> Protection:
        """What keeps versions of one. Reads."""
        return protect(self.graph.lance, entry, head, self.view)

    def prove(self, entry: TableEntry, stays: Collection[int], lost_before: Collection[_Where]) -> None:
        """Open every version of one that a branch publishes; `CorruptGraph` where that fails. Reads.

        Somebody may have deleted a branch since, or published and cleaned up: only what another look finds counts.
        What was lost before is no doing of the cleanup.
        """

        def first(view: GraphView) -> tuple[_Where, OpsError] | None:
            return next((lost for lost in _unreadable(self.graph, entry, view) if lost[0] not in lost_before), None)

        lost = first(self.view)
        with contextlib.suppress(OpsError):  # without another look the first one counts
            for _ in range(_MORE_LOOKS):
                lost = first(look(self.graph)) if lost is not None else None
        if lost is not None:
            (branch, version), error = lost
            raise CorruptGraph(
                f"after the cleanup of {entry.table_key} branch {branch or 'main'} cannot open version {version}: "
                f"{error}; stop cleanups of this graph and restore it"
            ) from error


def _stays_whole(graph: Graph, view: GraphView, entry: TableEntry, needs: str) -> str | None:
    """Why no version of any table goes, whatever else it is: a freeze, or a branch of which not all is known. Reads."""
    frozen = why_frozen(graph, view.holds, entry)
    if frozen is None and view.unreadable:
        name, problem = view.unreadable[0]
        return f"branch {name!r} cannot be read, so what it {needs} is unknown: {problem}"
    return frozen or lost_reference(graph, view.states, entry.path)


_Where = tuple[str | None, int]  # a branch of the graph, and the version that it publishes


def lost_forks(graph: Graph, view: GraphView, entry: TableEntry) -> frozenset[_Where]:
    """What branches publish of a table on forks of it and nobody can open: no cleanup of main does that. Reads."""
    return frozenset(where for where, _ in _unreadable(graph, entry, view, also_main=False))


def _unreadable(
    graph: Graph, entry: TableEntry, view: GraphView, *, also_main: bool = True
) -> Iterator[tuple[_Where, OpsError]]:
    for state in view.states:
        for other in state.at(entry.path):
            try:
                if also_main or other.branch is not None:
                    graph.open_pinned(other)
            except OpsError as error:
                yield (state.branch, other.version), error


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTables:
    """The internal tables of a graph as one look at it sees them."""

    is_internal: ClassVar = True
    graph: Graph
    view: GraphView
    going: Mapping[str, Collection[int]] = field(default_factory=dict)
    """Path of a table to the versions of its main chain that the same plan removes."""

    def entries(self) -> Iterator[TableEntry]:
        """Each of them at its newest version. Reads."""
        return (_entry(self.graph, *table) for table in self.graph.format.internal_tables(self.graph.context))

    def refusal(self, entry: TableEntry, ignoring: Collection[str] = ()) -> str | None:
        """Why no version of one may be collected right now, None when it may. Reads."""
        if not self.graph.is_alone():
            return NOT_ALONE
        if (why := _stays_whole(self.graph, self.view, entry, "needs")) is not None:
            return why
        head = self.graph.open_head(entry)
        forks = [b.name for b in self.graph.lance.branches(head) if not b.is_bare]
        return spelling_problem(head, forks, self.graph.table_uri(entry))

    def protect(self, entry: TableEntry, head: Dataset, wanted: Collection[int]) -> Protection:
        """What keeps versions of one; of the commits only those in `wanted` are looked at. Reads."""
        held = protect(self.graph.lance, entry, head, self.view)
        return held if entry.path != MANIFEST_DIR else held.with_reasons(self._needed(frozenset(wanted)))

    def _needed(self, wanted: Collection[int]) -> Iterator[tuple[int, str]]:
        branches = [None, *(state.branch for state in self.view.branches)]
        commits = by_id(self.graph.format.commits(self.graph.context, branch) for branch in branches)
        for state in self.view.bases:
            if state.branch is None:
                yield state.manifest_version, "merges start from it"
        written, _ = newest_foreign(self.graph.context, MANIFEST_DIR)
        if written is not None:
            # Text indexes are written for the release that it names.
            yield written, "the newest version that the engine wrote"
        yield from self._readable(c for c in commits.values() if c.branch is None and c.manifest_version in wanted)

    def _readable(self, commits: Iterable[GraphCommit]) -> Iterator[tuple[int, str]]:
        """The graph versions of which every table can be opened once `going` is gone. Reads each of them once."""
        at = {commit.manifest_version: commit.commit_id for commit in commits}
        there: dict[str, frozenset[int]] = {}
        # In this order each version adds few fragments to those that were read for the one before.
        for version in sorted(at):
            try:
                entries = self.graph.state(version=version).entries
            except DatasetMissing:
                continue  # a cleanup that was stopped removed files of it: no reader opens it any more
            except OpsError as error:
                yield version, f"commit {at[version]} cannot be read, so what it needs is unknown: {error}"
                continue
            if all(e.version in self._stored(e, there) for e in entries):
                yield version, f"commit {at[version]} can be opened"

    def _stored(self, entry: TableEntry, there: dict[str, frozenset[int]]) -> frozenset[int]:
        """The versions of a table's chain that stay. Lists each chain once."""
        folder = chain_folder(entry.path, entry.branch)
        if folder not in there:
            stored = (any_version_of(name) for name in self.graph.storage.list(f"{folder}/_versions"))
            gone = self.going.get(entry.path, ()) if entry.branch is None else ()
            there[folder] = frozenset(v for v in stored if v is not None and v not in gone)
        return there[folder]

    def prove(self, entry: TableEntry, stays: Collection[int], lost_before: Collection[_Where]) -> None:
        """Fail when a version that stays is gone, or a branch does not read as before. Reads."""
        lost = sorted(set(stays) - {v.version for v in existing_versions(self.graph.open_head(entry))})
        problem = f"version {lost[0]} is gone" if lost else None
        for state in self.view.states if problem is None else ():
            if self.graph.state(state.branch).entries != state.entries:
                problem = f"branch {state.branch or 'main'} does not read as before"
        if problem is not None:
            raise CorruptGraph(
                f"after the cleanup of {entry.table_key} {problem}; stop cleanups of this graph and restore it"
            )


Tables = LiveTables | InternalTables
"""What judges a table, and proves afterwards that it is whole."""
