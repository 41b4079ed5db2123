"""Judge one sidecar: what it says, what became of its tables, and who finishes or undoes it. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from omnigraph_ops.errors import GraphError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import history
from omnigraph_ops.graph.sidecars import Sidecar, SidecarFile, SidecarPin, chosen_root
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.evidence import wrong_content
from omnigraph_ops.lance.gateway import DatasetMissing, LanceFailure
from omnigraph_ops.models.health import SidecarClass, SidecarFinding
from omnigraph_ops.stages.recovery.proofs import Proof, Unpublishable, is_refused, proof_of
from omnigraph_ops.stages.recovery.unfinished import proof_of_unfinished

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
    is_dropped: bool = False
    """Whether a schema apply dropped the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarVerdict:
    """The class of a sidecar, whether `recover` may finish it, and a sentence for a person."""

    classification: SidecarClass
    detail: str
    recoverable: bool = False
    refused_by_engine: bool = False


def classify(
    sidecar: Sidecar,
    pins: tuple[PinState, ...],
    *,
    newest_version: int,
    branch_exists: bool,
    proven: SidecarVerdict | None = None,
) -> SidecarVerdict:
    """Judge one sidecar by its pins. Pure.

    Args:
        proven: what is known of a write that the engine does not settle by itself.
    """
    if sidecar.is_of_row_expiry:
        return SidecarVerdict(
            classification=SidecarClass.ROLL_BACK,
            recoverable=True,
            detail=_who(
                "a delete on a branch that only row expiry uses; nothing of it is merged; it is withdrawn", True
            ),
        )
    if not branch_exists:
        return SidecarVerdict(
            classification=SidecarClass.ORPHANED_BRANCH,
            detail=f"its branch {sidecar.branch!r} is gone; an open by the engine discards it",
        )
    lost = [p for p in pins if p.lance_head_version is None or p.pinned_version is None]
    if lost:
        return _classify_lost(sidecar, lost)
    if proven is not None:
        return proven
    if any((p.lance_head_version or 0) < (p.pinned_version or 0) for p in pins):
        return _review("a table's HEAD is behind its pin; an open by the engine would refuse")
    if sidecar.writer_kind not in _LOOSE.get(newest_version, frozenset()):
        return _engine_decides(sidecar)
    return _classify_loose(sidecar, pins)


def _classify_lost(sidecar: Sidecar, lost: Sequence[PinState]) -> SidecarVerdict:
    if sidecar.writer_kind == "SchemaApply" and all(p.pinned_version is None for p in lost):
        return _engine_decides(sidecar)  # tables that it makes are not published yet
    if _is_single_optimize(sidecar) and lost[0].is_dropped:
        detail = "its table was dropped since, so every open of the engine fails; it is withdrawn"
        return SidecarVerdict(classification=SidecarClass.ROLL_BACK, recoverable=True, detail=_who(detail, True))
    return _review("a table it names cannot be read; an open by the engine would fail")


def _is_single_optimize(sidecar: Sidecar) -> bool:
    """Whether it is of an optimize of one table of main, which `recover` may finish. Pure."""
    on_main = sidecar.branch is None and all(pin.table_branch is None for pin in sidecar.tables)
    return sidecar.writer_kind == "Optimize" and len(sidecar.tables) == 1 and on_main


def _classify_loose(sidecar: Sidecar, pins: tuple[PinState, ...]) -> SidecarVerdict:
    ours = _is_single_optimize(sidecar)
    moved = [p for p in pins if p.lance_head_version != p.pinned_version]
    if len(moved) == len(pins) and all(p.pinned_version == p.expected_version for p in pins):
        problems = [f"{p.table_key} {p.problem}" for p in pins if p.problem is not None]
        if problems:
            return _review(f"{problems[0]}; an open by the engine would publish it: report this")
        return _roll_forward(ours, all(p.preserves_content for p in pins))
    if not moved and any((p.pinned_version or 0) > p.expected_version for p in pins):
        detail = "its publish landed; only the bookkeeping is left"
        return SidecarVerdict(classification=SidecarClass.STALE, recoverable=ours, detail=_who(detail, ours))
    if not moved:
        detail = "it never moved a table; it is withdrawn"
        return SidecarVerdict(classification=SidecarClass.ROLL_BACK, recoverable=ours, detail=_who(detail, ours))
    return SidecarVerdict(
        classification=SidecarClass.ROLL_BACK,
        detail="a table moved in a way it did not announce; the engine would restore the published content",
    )


