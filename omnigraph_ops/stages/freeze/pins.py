"""Which versions of a dataset a cut pins, and under which tags. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from omnigraph_ops.coordination.freeze_names import tag_name
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.lance.gateway import BranchRef
from omnigraph_ops.models.freeze import FrozenPin, PinRole

Chain = tuple[str | None, int]
"""A Lance branch (None: the main chain) and a version of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedDataset:
    """A dataset of a cut."""

    role: PinRole
    table_key: str
    path: str


def dataset_pins(
    freeze_id: str, subject: PinnedDataset, wanted: Collection[Chain], refs: Sequence[BranchRef]
) -> tuple[FrozenPin, ...]:
    """The wanted versions of one dataset and those where the branches among them begin, each with its tag. Pure.

    Raises:
        CorruptGraph: a wanted version is on a branch that the dataset does not have.
    """
    by_name = {ref.name: ref for ref in refs}
    for branch, version in wanted:
        if branch is not None and branch not in by_name:
            raise CorruptGraph(
                f"{subject.table_key}: version {version} is published from branch {branch!r}, which is gone"
            )
    forks = fork_points(wanted, refs) - set(wanted)
    ordered = [
        *((subject.role, c) for c in sorted(wanted, key=_order)),
        *((PinRole.FORK, c) for c in sorted(forks, key=_order)),
    ]
    return tuple(
        FrozenPin(
            role=role,
            table_key=subject.table_key,
            path=subject.path,
            branch=branch,
            version=version,
            tag=tag_name(freeze_id, number),
            lifetime=by_name[branch].identifier if branch is not None else (),
        )
        for number, (role, (branch, version)) in enumerate(ordered)
    )


def fork_points(wanted: Collection[Chain], refs: Sequence[BranchRef]) -> set[Chain]:
    """Where the branches of these versions begin, and the branches that those are on, down to main. Pure."""
    by_name = {ref.name: ref for ref in refs}
    found: set[Chain] = set()
    pending = [branch for branch, _ in wanted]
    while pending:
        ref = by_name.get(pending.pop() or "")
        # A parent may be gone: the engine deletes forks whatever was made from them.
        if ref is None or (ref.parent_branch is not None and ref.parent_branch not in by_name):
            continue
        point = (ref.parent_branch, ref.parent_version)
        if point not in found:
            found.add(point)
            pending.append(ref.parent_branch)
    return found


def _order(chain: Chain) -> tuple[str, int]:
    return chain[0] or "", chain[1]
