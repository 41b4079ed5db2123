"""Look for everything that stands between a graph and maintenance. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from omnigraph_ops.coordination.fence import FenceNote, own_fence
from omnigraph_ops.coordination.freezes import active_freezes, frozen_text
from omnigraph_ops.coordination.guards import looks
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import history
from omnigraph_ops.graph.schema import staging_files
from omnigraph_ops.graph.sidecars import Sidecar, SidecarFile, SidecarPin, chosen_root, list_sidecars
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.evidence import wrong_content
from omnigraph_ops.lance.gateway import DatasetMissing, LanceFailure
from omnigraph_ops.models.health import (
    BranchFinding,
    CheckReport,
    CheckStatus,
    DriftFinding,
    SidecarClass,
    SidecarFinding,
)
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.recovery.unhealed import branch_advice, branch_findings, mismatch_advice, schema_mismatch
from omnigraph_ops.stages.recovery.unpublished import left_by_us, unpublished_deletes

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
            recoverable=False,
            detail=f"its branch {sidecar.branch!r} is gone; an open by the engine discards it",
        )
    lost = [p for p in pins if p.lance_head_version is None or p.pinned_version is None]
    if lost and sidecar.writer_kind == "SchemaApply" and all(p.pinned_version is None for p in lost):
        return _engine_decides(sidecar)  # tables that it makes are not published yet
    if lost:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one look finds that may be of a writer at work."""

    sidecars: tuple[SidecarFinding, ...]
    staged: tuple[str, ...]
    locked: bool
    drift: tuple[DriftFinding, ...]
    on_branches: tuple[BranchFinding, ...]
    mismatch: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to report. Pure."""
        what = (self.sidecars, self.staged, self.locked, self.drift, self.on_branches, self.mismatch)
        return not any(what)

    @classmethod
    def at(cls, graph: Graph) -> _Look:
        """What there is now. Reads."""
        files = list_sidecars(graph.storage, graph.format.sidecar_version)
        sidecars = tuple(inspect_sidecar(graph, file) for file in files)
        return cls(
            sidecars=sidecars,
            staged=staging_files(graph.storage),
            locked=graph.is_locked(),
            drift=_drift(graph, covered=_covered(sidecars)),
            on_branches=branch_findings(graph, covered=_covered_on_branches(sidecars)),
            mismatch=schema_mismatch(graph),
        )

    def lasting(self, later: _Look) -> _Look:
        """What a later look has of this. Pure."""
        known, drifted = {s.path for s in self.sidecars}, {d.table_key for d in self.drift}
        sidecars = tuple(s for s in later.sidecars if s.path in known)
        # What only the sidecar of a writer at work covers is that writer's.
        passing = _covered(later.sidecars) - _covered(sidecars)
        passing_on_branches = _covered_on_branches(later.sidecars) - _covered_on_branches(sidecars)
        return _Look(
            sidecars=sidecars,
            staged=later.staged,
            locked=later.locked,
            drift=tuple(d for d in later.drift if d.table_key in drifted - passing),
            on_branches=tuple(
                f
                for f in later.on_branches
                if f in self.on_branches and (f.branch, f.table_key) not in passing_on_branches
            ),
            mismatch=tuple(key for key in later.mismatch if key in self.mismatch),
        )


def _covered_on_branches(sidecars: Iterable[SidecarFinding]) -> set[tuple[str, str]]:
    """Branches and tables whose newest version a sidecar explains. Pure."""
    return {(s.branch, key) for s in sidecars if s.branch is not None for key in s.table_keys}


def _covered(sidecars: Iterable[SidecarFinding]) -> set[str]:
    """Tables of main whose newest version a sidecar explains. Pure."""
    return {key for sidecar in sidecars if sidecar.branch is None for key in sidecar.table_keys}


def check(graph: Graph) -> CheckReport:
    """Sidecars with their classification, staging files, the schema-apply lock and drift. Reads.

    An unreadable sidecar or table is a finding that needs a person. Only what every look finds within three seconds
    is reported. The rest belongs to a writer at work.

    Raises:
        LanceFailure: a branch cannot be read.
        CorruptGraph: the schema and the graph manifest disagree so that nothing can be maintained.
    """
    graph.lance_branches()
    found = _Look.at(graph)
    for number in looks(graph, brief=True):
        if number:
            found = found.lasting(_Look.at(graph))
        if found.is_clean:
            break
    if found.sidecars or found.staged or found.locked:
        # Of a schema apply at work, or one that the engine finishes: no reason to restore anything.
        found = replace(found, mismatch=())
    if found.mismatch:
        graph.format.check_catalog(graph.format.read_catalog(graph.storage), graph.state(), graph.uri)
    return _report(graph, found)


def _report(graph: Graph, found: _Look) -> CheckReport:
    fence = own_fence(graph) if found.locked else None
    abandoned = fence is not None and fence.is_abandoned
    blocked = bool(found.staged) or (found.locked and not abandoned)
    return CheckReport(
        uri=graph.uri,
        stamp=graph.stamp,
        status=_status(found, blocked=blocked, abandoned=abandoned),
        sidecars=found.sidecars,
        staging_files=found.staged,
        schema_apply_lock=found.locked,
        drift=found.drift,
        advice=(
            *((_lock_advice(fence, abandoned),) if found.locked else ()),
            *_advice(found.sidecars, bool(found.staged), found.drift),
            *branch_advice(found.on_branches),
            *mismatch_advice(found.mismatch),
            *(frozen_text(graph.target, hold) for hold in active_freezes(graph.storage)),
        ),
        branch_findings=found.on_branches,
        schema_mismatch=found.mismatch,
    )


def inspect_sidecar(graph: Graph, file: SidecarFile) -> SidecarFinding:
    """Classify one sidecar file against the graph as it is now. Reads."""
    return judged_sidecar(graph, file)[0]


def judged_sidecar(graph: Graph, file: SidecarFile) -> tuple[SidecarFinding, tuple[PinState, ...]]:
    """`inspect_sidecar`, and the states of the tables that the finding is about: only these were proven. Reads."""
    sidecar = file.sidecar
    if sidecar is None:
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
        )
        return finding, ()
    exists = sidecar.branch is None or sidecar.branch in graph.branches()
    pins = pin_states(graph, sidecar) if exists else ()
    verdict = classify(sidecar, pins, newest_version=graph.format.sidecar_version, branch_exists=exists)
    finding = SidecarFinding(
        operation_id=sidecar.operation_id,
        path=file.path,
        writer_kind=sidecar.writer_kind,
        branch=sidecar.branch,
        table_keys=tuple(p.table_key for p in (pins or sidecar.tables)),
        started_at_us=sidecar.started_at_us,
        classification=verdict.classification,
        recoverable=verdict.recoverable,
        detail=verdict.detail + _spelling_note(graph, sidecar, verdict.classification),
    )
    return finding, pins


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
    # It names a table that it renames by the new key, under which nothing is published yet.
    renames = sidecar.writer_kind == "SchemaApply"
    return tuple(_pin_state(graph, state, pin, renames=renames) for pin in sidecar.tables)


def _pin_state(graph: Graph, state: BranchState, pin: SidecarPin, *, renames: bool) -> PinState:
    entry = state.get(pin.table_key)
    if renames and pin.identity is not None:
        entry = next((e for e in state.entries if e.identity == pin.identity), None)
    head: int | None = None
    if entry is not None and (pin.identity is None or pin.identity == entry.identity):
        try:
            head = graph.lance.open(graph.table_uri(entry), branch=pin.table_branch).version
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
    )


def _drift(graph: Graph, covered: set[str]) -> tuple[DriftFinding, ...]:
    def one(entry: TableEntry) -> DriftFinding | None:
        problem = None
        try:
            head = graph.open_head(entry).version
        except OpsError as error:
            head, problem = 0, str(error)
        if head == entry.version:
            return None
        alone = entry.table_key not in covered
        return DriftFinding(
            table_key=entry.table_key,
            manifest_version=entry.version,
            lance_head_version=head,
            covered=not alone,
            problem=problem,
            recoverable=alone
            and problem is None
            and (left_by_us(graph, entry) is not None or unpublished_deletes(graph, entry)),
        )

    # A schema apply may be between the graph manifest and the schema: that is looked for by itself.
    found = in_parallel(one, graph.declared(graph.state()), workers=graph.settings.concurrency)
    return tuple(finding for finding in found if finding is not None)


def _status(found: _Look, *, blocked: bool, abandoned: bool) -> CheckStatus:
    if blocked or any(not f.recoverable for f in found.sidecars):
        return CheckStatus.NEEDS_PERSON
    if found.sidecars or abandoned or any(d.recoverable for d in found.drift):
        return CheckStatus.PENDING
    return CheckStatus.DRIFTED if found.drift or found.on_branches or found.mismatch else CheckStatus.CLEAN


def may_pass(report: CheckReport, *, grace_seconds: float, at_us: int) -> bool:
    """Whether nothing but sidecars needs a person, all younger than the grace period: writers may be at work. Pure."""
    if report.staging_files or report.schema_apply_lock:
        return False
    oldest_us = at_us - grace_seconds * 1e6
    started = [s.started_at_us for s in report.sidecars if not s.recoverable]
    return bool(started) and all(at is not None and at > oldest_us for at in started)


_DAMAGED = "if its files are damaged, restore the graph from a backup"


def _advice(findings: tuple[SidecarFinding, ...], staged: bool, drift: tuple[DriftFinding, ...]) -> Iterable[str]:
    if any(f.recoverable for f in findings) or any(d.recoverable for d in drift):
        yield "run `omnigraph-ops recover` to finish what a crashed run left"
    for left in [f for f in findings if not f.recoverable]:
        tables = ", ".join(left.table_keys) or "tables unknown"
        yield f"open the graph read-write once with omnigraph, for {left.path} ({tables}): {left.detail}"
    if staged:
        yield "a schema apply is in flight or crashed: wait for it, or open the graph read-write with omnigraph"
    if any(not d.covered and not d.recoverable and d.problem is None for d in drift):
        yield "run `omnigraph-ops repair` to review the drifted tables"
    for unread in (d for d in drift if d.problem is not None):
        yield f"{unread.table_key} cannot be read, so its state is unknown: {unread.problem}; {_DAMAGED}"


def _lock_advice(fence: FenceNote | None, abandoned: bool) -> str:
    """What to do about the schema-apply lock, by who raised it. Pure."""
    if fence is None:
        return (
            "the schema-apply lock is held: wait for the schema apply; when you know that it crashed, "
            "`omnigraph-ops unlock` with --confirm --force removes the lock"
        )
    if abandoned:
        return "a killed run with --fence left the schema-apply lock: run `omnigraph-ops recover` to remove it"
    return (
        f"{fence.owner} keeps writers away with --fence: wait for its run; "
        "when you know that it died, `omnigraph-ops unlock` with --confirm removes the fence"
    )
