"""Which versions are protected, which of the others a retention policy lets go, and with which files."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from omnigraph_ops.coordination.freezes import why_frozen
from omnigraph_ops.coordination.graph_view import GraphView, look
from omnigraph_ops.errors import CorruptGraph, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.references import lost_reference
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.lance.versions import VersionFacts, branch_base_paths, needed_files
from omnigraph_ops.models.cleanup import (
    SHORTEST_AGE_SECONDS,
    UNREADABLE,
    ProtectedVersion,
    RetentionPolicy,
    SnapshotExpiry,
)

_MICROS = 1_000_000
_MORE_LOOKS = 2
"""After which what cannot be opened is no work of somebody else."""


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

    def with_reasons(self, reasons: Iterable[tuple[int, str | None]]) -> Protection:
        """The same with more that keeps a version; None keeps none. Pure."""
        ours = [(p.version, reason) for p in self.versions for reason in p.reasons]
        return replace(self, versions=_collect([*ours, *((v, why) for v, why in reasons if why is not None)]))


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
    blocked = any(v > protection.floor for v in free)
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
        if (why := stays_whole(self.graph, self.view, entry, "pins")) is not None:
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

    def protect(
        self, entry: TableEntry, head: Dataset, wanted: Collection[int], expiry: SnapshotExpiry | None = None
    ) -> Protection:
        """What keeps versions of one. Reads."""
        return protect(self.graph.lance, entry, head, self.view)

    def prove(self, entry: TableEntry, stays: Collection[int], lost_before: Collection[Where]) -> None:
        """Open every version of one that a branch publishes; `CorruptGraph` where that fails. Reads.

        Somebody may have deleted a branch since, or published and cleaned up: only what another look finds counts.
        What was lost before is no doing of the cleanup.
        """

        def first(view: GraphView) -> tuple[Where, OpsError] | None:
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


def stays_whole(graph: Graph, view: GraphView, entry: TableEntry, needs: str) -> str | None:
    """Why no version of any table goes, whatever else it is: a freeze, or a branch of which not all is known. Reads."""
    frozen = why_frozen(graph, view.holds, entry)
    if frozen is None and view.unreadable:
        name, problem = view.unreadable[0]
        return f"branch {name!r} cannot be read, so what it {needs} is unknown: {problem}"
    return frozen or lost_reference(graph, view.states, entry.path)


Where = tuple[str | None, int]  # a branch of the graph, and the version that it publishes


def lost_forks(graph: Graph, view: GraphView, entry: TableEntry) -> frozenset[Where]:
    """What branches publish of a table on forks of it and nobody can open: no cleanup of main does that. Reads."""
    return frozenset(where for where, _ in _unreadable(graph, entry, view, also_main=False))


def _unreadable(
    graph: Graph, entry: TableEntry, view: GraphView, *, also_main: bool = True
) -> Iterator[tuple[Where, OpsError]]:
    for state in view.states:
        for other in state.at(entry.path):
            try:
                if also_main or other.branch is not None:
                    graph.open_pinned(other)
            except OpsError as error:
                yield (state.branch, other.version), error
