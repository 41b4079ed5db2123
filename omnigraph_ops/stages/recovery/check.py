"""Look for everything that stands between a graph and maintenance. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.contract import staging_files
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.history import history
from omnigraph_ops.graph.sidecars import Sidecar, SidecarFile, SidecarPin, list_sidecars
from omnigraph_ops.graph.spelling import chosen_root
from omnigraph_ops.graph.state import BranchState
from omnigraph_ops.lance.content import wrong_content
from omnigraph_ops.lance.errors import LanceFailure
from omnigraph_ops.models import CheckReport, CheckStatus, DriftFinding, SidecarClass, SidecarFinding
from omnigraph_ops.stages.recovery.classify import PinState, classify
from omnigraph_ops.stages.recovery.leftover import left_by_us
from omnigraph_ops.stages.recovery.rollback import unpublished_deletes


def check(graph: Graph) -> CheckReport:
    """Sidecars with their classification, staging files, the schema-apply lock and drift. Reads.

    Never raises for what it finds: an unreadable file is a finding that needs a person.
    """
    files = list_sidecars(graph.storage, graph.format.sidecar_version)
    findings = tuple(inspect_sidecar(graph, file) for file in files)
    staged = staging_files(graph.storage)
    locked = graph.is_locked()
    drift = _drift(graph, covered={key for f in findings if f.branch is None for key in f.table_keys})
    return CheckReport(
        uri=graph.uri,
        stamp=graph.stamp,
        status=_status(findings, drift, bool(staged) or locked),
        sidecars=findings,
        staging_files=staged,
        schema_apply_lock=locked,
        drift=drift,
        advice=tuple(_advice(findings, bool(staged), locked, drift)),
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
        table_keys=tuple(p.table_key for p in sidecar.tables),
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
    return f"; it spells a table {odd[0]!r}: an engine that opens the graph as {root!r} refuses it" if odd else ""


def pin_states(graph: Graph, sidecar: Sidecar) -> tuple[PinState, ...]:
    """Pin and HEAD of every table that a sidecar names. Reads."""
    state = graph.state(sidecar.branch)
    return tuple(_pin_state(graph, state, pin) for pin in sidecar.tables)


def _pin_state(graph: Graph, state: BranchState, pin: SidecarPin) -> PinState:
    entry = state.get(pin.table_key)
    head: int | None = None
    if entry is not None and (pin.identity is None or pin.identity == entry.identity):
        try:
            head = graph.lance.open(graph.table_uri(entry), branch=pin.table_branch).version
        except LanceFailure:
            head = None
    preserved, problem = True, None
    if entry is not None and head is not None and pin.table_branch is None:
        chain = history(graph.storage, entry.path, after=entry.version, upto=head)
        preserved = chain.preserves_content
        if preserved and head > entry.version and entry.branch is None:
            problem = wrong_content(graph.open_pinned(entry), graph.open_head(entry))
    return PinState(
        table_key=pin.table_key,
        expected_version=pin.expected_version,
        pinned_version=entry.version if entry else None,
        lance_head_version=head,
        preserves_content=preserved,
        problem=problem,
    )


def _drift(graph: Graph, covered: set[str]) -> tuple[DriftFinding, ...]:
    found = []
    for entry in graph.maintained(graph.state()):
        try:
            head = graph.open_head(entry).version
        except OpsError:
            head = 0
        if head != entry.version:
            alone = entry.table_key not in covered
            found.append(
                DriftFinding(
                    table_key=entry.table_key,
                    manifest_version=entry.version,
                    lance_head_version=head,
                    covered=not alone,
                    recoverable=alone and (left_by_us(graph, entry) is not None or unpublished_deletes(graph, entry)),
                )
            )
    return tuple(found)


def _status(findings: Sequence[SidecarFinding], drift: Sequence[DriftFinding], blocked: bool) -> CheckStatus:
    if blocked or any(not f.recoverable for f in findings):
        return CheckStatus.NEEDS_PERSON
    if findings or any(d.recoverable for d in drift):
        return CheckStatus.PENDING
    return CheckStatus.DRIFTED if drift else CheckStatus.CLEAN


def _advice(
    findings: tuple[SidecarFinding, ...], staged: bool, locked: bool, drift: tuple[DriftFinding, ...]
) -> Iterable[str]:
    if any(f.recoverable for f in findings) or any(d.recoverable for d in drift):
        yield "run `omnigraph-ops recover` to finish what a crashed run left"
    if any(not f.recoverable for f in findings):
        yield "open the graph read-write once with omnigraph; it decides the other sidecars"
    if staged:
        yield "a schema apply is in flight or crashed: wait for it, or open the graph read-write with omnigraph"
    if locked:
        yield "the schema-apply lock is held: wait for the schema apply; a lock left by a crash needs a person"
    if any(not d.covered and not d.recoverable for d in drift):
        yield "run `omnigraph-ops repair` to review the drifted tables"
