"""The one function that says which versions of a table are protected, for plan and apply alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph_ops.coordination.graph_view import GraphView
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.cleanup import branch_base_paths
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.models import ProtectedVersion


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


def protect(lance: LanceGateway, entry: TableEntry, head: Dataset, view: GraphView) -> Protection:
    """Everything that keeps a version of this table: head, pins, forks, tags, holds and running plans. Reads."""
    reasons: list[tuple[int, str]] = [(int(head.version), "Lance HEAD")]
    reasons += branch_pins(entry, view)
    for ref in lance.branches(head):
        if ref.parent_branch is None:
            reasons.append((ref.parent_version, f"Lance branch {ref.name!r} forks here"))
    for name, branch, version in lance.tags(head):
        if branch is None:
            reasons.append((version, f"tag {name!r}"))
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
