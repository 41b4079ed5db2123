"""Repair: publish existing heads of drifted tables. Rewrites no data.

Only drift made of Rewrite and ReserveFragments that is proven to have the same rows is verified maintenance; any
other, unknown or unreadable operation is a person's decision, and a version that readers could not read is never
published. The evidence is for that person and decides nothing: an apply compares what it finds with the decisive part
of the approved preview only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.guards import begin_held, look_again, refuse_lasting
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.errors import OpsError, OutcomeUnknown, StalePlan, UnknownTable
from omnigraph_ops.graph.graph import Graph, select_entries
from omnigraph_ops.graph.lance_manifest import History, history
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.evidence import unreadable, wrong_content
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.models.repair import (
    Classification,
    EvidenceTier,
    RepairAction,
    RepairPreview,
    RepairReport,
    RepairRow,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.repair.compare import Comparison
from omnigraph_ops.stages.repair.evidence import EvidenceCollector, unseen_blobs

VERIFIED_OPERATIONS = frozenset({"Rewrite", "ReserveFragments"})
REPAIR_ACTOR = "omnigraph:repair"
FORCE_ACTOR = "omnigraph:repair:force"
_NOTHING = "nothing was published"
_MAX_DIFFERENCES = 3


def preview_repair(
    graph: Graph,
    *,
    tables: Sequence[str] = (),
    evidence: EvidenceTier = EvidenceTier.COUNTS,
    comparison: Comparison | None = None,
) -> RepairPreview:
    """Every maintained table (or those named) with the classification and evidence of its drift. Reads.

    Args:
        comparison: where rows and values are compared; None: in this process.

    Raises:
        RecoveryPending: something is pending; repair never decides beside a recovery.
    """
    refuse_lasting(graph)
    rows = _rows(graph, _settled_entries(graph, tables), EvidenceCollector(graph, evidence, comparison))
    planned = now_us()
    return sealed.seal(
        RepairPreview(
            uri=graph.uri,
            stamp=graph.stamp,
            planned_at_us=planned,
            expires_at_us=sealed.expiry(planned, graph.settings),
            rows=rows,
            tables=tuple(tables),
            digest="",
        )
    )


def _settled_entries(graph: Graph, tables: Sequence[str]) -> list[TableEntry]:
    """The tables as they are published, looked at again where a writer seems to be about to publish. Reads."""

    def is_ahead(entry: TableEntry) -> bool:
        try:
            return bool(graph.open_head(entry).version != entry.version)
        except OpsError:
            return False

    return look_again(graph, select_entries(graph, graph.state(), tables), is_ahead, list)


def apply_repair(graph: Graph, preview: RepairPreview, *, force: bool = False) -> RepairReport:
    """Publish what the preview showed: verified tables, and with `force` the others too. Publishes.

    All published tables land in one graph commit. Refused tables do not hold up the others, nor do those of which
    somebody else has published exactly the approved version since.

    Raises:
        StalePlan: the preview was altered, expired, is of another graph, or the drift is not what it
            showed; nothing was published.
        RecoveryPending: something is pending; nothing was published.
        GraphFrozen: the graph, or a table that would be published, is frozen; nothing was published.
    """
    sealed.verify(preview, uri=graph.uri, consequence=_NOTHING)
    with committer_turn(graph, "repair") as keeper:
        refuse_lasting(graph)
        rows = _unchanged(graph, preview)
        decided = tuple(replace(row, action=decide(row, force=force)) for row in rows)
        for row in decided:
            if row.is_published:
                refuse_frozen(graph, row.table_key)
        report = RepairReport(
            uri=graph.uri,
            confirm=True,
            force=force,
            manifest_version=None,
            tables=decided,
            digest=preview.digest,
            already_published=tuple(row.table_key for row in rows if row not in preview.rows),
        )
        if not any(row.is_published for row in decided):
            return report
        unit = Unit(name="the publish of the repair", stage="repair", digest=preview.digest, report=_bare(report))
        begin_held(graph, unit, keeper)
        try:
            report = replace(report, manifest_version=_publish(graph, decided))
        except OutcomeUnknown:
            raise  # what is published of the tables tells
        except OpsError:
            # Whoever was faster may have published the same.
            graph.run.ended(unit, None)
            raise
        graph.run.ended(unit, _bare(report))
        return report


def _bare(report: RepairReport) -> RepairReport:
    """The report without its evidence, which no record needs. Pure."""
    return replace(report, tables=tuple(replace(row, evidence=None) for row in report.tables))


def classify(chain: History, problem: str | None = None, *, readable: bool = True) -> Classification:
    """The engine's rule over the operations past the pin, and what speaks against it. Pure."""
    if chain.problem is not None or not readable:
        return Classification.UNVERIFIABLE
    if not chain.operations:
        return Classification.NO_DRIFT
    verified = VERIFIED_OPERATIONS.issuperset(chain.operations) and problem is None
    return Classification.VERIFIED_MAINTENANCE if verified else Classification.SUSPICIOUS


