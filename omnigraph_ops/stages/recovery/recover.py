"""Finish what may be finished of sidecars and of commits without one, then sweep what killed runs left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial

from omnigraph_ops.coordination import guards
from omnigraph_ops.coordination.environment import clock_problem
from omnigraph_ops.coordination.fence import drop_stale_fence
from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.coordination.litter import sweep_litter
from omnigraph_ops.errors import GraphError, GraphFrozen, LeaseHeld, OperatorNeeded, OpsError, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.graph.publish import Published, publish, table_update
from omnigraph_ops.graph.schema import staging_files
from omnigraph_ops.graph.sidecars import (
    ROLLED_BACK,
    ROLLED_FORWARD,
    AuditOutcome,
    Sidecar,
    SidecarFile,
    append_audit,
    list_sidecars,
    open_audit,
    read_sidecar,
    sidecar_names,
)
from omnigraph_ops.lance.gateway import LanceFailure
from omnigraph_ops.models.health import FAILED, RecoverReport, RecoveryOutcome, SidecarClass, SidecarFinding
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes.runs import settle
from omnigraph_ops.progress import Stopped
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.empty_references import settle_empty_references, unlistable
from omnigraph_ops.stages.recovery.half_made import settle_half_made
from omnigraph_ops.stages.recovery.proofs import Unpublishable
from omnigraph_ops.stages.recovery.unpublished import left_by_freeze, publish_leftovers, put_back, roll_back
from omnigraph_ops.stages.recovery.verdict import Judgement, judged_sidecar

RECOVERY_ACTOR = "omnigraph:recovery"
_OF_ONE = (GraphError, LanceFailure)
"""What is wrong with one table, branch or dataset, and holds up no other."""


def recover(graph: Graph, *, grace_seconds: float | None = None) -> RecoverReport:
    """Finish every sidecar that may be finished, oldest first, then what needs none: `leftover`, `rollback`. Writes.

    A foreign sidecar younger than the grace period may belong to a writer at work and is deferred;
    one that our journal knows is finished as soon as its run's lease is dead. A run that is asked to stop reports
    what it did by then.
    """
    grace = graph.settings.recovery_grace_seconds if grace_seconds is None else grace_seconds
    outcomes: list[RecoveryOutcome] = []
    # First: what a killed run had done is told by the graph as that run left it.
    with contextlib.suppress(OpsError, Stopped):
        settle(graph)
    with contextlib.suppress(Stopped):
        # Before anything that lists branches.
        outcomes.extend(_finished_by(graph, partial(settle_empty_references, grace=grace)))
    if unlistable(graph):
        return RecoverReport(uri=graph.uri, outcomes=tuple(outcomes), status=check(graph).status)
    if drop_stale_fence(graph):
        detail = "the schema-apply lock of a run with a fence that was killed is removed"
        outcomes.append(RecoveryOutcome(action="fence_lifted", detail=detail))
    with contextlib.suppress(Stopped):
        for outcome in _settle_sidecars(graph, grace):
            outcomes.append(outcome)  # one by one: what was done by then is reported when the run is stopped
        for finish in (partial(settle_half_made, grace=grace), publish_leftovers, roll_back, _straighten_lineage):
            for outcome in _finished_by(graph, finish):
                if outcome not in outcomes:  # several steps say that the graph is frozen
                    outcomes.append(outcome)
        sweep_litter(graph, grace)
    return RecoverReport(uri=graph.uri, outcomes=tuple(outcomes), status=check(graph).status)


def _finished_by(graph: Graph, finish: Callable[[Graph], Iterator[RecoveryOutcome]]) -> Iterator[RecoveryOutcome]:
    """What one step did, as far as it came before another run took over, or that the graph is frozen. Writes."""
    graph.run.check()
    try:
        yield from finish(graph)
    except GraphFrozen as error:
        yield left_by_freeze(error)
    except (LeaseHeld, OperatorNeeded):
        return
    except _OF_ONE as error:
        yield RecoveryOutcome(action=FAILED, detail=str(error))


def _straighten_lineage(graph: Graph) -> Iterator[RecoveryOutcome]:
    """Make one line of what writers without a compare forked, on main and on every branch. Writes.

    Beside pending sidecars and live writers, too: the head stays the head, so what they append fits as before.
    """
    if not _forks(graph):
        return
    detail = "commits named a parent that another one had named; each now follows the one before it"
    with committer_turn(graph, "recover the lineage", wait_seconds=0) as keeper:
        refuse_frozen(graph)
        for branch, parents in _forks(graph).items():
            keeper.assert_held()
            graph.format.relink_lineage(graph.context, branch, parents)
            yield RecoveryOutcome(
                operation_id=min(parents), action="relinked", detail=f"{branch or 'main'}: {len(parents)} {detail}"
            )


def _forks(graph: Graph) -> dict[str | None, dict[str, str]]:
    found = dict[str | None, dict[str, str]]()
    for branch in (None, *graph.branches()):
        try:
            parents = graph.format.lineage_forks(graph.context, branch)
        except LanceFailure:
            if branch is None:
                raise
            continue  # `check` names it
        if parents:
            found[branch] = parents
    return found


def _settle_sidecars(graph: Graph, grace: float) -> Iterator[RecoveryOutcome]:
    """What became of each, oldest first. Writes."""
    files, wait = list_sidecars(graph.storage, graph.format.sidecar_version), None
    for file in files:
        graph.run.check()
        judgement, is_held = judged_sidecar(graph, file, beside=files), False
        try:
            outcome = _recover_one(graph, file, judgement, grace, wait)
        except LeaseHeld as error:
            outcome, is_held = _left(judgement.finding, "deferred", str(error)), True
        except _OF_ONE as error:
            outcome = _left(judgement.finding, FAILED, str(error))
        # Whoever has the lease has had it for as long as a committer waits.
        wait = 0.0 if is_held else None
        yield outcome


def _recover_one(
    graph: Graph, file: SidecarFile, judgement: Judgement, grace: float, wait: float | None
) -> RecoveryOutcome:
    """What became of one sidecar; `LeaseHeld` where somebody else is at work. Writes."""
    left, sidecar = _why_left(graph, file, judgement, grace), file.sidecar
    if left is not None or sidecar is None:
        if not graph.storage.exists(file.path):  # and its record is gone, too, so it was taken for an engine's
            return _finished(judgement.finding)
        return left or _left(judgement.finding, "left_to_engine", judgement.finding.detail)
    with committer_turn(graph, f"recover {sidecar.operation_id}", wait_seconds=wait) as keeper:
        # The run of a row expiry holds the lease while its engine is at work; the next expiry removes the branch.
        if sidecar.is_of_row_expiry:
            graph.storage.delete(file.path)
            return _left(judgement.finding, "rolled_back", judgement.finding.detail)
        return _finish(graph, file.path, judgement.finding, grace, keeper)


def _why_left(graph: Graph, file: SidecarFile, judgement: Judgement, grace: float) -> RecoveryOutcome | None:
    """What is said of a sidecar that stays as it is for now; None where it may be settled. Reads."""
    if not judgement.finding.recoverable:
        return _left(judgement.finding, "left_to_engine", judgement.finding.detail)
    if staged := ", ".join(staging_files(graph.storage)):
        why = f"a schema apply is in flight or crashed ({staged}); `omnigraph-ops check` says what settles it first"
        return _left(judgement.finding, "left_to_engine", why)
    if (young := _too_young(graph, file, judgement, grace)) is not None:
        return _left(judgement.finding, "deferred", young)
    return None


def withdraw_expiry(graph: Graph, branch: str) -> None:
    """Remove the sidecars of writes on that branch of row expiry, whose process is gone. Destroys these files."""
    for file in list_sidecars(graph.storage, graph.format.sidecar_version):
        if file.sidecar is not None and file.sidecar.branch == branch and file.sidecar.is_of_row_expiry:
            graph.storage.delete(file.path)


def _rewritten_at(graph: Graph, file: SidecarFile, judgement: Judgement) -> float:
    """When a process last wrote the sidecars of writes that got in each other's way, in seconds; else 0. Reads.

    Who took a writer for dead wrote its sidecar anew, and may be at work when that writer is not.
    """
    if judgement.proof is None:
        return 0.0
    files = judgement.proof.files if isinstance(judgement.proof, Unpublishable) else (file,)
    return max((_written_at(graph, one) for one in files), default=0.0)


def _written_at(graph: Graph, file: SidecarFile) -> float:
    with contextlib.suppress(FileNotFoundError):
        return graph.storage.stat(file.path).modified_at or 0.0
    return 0.0


def _too_young(graph: Graph, file: SidecarFile, judgement: Judgement, grace: float) -> str | None:
    if grace <= 0 or guards.operation_of(graph.storage, judgement.finding.operation_id) is not None:
        return None  # without a grace period no age is told; the lease tells whether a run of ours is at work
    now, armed_at = time.time(), (judgement.finding.started_at_us or 0) / 1e6
    if armed_at > now:
        # By a wrong clock: otherwise it would wait for that date, and all maintenance with it.
        armed_at = _written_at(graph, file)
    age = now - max(armed_at, _rewritten_at(graph, file, judgement))
    if age < grace:
        return f"armed {max(age, 0):.0f} s ago, its writer may be at work; deferred for {grace:.0f} s"
    problem = clock_problem(graph.storage)
    return problem and f"{problem}; its writer may be at work; set the clock that is wrong, then run again"


def _finish(graph: Graph, path: str, seen: SidecarFinding, grace: float, keeper: LeaseKeeper) -> RecoveryOutcome:
    """Read and decide again under the lease, then act. Writes."""
    file = read_sidecar(graph.storage, path, graph.format.sidecar_version)
    if file is None:
        return _finished(seen)
    judgement = judged_sidecar(graph, file)
    finding, sidecar = judgement.finding, file.sidecar
    left = _why_left(graph, file, judgement, grace)  # somebody may have written while this waited for the lease
    if left is not None or sidecar is None:
        return left or _left(finding, "left_to_engine", finding.detail)
    open_audit(graph)  # what cannot be audited is not begun: each attempt would publish once more
    unit = Unit(
        name=f"recovery of {sidecar.operation_id}",
        stage="recover",
        table_key=sidecar.tables[0].table_key,
        version=judgement.pins[0].pinned_version,
        branch=sidecar.branch or "",
        sidecar=path.rpartition("/")[2],
    )
    guards.begin_held(graph, unit, keeper)
    done = _act(graph, sidecar, judgement, keeper)
    if done is None:
        graph.run.ended(unit, None)
        return _left(
            finding, "deferred", "its table moved while it was looked at: a writer is at work; run again later"
        )
    _close(graph, path, sidecar, done, keeper)
    action, outcomes, _ = done
    first = outcomes[0] if outcomes else None
    outcome = RecoveryOutcome(
        operation_id=sidecar.operation_id,
        table_key=unit.table_key,
        action=action,
        from_version=first.from_version if first else None,
        to_version=first.to_version if first else None,
        detail=finding.detail,
    )
    graph.run.ended(unit, RecoverReport.of_unit(graph.uri, outcome))
    return outcome


def _close(graph: Graph, path: str, sidecar: Sidecar, done: _Done, keeper: LeaseKeeper) -> None:
    """Audit what was done for a sidecar, then remove it. Destroys the sidecar."""
    action, outcomes, published = done
    keeper.assert_held()
    kind = ROLLED_BACK if action == "rolled_back" else ROLLED_FORWARD
    append_audit(graph, sidecar, commit_id=published.commit_id, kind=kind, outcomes=outcomes, created_at_us=now_us())
    keeper.assert_held()
    graph.storage.delete(path)
    guards.forget_operation(graph.storage, sidecar.operation_id)


_Done = tuple[str, tuple[AuditOutcome, ...], Published]
"""What was done, what became of the tables, and the graph commit that the audit names."""


def _act(graph: Graph, sidecar: Sidecar, judgement: Judgement, keeper: LeaseKeeper) -> _Done | None:
    """Do what the judgement says; None when a table is not what it was made from: an engine knows no lease. Writes."""
    proof = judgement.proof
    try:
        if proof is None:
            return _finish_optimize(graph, sidecar, judgement)
        updates = put_back(graph, proof.tables, operation=new_ulid(), keeper=keeper)
        if updates is None:
            return None
        if isinstance(proof, Unpublishable):
            return "rolled_back", proof.outcomes, publish(graph, updates, actor=RECOVERY_ACTOR, branch=sidecar.branch)
        if updates:
            publish(graph, updates, actor=RECOVERY_ACTOR, branch=sidecar.branch)
        return "rolled_forward", proof.outcomes, proof.published
    except StalePlan:
        return None  # somebody published meanwhile; the next run rolls back what was put on top of that


def _finish_optimize(graph: Graph, sidecar: Sidecar, judgement: Judgement) -> _Done | None:
    """Publish a moved table, or only a lineage commit when there is nothing to publish. Writes."""
    (pin,), (proven,) = sidecar.tables, judgement.pins
    classification = judgement.finding.classification
    # What is published under that key by now may be another table.
    entry = None if proven.is_dropped else graph.published(proven.table_key)
    if entry is None and not proven.is_dropped:
        return None
    if entry is not None and classification is SidecarClass.ROLL_FORWARD:
        head = graph.open_head(entry)
        if (entry.version, int(head.version)) != (proven.pinned_version, proven.lance_head_version):
            return None
        published = publish(graph, (table_update(graph, entry, head),), actor=RECOVERY_ACTOR)
        outcome = AuditOutcome(table_key=pin.table_key, from_version=pin.expected_version, to_version=head.version)
        return "rolled_forward", (outcome,), published
    published = publish(graph, (), actor=RECOVERY_ACTOR)
    if entry is not None and classification is SidecarClass.STALE:
        outcome = AuditOutcome(table_key=pin.table_key, from_version=pin.expected_version, to_version=entry.version)
        return "stale", (outcome,), published
    return "rolled_back", (), published


def _finished(finding: SidecarFinding) -> RecoveryOutcome:
    """What is said of a sidecar that is there no more. Pure."""
    return _left(finding, "stale", "another process finished it")


def _left(finding: SidecarFinding, action: str, detail: str) -> RecoveryOutcome:
    return RecoveryOutcome(
        operation_id=finding.operation_id,
        table_key=finding.table_keys[0] if finding.table_keys else "",
        action=action,
        detail=detail,
    )


def recovered(graph: Graph, unit: Unit) -> RecoveryOutcome | None:
    """What became of the sidecar or the table of a unit; None: nothing. Reads."""
    entry = graph.state(unit.branch or None).get(unit.table_key) if unit.table_key else None
    now = entry.version if entry is not None else None
    if now is not None and unit.version is not None and now > unit.version:
        action = "rolled_forward"
    elif unit.sidecar and unit.sidecar not in sidecar_names(graph.storage):
        action = "rolled_back"
    else:
        return None
    return RecoveryOutcome(
        operation_id=unit.sidecar.removesuffix(".json"),
        table_key=unit.table_key,
        action=action,
        from_version=unit.version,
        to_version=now,
    )
