"""What a read-write open of the engine would do with a sidecar. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.graph.sidecars import Sidecar
from omnigraph_ops.models import SidecarClass

# These kinds move tables by content-preserving or whole-table commits, so any HEAD past an
# unchanged pin is theirs. On stamp 6 only Optimize is still judged that way.
_LOOSE = {2: frozenset({"Optimize", "EnsureIndices", "SchemaApply"}), 9: frozenset({"Optimize"})}


@dataclass(frozen=True, slots=True, kw_only=True)
class PinState:
    """Where a pinned table stands: the published version and the Lance HEAD, None when unreadable."""

    table_key: str
    expected_version: int
    pinned_version: int | None
    lance_head_version: int | None
    preserves_content: bool = True
    """Whether every commit past the pin is of a kind that changes no row."""
    problem: str | None = None
    """What speaks against publishing the HEAD all the same, to end a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarVerdict:
    """The class of a sidecar, whether `recover` may finish it, and a sentence for a person."""

    classification: SidecarClass
    recoverable: bool
    detail: str


def classify(
    sidecar: Sidecar, pins: tuple[PinState, ...], *, newest_version: int, branch_exists: bool
) -> SidecarVerdict:
    """Judge one sidecar by its pins. Pure."""
    if not branch_exists:
        return SidecarVerdict(
            classification=SidecarClass.ORPHANED_BRANCH,
            recoverable=False,
            detail=f"its branch {sidecar.branch!r} is gone; an open by the engine discards it",
        )
    if any(p.lance_head_version is None or p.pinned_version is None for p in pins):
        return _review("a table it names cannot be read; an open by the engine would fail")
    if any((p.lance_head_version or 0) < (p.pinned_version or 0) for p in pins):
        return _review("a table's HEAD is behind its pin; an open by the engine would refuse")
    if sidecar.writer_kind not in _LOOSE.get(newest_version, frozenset()):
        return _engine_decides(sidecar)
    return _classify_loose(sidecar, pins)


def _classify_loose(sidecar: Sidecar, pins: tuple[PinState, ...]) -> SidecarVerdict:
    on_main = sidecar.branch is None and all(pin.table_branch is None for pin in sidecar.tables)
    ours = sidecar.writer_kind == "Optimize" and len(pins) == 1 and on_main
    moved = [p for p in pins if p.lance_head_version != p.pinned_version]
    if len(moved) == len(pins) and all(p.pinned_version == p.expected_version for p in pins):
        problems = [f"{p.table_key} {p.problem}" for p in pins if p.problem is not None]
        if problems:
            return _review(f"{problems[0]}; an open by the engine would publish it: keep writers away and report this")
        return _roll_forward(ours, all(p.preserves_content for p in pins))
    if not moved and any((p.pinned_version or 0) > p.expected_version for p in pins):
        detail = "its publish landed; only the bookkeeping is left"
        return SidecarVerdict(classification=SidecarClass.STALE, recoverable=ours, detail=_who(detail, ours))
    if not moved:
        detail = "it never moved a table; it is withdrawn"
        return SidecarVerdict(classification=SidecarClass.ROLL_BACK, recoverable=ours, detail=_who(detail, ours))
    return SidecarVerdict(
        classification=SidecarClass.ROLL_BACK,
        recoverable=False,
        detail="a table moved in a way it did not announce; the engine would restore the published content",
    )


def _roll_forward(ours: bool, proven: bool) -> SidecarVerdict:
    if not proven:
        # The engine adopts any HEAD here; we publish only what is proven to change no row.
        return SidecarVerdict(
            classification=SidecarClass.ROLL_FORWARD,
            recoverable=False,
            detail="another writer's rows are among its commits; an open by the engine would publish them too",
        )
    detail = _who("its commits are complete; they are published as they are", ours)
    return SidecarVerdict(classification=SidecarClass.ROLL_FORWARD, recoverable=ours, detail=detail)


def _engine_decides(sidecar: Sidecar) -> SidecarVerdict:
    return SidecarVerdict(
        classification=SidecarClass.NEEDS_REVIEW,
        recoverable=False,
        detail=f"a {sidecar.writer_kind} of the engine; its outcome is decided when omnigraph opens the graph",
    )


def _who(detail: str, ours: bool) -> str:
    return detail + (" by `recover`" if ours else " when omnigraph opens the graph")


def _review(detail: str) -> SidecarVerdict:
    return SidecarVerdict(classification=SidecarClass.NEEDS_REVIEW, recoverable=False, detail=detail)