def decide(row: RepairRow, *, force: bool) -> RepairAction:
    """What a confirmed repair does with one previewed table. Pure."""
    if row.classification is Classification.NO_DRIFT:
        return RepairAction.NO_OP
    if row.classification is Classification.VERIFIED_MAINTENANCE:
        return RepairAction.HEALED
    return RepairAction.FORCED if force and row.publishable else RepairAction.REFUSED


def differences(approved: Sequence[RepairRow], found: Sequence[RepairRow]) -> tuple[str, ...]:
    """Where the decisive parts of two previews of the same tables differ, a phrase per table. Pure."""
    now = {row.table_key: row for row in found}
    phrases = []
    for row in approved:
        fresh = now.get(row.table_key)
        if fresh is None or _decisive(fresh) != _decisive(row):
            was, now_is = _phrase(row), _phrase(fresh)
            other = " by other commits" if was == now_is else ""
            phrases.append(f"{row.table_key}: approved {was}, now {now_is}{other}")
    return tuple(phrases)


def _unchanged(graph: Graph, preview: RepairPreview) -> tuple[RepairRow, ...]:
    """The approved rows, if what they decide by is still so; `StalePlan` otherwise. Reads, perhaps waits.

    Of a table whose approved version is published by now: the row of what is published.
    """
    keys = tuple(row.table_key for row in preview.rows)
    at_rest = {row.table_key for row in preview.rows if row.classification is Classification.NO_DRIFT}

    def moved(row: RepairRow) -> bool:
        return row.table_key in at_rest and row.classification is not Classification.NO_DRIFT

    find = partial(_rows, graph, collector=None)
    try:
        # No keys would mean every table: a preview of none approves none.
        found = find(select_entries(graph, graph.state(), keys)) if keys else ()
        # Others write to tables that did not drift while a person reads the preview.
        seen = look_again(graph, found, moved, find)
    except UnknownTable as error:
        raise StalePlan(f"{error}, which the preview showed; {_NOTHING}; preview again") from None
    now = {row.table_key: row for row in seen}
    published = {r.table_key for r in preview.rows if _is_published_as(graph, r, now.get(r.table_key))}
    differing = differences([row for row in preview.rows if row.table_key not in published], seen)
    if differing:
        shown = "; ".join(differing[:_MAX_DIFFERENCES])
        more = len(differing) - _MAX_DIFFERENCES
        raise StalePlan(
            f"the drift of {graph.uri} changed since it was previewed; {_NOTHING}; preview again ({shown}"
            + (f"; and {count(more, 'more table')})" if more > 0 else ")")
        )
    return tuple(now[row.table_key] if row.table_key in published else row for row in preview.rows)


def _is_published_as(graph: Graph, approved: RepairRow, now: RepairRow | None) -> bool:
    """Whether a table that drifted publishes exactly the commits that were approved by now. Reads."""
    if approved.classification is Classification.NO_DRIFT or not all(approved.transactions):
        return False  # without the id of each commit nothing tells that they are the same
    if now is None or now.classification is not Classification.NO_DRIFT:
        return False
    entry = graph.published(approved.table_key)
    if entry is None or entry.version != approved.lance_head_version:
        return False
    chain = history(graph.storage, entry.path, after=approved.manifest_version, upto=entry.version)
    return chain.problem is None and _transactions(chain) == approved.transactions


def _transactions(chain: History) -> tuple[str, ...]:
    return tuple(record.transaction_id or "" for record in chain.records)


def _decisive(row: RepairRow) -> tuple[object, ...]:
    """What an approval is about: not the versions of a table without drift, and not the evidence. Pure."""
    decided_by = row.classification, row.operations, row.error, row.readable
    if row.classification is Classification.NO_DRIFT:
        return decided_by
    return (row.manifest_version, row.lance_head_version, row.transactions, *decided_by)


