"""Look for everything that stands between a graph and maintenance. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from omnigraph_ops.coordination.fence import FenceNote, own_fence
from omnigraph_ops.coordination.freezes import active_freezes, frozen_text
from omnigraph_ops.coordination.guards import looks
from omnigraph_ops.coordination.holds import holds_and_faults
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.schema import staging_files
from omnigraph_ops.graph.sidecars import list_sidecars
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.models.health import BranchFinding, CheckReport, CheckStatus, DriftFinding, SidecarFinding
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.recovery.empty_references import (
    EmptyReference,
    empty_references,
    reference_advice,
    reference_findings,
    unlistable,
)
from omnigraph_ops.stages.recovery.half_made import (
    HalfMade,
    commit_graph_findings,
    deletion_advice,
    half_made,
    remains_advice,
)
from omnigraph_ops.stages.recovery.unhealed import (
    branch_advice,
    branch_findings,
    expiry_advice,
    internal_damage,
    mismatch_advice,
    moved_branches,
    schema_mismatch,
)
from omnigraph_ops.stages.recovery.unpublished import left_by_us, overlaid, recoverable
from omnigraph_ops.stages.recovery.verdict import judged_sidecar


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one look finds that may be of a writer at work."""

    sidecars: tuple[SidecarFinding, ...]
    staged: tuple[str, ...]
    locked: bool
    drift: tuple[DriftFinding, ...]
    on_branches: tuple[BranchFinding, ...]
    mismatch: tuple[str, ...]
    damaged: tuple[str, ...]
    remains: tuple[HalfMade, ...]
    """Of branches that were deleted by half after they were written to."""
    empty: tuple[EmptyReference, ...]

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to report. Pure."""
        seen = (self.sidecars, self.staged, self.locked, self.drift, self.on_branches, self.mismatch)
        return not any((*seen, self.damaged, self.remains, self.empty))

    @property
    def is_recoverable(self) -> bool:
        """Whether `recover` settles a table that is ahead without a sidecar, or a branch there by half. Pure."""
        return any(finding.recoverable for group in (self.drift, self.on_branches) for finding in group)

    @classmethod
    def at(cls, graph: Graph) -> _Look:
        """What there is now. Reads."""
        files = list_sidecars(graph.storage, graph.format.sidecar_version)
        sidecars = tuple(judged_sidecar(graph, file, beside=files).finding for file in files)
        covered, halves, empty = _covered(sidecars), half_made(graph), empty_references(graph)
        explained = {(e.branch, e.table_key) for e in empty}
        on_branches = _on_branches(graph, covered, [half for half in halves if not half.is_written])
        return cls(
            sidecars=sidecars,
            staged=staging_files(graph.storage),
            locked=graph.is_locked(),
            drift=_drift(graph, covered),
            on_branches=tuple(f for f in on_branches if (f.branch, f.table_key) not in explained),
            mismatch=schema_mismatch(graph),
            damaged=internal_damage(graph, audited=bool(files)),
            remains=tuple(half for half in halves if half.is_written),
            empty=empty,
        )

    def lasting(self, later: _Look) -> _Look:
        """What a later look has of this. Pure."""
        known, drifted = {s.path for s in self.sidecars}, {(None, d.table_key) for d in self.drift}
        sidecars = tuple(s for s in later.sidecars if s.path in known)
        # What only the sidecar of a writer at work covers is that writer's.
        passing = _covered(later.sidecars) - _covered(sidecars)
        return _Look(
            sidecars=sidecars,
            staged=later.staged,
            locked=later.locked,
            drift=tuple(d for d in later.drift if (None, d.table_key) in drifted - passing),
            on_branches=tuple(
                f for f in later.on_branches if f in self.on_branches and (f.branch, f.table_key) not in passing
            ),
            mismatch=tuple(key for key in later.mismatch if key in self.mismatch),
            damaged=later.damaged,
            remains=tuple(half for half in later.remains if half.folder in {known.folder for known in self.remains}),
            empty=tuple(empty for empty in later.empty if empty in self.empty),
        )


def _covered(sidecars: Iterable[SidecarFinding]) -> set[tuple[str | None, str]]:
    """Branches, None for main, and tables whose newest version a sidecar explains. Pure."""
    return {(sidecar.branch, key) for sidecar in sidecars for key in sidecar.table_keys}


def check(graph: Graph) -> CheckReport:
    """Sidecars with their class, staging files, the schema-apply lock, drift, and what no recovery heals. Reads.

    An unreadable sidecar or table is a finding that needs a person. Only what every look finds within three seconds
    is reported. The rest belongs to a writer at work.

    Raises:
        LanceFailure: a branch cannot be read.
        CorruptGraph: the schema and the graph manifest disagree so that nothing can be maintained.
    """
    if empty := unlistable(graph):
        return _unlisted(graph, empty)
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


def _unlisted(graph: Graph, empty: Sequence[EmptyReference]) -> CheckReport:
    """The report about a graph whose branches nobody can list, of which nothing else is known. Reads."""
    findings = reference_findings(graph, empty)
    return CheckReport(
        uri=graph.uri,
        stamp=graph.stamp,
        status=_of_references(findings),
        sidecars=(),
        staging_files=(),
        schema_apply_lock=False,
        drift=(),
        advice=(*reference_advice(graph, empty), "until then nothing else of the graph is checked"),
        branch_findings=findings,
    )


def _of_references(findings: Sequence[BranchFinding]) -> CheckStatus:
    return CheckStatus.PENDING if all(f.recoverable for f in findings) else CheckStatus.NEEDS_PERSON


def _report(graph: Graph, found: _Look) -> CheckReport:
    references = reference_findings(graph, found.empty)
    fence = own_fence(graph) if found.locked else None
    abandoned = fence is not None and fence.is_abandoned
    half = graph.half_staged() if found.staged else ()
    blocked = bool(found.staged) or (found.locked and not abandoned)
    return CheckReport(
        uri=graph.uri,
        stamp=graph.stamp,
        status=_status(found, references, blocked=blocked, abandoned=abandoned),
        sidecars=found.sidecars,
        staging_files=found.staged,
        schema_apply_lock=found.locked,
        drift=found.drift,
        advice=(
            *reference_advice(graph, found.empty),
            *((_lock_advice(fence, abandoned),) if found.locked and not half else ()),
            *_advice(found, half),
            *branch_advice(found.on_branches, moved_branches(graph, found.on_branches)),
            *mismatch_advice(found.mismatch),
            *expiry_advice(graph),
            *remains_advice(found.remains),
            *deletion_advice(graph),
            *holds_and_faults(graph.storage)[1].values(),
            *(frozen_text(graph.target, hold) for hold in active_freezes(graph.storage)),
        ),
        branch_findings=(*found.on_branches, *references),
        schema_mismatch=found.mismatch,
        damaged=found.damaged,
    )


def _drift(graph: Graph, covered: set[tuple[str | None, str]]) -> tuple[DriftFinding, ...]:
    def one(entry: TableEntry) -> DriftFinding | None:
        problem = None
        try:
            head = graph.open_head(entry).version
            if head < entry.version:
                problem = f"its newest version {head} is older than the published version {entry.version}"
        except OpsError as error:
            head, problem = 0, str(error)
        if head == entry.version:
            return None
        alone = (None, entry.table_key) not in covered
        return DriftFinding(
            table_key=entry.table_key,
            manifest_version=entry.version,
            lance_head_version=head,
            covered=not alone,
            problem=problem,
            recoverable=alone
            and problem is None
            and (left_by_us(graph, entry) is not None or overlaid(graph, entry) is not None),
        )

    # A schema apply may be between the graph manifest and the schema: that is looked for by itself.
    found = in_parallel(one, graph.declared(graph.state()), workers=graph.settings.concurrency)
    return tuple(finding for finding in found if finding is not None)


def _on_branches(
    graph: Graph, covered: set[tuple[str | None, str]], halves: Sequence[HalfMade]
) -> tuple[BranchFinding, ...]:
    def judged(finding: BranchFinding) -> BranchFinding:
        is_ahead = finding.lance_head_version is not None
        table = recoverable(graph, finding.branch, finding.table_key) if is_ahead else None
        return replace(finding, recoverable=table is not None)

    found = branch_findings(graph, covered=covered)
    return (*in_parallel(judged, found, workers=graph.settings.concurrency), *commit_graph_findings(graph, halves))


def _status(found: _Look, references: Sequence[BranchFinding], *, blocked: bool, abandoned: bool) -> CheckStatus:
    if blocked or found.damaged or any(not f.recoverable for f in found.sidecars):
        return CheckStatus.NEEDS_PERSON
    if references:
        return _of_references(references)
    if found.sidecars or abandoned or found.is_recoverable:
        return CheckStatus.PENDING
    return CheckStatus.DRIFTED if found.drift or found.on_branches or found.mismatch else CheckStatus.CLEAN


def may_pass(report: CheckReport, *, grace_seconds: float, at_us: int) -> bool:
    """Whether nothing but sidecars needs a person, all younger than the grace period: writers may be at work. Pure."""
    if report.staging_files or report.schema_apply_lock:
        return False
    oldest_us = at_us - grace_seconds * 1e6
    started = [s.started_at_us for s in report.sidecars if not s.recoverable]
    return bool(started) and all(at is not None and at > oldest_us for at in started)


_FOR_A_PERSON = "keep writers away, and restore the graph from a backup if nothing else helps"
_DAMAGED = "if its files are damaged, restore the graph from a backup"


def _advice(found: _Look, half: Sequence[str]) -> Iterable[str]:
    if half:
        yield (
            f"do not open the graph with omnigraph now: a schema apply wrote {', '.join(half)} and has not written the "
            "last of these files; if it died, an open would put them in place, and no open would succeed after that; "
            "when you know that it crashed, `omnigraph-ops unlock` with --confirm --force removes them and the lock, "
            "then open the graph read-write once with omnigraph, which rolls the apply back"
        )
    groups = (found.sidecars, found.drift, found.on_branches)
    if any(finding.recoverable for group in groups for finding in group):
        yield "run `omnigraph-ops recover` to finish what a crashed run left"
    # An open may fail as long as there is an empty reference.
    may_open = not half and not found.empty
    for left in [f for f in found.sidecars if not f.recoverable]:
        what = f"{left.path} ({', '.join(left.table_keys) or 'tables unknown'}): {left.detail}"
        if left.refused_by_engine:
            yield f"do not open the graph with this omnigraph, for {what}; {_FOR_A_PERSON}"
        elif may_open:
            yield f"open the graph read-write once with omnigraph, for {what}"
    if found.staged and may_open:
        yield "a schema apply is in flight or crashed: wait for it, or open the graph read-write with omnigraph"
    if any(not d.covered and not d.recoverable and d.problem is None for d in found.drift):
        yield "run `omnigraph-ops repair` to review the drifted tables"
    for unread in (d for d in found.drift if d.problem is not None):
        yield f"{unread.table_key} cannot be read, so its state is unknown: {unread.problem}; {_DAMAGED}"
    for problem in found.damaged:
        yield f"{problem}; the engine refuses writes; {_DAMAGED}"


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