def _roll_forward(ours: bool, proven: bool) -> SidecarVerdict:
    if not proven:
        # The engine adopts any HEAD here; we publish only what is proven to change no row.
        return SidecarVerdict(
            classification=SidecarClass.ROLL_FORWARD,
            detail="another writer's rows are among its commits; an open by the engine would publish them too",
        )
    detail = _who("its commits are complete; they are published as they are", ours)
    return SidecarVerdict(classification=SidecarClass.ROLL_FORWARD, recoverable=ours, detail=detail)


def _proven(proof: Proof) -> SidecarVerdict:
    """The verdict about a write of which it is known what became of it. Pure."""
    if isinstance(proof, Unpublishable):
        classification, why = SidecarClass.ROLL_BACK, proof.why
    else:
        classification = SidecarClass.STALE
        why = "its write is published, but another process of the engine took it for dead"
    return SidecarVerdict(
        classification=classification,
        recoverable=True,
        detail=f"{why}; the engine refuses every write; `recover` settles it",
    )


def _unproven(graph: Graph, file: SidecarFile) -> SidecarVerdict | None:
    """The verdict about a write of which it is known only that no open of the engine settles it. Reads."""
    if not is_refused(graph, file):
        return None
    return _review(
        "another process of the engine rolled it back, its writer went on, and it is not proven that nothing of it is "
        "published; an open by the engine fails"
    )


def _engine_decides(sidecar: Sidecar) -> SidecarVerdict:
    return SidecarVerdict(
        classification=SidecarClass.NEEDS_REVIEW,
        detail=f"a {sidecar.writer_kind} of the engine; its outcome is decided when omnigraph opens the graph",
    )


def _who(detail: str, ours: bool) -> str:
    return detail + (" by `recover`" if ours else " when omnigraph opens the graph")