def _phrase(row: RepairRow | None) -> str:
    if row is None:
        return "not live"
    operations = f" [{', '.join(row.operations)}]" if row.operations else ""
    return f"{row.manifest_version} → {row.lance_head_version} {row.classification.value}{operations}"


def _rows(graph: Graph, entries: Sequence[TableEntry], collector: EvidenceCollector | None) -> tuple[RepairRow, ...]:
    return tuple(_isolated(graph, entry, collector) for entry in entries)


def _isolated(graph: Graph, entry: TableEntry, collector: EvidenceCollector | None) -> RepairRow:
    """The row of a table; one that cannot be opened is unverifiable and holds up no other. Reads."""
    try:
        return _row(graph, entry, collector)
    except OpsError as error:
        return RepairRow(
            table_key=entry.table_key,
            manifest_version=entry.version,
            lance_head_version=0,
            classification=Classification.UNVERIFIABLE,
            action=RepairAction.PREVIEW,
            error=str(error),
            evidence=collector.unreadable(error) if collector else None,
        )


def _row(graph: Graph, entry: TableEntry, collector: EvidenceCollector | None) -> RepairRow:
    head = graph.open_head_past_pin(entry, _NOTHING)
    chain = history(graph.storage, entry.path, after=entry.version, upto=head.version)
    drifted = bool(chain.operations) or chain.problem is not None
    problem, readable = _against(graph, entry, head, chain) if drifted else (None, True)
    classification = classify(chain, problem, readable=readable)
    evidence = collector.collect(entry, head, chain) if drifted and collector else None
    return RepairRow(
        table_key=entry.table_key,
        manifest_version=entry.version,
        lance_head_version=head.version,
        classification=classification,
        action=RepairAction.PREVIEW if drifted else RepairAction.NO_OP,
        operations=chain.operations,
        transactions=_transactions(chain),
        error=chain.problem or problem,
        readable=readable,
        rows_before=evidence.rows_before if evidence else None,
        rows_after=evidence.rows_after if evidence else None,
        evidence=evidence,
    )


def _against(graph: Graph, entry: TableEntry, head: Dataset, chain: History) -> tuple[str | None, bool]:
    """What speaks against publishing the newest version, and whether readers could read it. Reads."""
    try:
        pinned = graph.open_pinned(entry)
    except OpsError as error:
        failure = unreadable(None, head)
        return failure or f"the published version of {entry.table_key} cannot be read: {error}", failure is None
    failure = unreadable(pinned, head)
    if failure is not None:
        return f"{entry.table_key} {failure}", False
    # Operations that change rows on purpose are compared by the evidence, for a person.
    claims = chain.problem is None and VERIFIED_OPERATIONS.issuperset(chain.operations)
    wrong = (wrong_content(pinned, head) or unseen_blobs(graph, entry, pinned, chain)) if claims else None
    return (f"{entry.table_key} {wrong}" if wrong else None), True


def _publish(graph: Graph, decided: tuple[RepairRow, ...]) -> int:
    chosen, state, updates = [row for row in decided if row.is_published], graph.state(), []
    for row in chosen:
        entry = state.get(row.table_key)
        if entry is None:
            raise StalePlan(f"{row.table_key} is not live any more; {_NOTHING}; preview again")
        # The exact version that was previewed, even if the HEAD has moved on since.
        dataset = graph.open_at(entry.path, version=row.lance_head_version)
        updates.append(table_update(graph, replace(entry, version=row.manifest_version), dataset))
    forced = any(r.action is RepairAction.FORCED for r in chosen)
    actor = FORCE_ACTOR if forced else REPAIR_ACTOR
    return publish(graph, tuple(updates), actor=actor).manifest_version


def published_of(graph: Graph, unit: Unit) -> RepairReport | None:
    """The report with what was published; a table that was not stays as it was previewed. Reads."""
    report = unit.report
    if report is None:
        return None
    state = graph.state()
    pins = {entry.table_key: entry.version for entry in state.entries}
    # One graph commit for all of them, so one tells of all.
    published = any(pins.get(row.table_key, 0) >= row.lance_head_version for row in report.tables if row.is_published)
    return replace(report, manifest_version=state.manifest_version) if published else None
