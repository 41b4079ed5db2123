"""Which versions of a table are protected, which of the others a retention policy lets go, and with which files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from omnigraph_ops.coordination.holds import GraphView
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.lance.versions import VersionFacts, branch_base_paths, explain_removal
from omnigraph_ops.models.cleanup import PlannedFile, ProtectedVersion, RetentionPolicy, SnapshotExpiry
from omnigraph_ops.storage.location import below_graph


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
    reasons: list[tuple[int, str]] = [(int(head.version), "Lance HEAD")]
    reasons += branch_pins(entry, view)
    for ref in lance.branches(head):
        if ref.parent_branch is None:
            reasons.append((ref.parent_version, f"Lance branch {ref.name!r} forks here"))
    for name, branch, version in lance.tags(head):
        if branch is None:
            reasons.append((version, f"tag {name!r}"))
    reasons += _base_pins(entry, view)
    reasons += view.held(entry.path, None)
    floor, reason = min(branch_pins(entry, view))
    return Protection(versions=_collect(reasons), floor=floor, floor_reason=reason)


def branch_pins(entry: TableEntry, view: GraphView) -> list[tuple[int, str]]:
    """Versions of the main chain that main and the (lazy) branches read. Pure."""
    pins = [(entry.version, "published on main")]
    for state in view.branches:
        for other in state.entries:
            if other.path == entry.path and other.branch is None:
                pins.append((other.version, f"branch {state.branch!r} reads it"))
    return pins


def _base_pins(entry: TableEntry, view: GraphView) -> list[tuple[int, str]]:
    """Versions of the main chain that the bases of merges read. Pure."""
    return [
        (other.version, f"merges start from version {state.manifest_version} of {state.branch or 'main'}")
        for state in view.bases
        for other in state.entries
        if other.path == entry.path and other.branch is None
    ]


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


def files_to_go(entry: TableEntry, head: Dataset, versions: Sequence[int]) -> tuple[PlannedFile, ...]:
    """Every file that removing these versions deletes, by path relative to the graph. Reads."""
    return tuple(
        PlannedFile(path=below_graph(f.path, entry.path), size=f.size, kind=f.kind)
        for f in explain_removal(head, versions)
    )


def _collect(reasons: Iterable[tuple[int, str]]) -> tuple[ProtectedVersion, ...]:
    by_version: dict[int, list[str]] = {}
    for version, reason in reasons:
        by_version.setdefault(version, []).append(reason)
    return tuple(
        ProtectedVersion(version=version, reasons=tuple(by_version[version])) for version in sorted(by_version)
    )


_MICROS = 1_000_000


def candidates(versions: Sequence[VersionFacts], policy: RetentionPolicy, now_us: int) -> tuple[int, ...]:
    """Versions that the policy alone would let go, ascending. Pure.

    Args:
        versions: every existing version of the main chain, ascending.
        now_us: microseconds since the epoch.
    """
    if policy.expiry is not None:
        return _expired(versions, policy.expiry, now_us)
    kept = max(policy.keep_versions, 1) if policy.keep_versions is not None else 1
    old = versions[:-kept]
    if policy.older_than_secs is not None:
        cutoff = now_us - policy.older_than_secs * _MICROS
        old = [v for v in old if v.committed_at_us < cutoff]
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