def _review(detail: str) -> SidecarVerdict:
    """The verdict about what an open by the engine would not settle. Pure."""
    return SidecarVerdict(classification=SidecarClass.NEEDS_REVIEW, detail=detail, refused_by_engine=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A finding, and what it is about: only this was proven."""

    finding: SidecarFinding
    pins: tuple[PinState, ...] = ()
    proof: Proof | None = None


def judged_sidecar(graph: Graph, file: SidecarFile, *, beside: Sequence[SidecarFile] | None = None) -> Judgement:
    """Classify one sidecar file against the graph as it is now. Reads.

    Args:
        beside: all sidecars of the graph; None to list them here.
    """
    if file.sidecar is None:
        stem = file.path.rsplit("/", 1)[-1].removesuffix(".json")
        finding = SidecarFinding(
            operation_id=stem,
            path=file.path,
            writer_kind="unknown",
            branch=None,
            table_keys=(),
            started_at_us=None,
            classification=SidecarClass.NEEDS_REVIEW,
            recoverable=False,
            detail=f"{file.problem}; every open and write of the engine fails until it is resolved",
            refused_by_engine=True,
        )
        return Judgement(finding=finding)
    try:
        return _judged(graph, file, file.sidecar, beside)
    except (GraphError, LanceFailure) as error:
        # What it names is damaged: that holds up no other.
        why = f"it cannot be judged: {error}"
        unjudged = SidecarVerdict(classification=SidecarClass.UNREADABLE, detail=why)
        return Judgement(finding=_finding(file, file.sidecar, unjudged))


def _judged(graph: Graph, file: SidecarFile, sidecar: Sidecar, beside: Sequence[SidecarFile] | None) -> Judgement:
    exists = sidecar.branch is None or sidecar.branch in graph.branches()
    pins = pin_states(graph, sidecar) if exists else ()
    proof = proof_of(graph, file, beside) or proof_of_unfinished(graph, file) if exists else None
    verdict = classify(
        sidecar,
        pins,
        newest_version=graph.format.sidecar_version,
        branch_exists=exists,
        proven=_proven(proof) if proof is not None else _unproven(graph, file) if exists else None,
    )
    verdict = replace(verdict, detail=verdict.detail + _spelling_note(graph, sidecar, verdict.classification))
    keys = tuple(pin.table_key for pin in pins)
    return Judgement(finding=_finding(file, sidecar, verdict, keys), pins=pins, proof=proof)


def _finding(
    file: SidecarFile, sidecar: Sidecar, verdict: SidecarVerdict, table_keys: tuple[str, ...] = ()
) -> SidecarFinding:
    return SidecarFinding(
        operation_id=sidecar.operation_id,
        path=file.path,
        writer_kind=sidecar.writer_kind,
        branch=sidecar.branch,
        table_keys=table_keys or tuple(pin.table_key for pin in sidecar.tables),
        started_at_us=sidecar.started_at_us,
        classification=verdict.classification,
        recoverable=verdict.recoverable,
        detail=verdict.detail,
        refused_by_engine=verdict.refused_by_engine,
    )


def _spelling_note(graph: Graph, sidecar: Sidecar, classification: SidecarClass) -> str:
    """A warning where the engine would refuse the sidecar for its spelling of the root. Reads links."""
    if classification is SidecarClass.ORPHANED_BRANCH or not graph.format.compares_sidecar_paths:
        return ""
    root = chosen_root(graph) or graph.uri
    odd = [p.table_path for p in sidecar.tables if p.table_path.rpartition("/")[0].rpartition("/")[0] != root]
    if not odd:
        return ""
    spelled = odd[0].rpartition("/")[0].rpartition("/")[0]
    return f"; open it as {spelled!r}, as it spells a table: an engine that opens the graph as {root!r} refuses it"


def pin_states(graph: Graph, sidecar: Sidecar) -> tuple[PinState, ...]:
    """Pin and HEAD of every table that a sidecar names. Reads."""
    state = graph.state(sidecar.branch)
    return tuple(_pin_state(graph, state, pin, sidecar.writer_kind) for pin in sidecar.tables)


def _entry_of(graph: Graph, state: BranchState, pin: SidecarPin, kind: str) -> TableEntry | None:
    """What is published of the table that a sidecar names. Reads."""
    if pin.identity is None or kind not in {"SchemaApply", "Optimize"}:
        return state.get(pin.table_key)
    entry = next((e for e in state.entries if e.identity == pin.identity), None)
    # A schema apply names a table that it renames by the new key, under which nothing is published yet.
    if entry is None or entry.table_key == pin.table_key or kind == "SchemaApply":
        return entry
    rows = graph.context.manifest_rows.of(graph.manifest(state.branch), state.branch)
    return entry if graph.format.was_called(rows, pin.identity, pin.table_key) else None


def _pin_state(graph: Graph, state: BranchState, pin: SidecarPin, kind: str) -> PinState:
    entry = _entry_of(graph, state, pin, kind)
    head: int | None = None
    if entry is not None and (pin.identity is None or pin.identity == entry.identity):
        try:
            head = graph.open_at(entry.path, branch=pin.table_branch).version
        except LanceFailure as error:
            # The first write on a branch announces the branch of the table that it is about to make.
            unmade = isinstance(error, DatasetMissing) and pin.table_branch not in {None, entry.branch}
            head = entry.version if unmade else None
    preserved, problem = True, None
    if entry is not None and head is not None and pin.table_branch is None:
        chain = history(graph.storage, entry.path, after=entry.version, upto=head)
        preserved = chain.preserves_content
        if preserved and head > entry.version and entry.branch is None:
            problem = wrong_content(graph.open_pinned(entry), graph.open_head(entry))
    return PinState(
        table_key=entry.table_key if entry else pin.table_key,
        expected_version=pin.expected_version,
        pinned_version=entry.version if entry else None,
        lance_head_version=head,
        preserves_content=preserved,
        problem=problem,
        is_dropped=entry is None and (pin.identity or pin.table_key) in state.dropped,
    )
