"""What differs between the published version of a drifted table and its Lance HEAD, for a person to judge.

Collects the evidence about drifted tables, one tier for all of them. Evidence never decides anything: what cannot be
read is said in `problem`, and the preview goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph, spec_of
from omnigraph_ops.graph.lance_manifest import History, VersionRecord
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.tables import IndexFacts, index_facts
from omnigraph_ops.models.repair import (
    MERGE_TRANSACTION,
    BranchEvidence,
    Coverage,
    DriftEvidence,
    EvidenceTier,
    IndexEvidence,
    TierCost,
    TransactionProperty,
    VersionEvidence,
)
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.repair.compare import (
    BytesRead,
    Comparison,
    Here,
    Side,
    Sides,
    column_types,
    content_verdict,
    estimate,
    read_side,
    shown_rows,
)
from omnigraph_ops.views.view import short


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchView:
    """One branch and what it publishes, None when that cannot be read."""

    name: str
    state: BranchState | None
    problem: str = ""


def branch_evidence(
    entry: TableEntry, views: Iterable[BranchView], *, content_equal: bool | None
) -> tuple[BranchEvidence, ...]:
    """How main and the branches read the table of `entry`. Pure."""
    changes = None if content_equal is None else not content_equal
    main = BranchEvidence(branch=None, version=entry.version, sees_change=changes, note="reads what is published here")
    return (main, *(found for view in views if (found := _evidence_of_branch(entry, view)) is not None))


def _view(graph: Graph, name: str) -> BranchView:
    try:
        return BranchView(name=name, state=graph.state(name))
    except OpsError as error:
        return BranchView(name=name, state=None, problem=short(str(error), 200))


def _evidence_of_branch(entry: TableEntry, view: BranchView) -> BranchEvidence | None:
    name = short(view.name, 200)
    if view.state is None:
        return BranchEvidence(branch=name, version=None, note=f"cannot be read: {view.problem}")
    mine = next(iter(view.state.at(entry.path)), None)
    if mine is None:
        return None
    if mine.branch is not None:
        note = f"has its own fork {short(mine.branch, 200)}"
        return BranchEvidence(
            branch=name, version=mine.version, fork=short(mine.branch, 200), sees_change=False, note=note
        )
    if mine.version > entry.version:
        note = f"already reads version {mine.version} of the main chain, which main does not publish"
    else:
        note = f"reads version {mine.version} of the main chain and stays there"
    return BranchEvidence(branch=name, version=mine.version, sees_change=False, note=note)


MAX_NAMED = 5


def if_published(evidence: DriftEvidence) -> tuple[str, ...]:
    """What readers see change. Pure."""
    return (
        *_content(evidence),
        *_columns(evidence),
        *(sentence for index in evidence.indexes if (sentence := _index(index))),
        *_branches(evidence.branches),
    )


def if_not_published() -> tuple[str, ...]:
    """What goes on if nobody publishes it. Pure."""
    return (
        "Readers of main keep the published version.",
        "Optimize and cleanup leave this table out: it keeps its small fragments, uncovered rows and old versions.",
        "The engine's loads, updates, deletes and schema changes of this table refuse until it is repaired.",
        "The cleanup of engines before 0.9 does not look at drift and may remove the published version: do not run it.",
    )


def _of_merge(chain: History) -> Iterator[str]:
    if any((record.transaction_id or "").startswith(MERGE_TRANSACTION) for record in chain.records):
        yield (
            "Readers of main see a merge that was never published, perhaps only half of it: rows of other tables may "
            "be missing, and edges may lead nowhere. `recover` rolls it back once another write was published."
        )


def _content(evidence: DriftEvidence) -> Iterator[str]:
    if evidence.content_equal:
        yield "Readers of main see the same rows with the same values."
        return
    counts = (evidence.rows_added, evidence.rows_removed, evidence.rows_changed)
    if evidence.rows_added is None or evidence.rows_removed is None:
        yield _by_count(evidence)
        return
    verbs = ("gain {}", "lose {}", "see other values in {}")
    compared = any(column.digest_after is not None for column in evidence.columns)
    if evidence.rows_changed and not compared:
        verbs = (*verbs[:2], "see {} that were written again, their values not compared")
    parts = [verb.format(count(n, "row")) for verb, n in zip(verbs, counts, strict=True) if n]
    if parts:
        yield f"Readers of main {', '.join(parts)}."
    else:
        yield "Readers of main see the same row ids; the values were not all compared."


def _by_count(evidence: DriftEvidence) -> str:
    if evidence.rows_before is None or evidence.rows_after is None:
        return "What readers of main would see is not known: a version could not be read."
    if evidence.rows_before == evidence.rows_after:
        return (
            f"Readers of main see as many rows as before ({evidence.rows_after:,}); which and their values are unread."
        )
    return f"Readers of main see {count(evidence.rows_after, 'row')} instead of {evidence.rows_before:,}."


def _columns(evidence: DriftEvidence) -> Iterator[str]:
    for column in evidence.columns:
        if column.type_before is None:
            yield f"Column {column.column} ({column.type_after}) appears; the accepted schema may not declare it."
        elif column.type_after is None:
            yield f"Column {column.column} ({column.type_before}) disappears; the accepted schema may still declare it."
        elif column.type_before != column.type_after:
            yield f"Column {column.column} changes from {column.type_before} to {column.type_after}."


def _index(index: IndexEvidence) -> str | None:
    if index.after is None:
        return f"Index {index.name} is gone: queries on {', '.join(index.columns)} scan."
    if index.before is None:
        return f"Index {index.name} appears and covers {coverage_text(index.after)}."
    missing = index.after.rows - index.after.rows_covered
    missed = index.before.rows - index.before.rows_covered
    if missing == missed:
        return None
    scanned = f"queries scan {count(missing, 'row')} beside it instead of {missed:,}"
    covered = f"{coverage_text(index.after)} instead of {coverage_text(index.before)}"
    return f"Index {index.name} covers {covered}: {scanned}."


def coverage_text(coverage: Coverage) -> str:
    """`90 of 120 rows in 2 of 3 fragments`. Pure."""
    return (
        f"{coverage.rows_covered:,} of {count(coverage.rows, 'row')} in {coverage.fragments_covered:,} of "
        f"{count(coverage.fragments, 'fragment')}"
    )


def _branches(branches: tuple[BranchEvidence, ...]) -> Iterator[str]:
    unseen = [b.branch for b in branches if b.branch is not None and b.sees_change is False]
    unknown = [b.branch for b in branches if b.branch is not None and b.sees_change is None]
    if unseen:
        yield f"{_named(unseen)} see no change: each keeps the version it reads; branches made from main later see it."
    if unknown:
        yield f"What {_named(unknown)} read is not known."


def _named(branches: list[str]) -> str:
    more = f" and {len(branches) - MAX_NAMED} more" if len(branches) > MAX_NAMED else ""
    return (
        f"Branches {', '.join(branches[:MAX_NAMED])}{more}" if len(branches) > 1 else f"Readers of branch {branches[0]}"
    )


def index_evidence(sides: Sides) -> tuple[IndexEvidence, ...]:
    """Every index of either side by name. Reads."""
    old = {i.name: i for i in index_facts(sides.before.dataset)}
    new = {i.name: i for i in index_facts(sides.after.dataset)}
    return tuple(
        IndexEvidence(
            name=name,
            columns=(new.get(name) or old[name]).columns,
            before=_coverage(old.get(name), sides.before),
            after=_coverage(new.get(name), sides.after),
        )
        for name in sorted(old.keys() | new.keys())
    )


def _coverage(index: IndexFacts | None, side: Side) -> Coverage | None:
    if index is None:
        return None
    covered = [f for f in side.fragments if f.fragment_id in index.covered]
    return Coverage(
        fragments_covered=len(covered),
        fragments=len(side.fragments),
        rows_covered=sum(f.rows for f in covered),
        rows=side.rows,
    )


MAX_VERSIONS = 100
MAX_PROPERTIES = 8
_MAX_TEXT = 200


def version_evidence(chain: History, *, after: int) -> tuple[VersionEvidence, ...]:
    """One entry per version past the pin, up to the first that cannot be read. Pure."""
    found = [_evidence_of_version(record) for record in chain.records[:MAX_VERSIONS]]
    if chain.problem is not None and len(chain.records) < MAX_VERSIONS:
        number = after + 1 + len(chain.records)
        found.append(VersionEvidence(version=number, operation=None, problem=short(chain.problem, _MAX_TEXT)))
    return tuple(found)


def _evidence_of_version(record: VersionRecord) -> VersionEvidence:
    return VersionEvidence(
        version=record.version,
        operation=record.operation,
        committed_at_us=record.committed_at_us,
        read_version=record.read_version,
        writer=None if record.writer is None else short(record.writer, _MAX_TEXT),
        predicate=None if record.predicate is None else short(record.predicate, _MAX_TEXT),
        properties=tuple(
            TransactionProperty(name=short(name), value=short(value, _MAX_TEXT))
            for name, value in record.properties[:MAX_PROPERTIES]
        ),
    )


def unseen_blobs(graph: Graph, entry: TableEntry, pinned: Dataset, chain: History) -> str | None:
    """Why values of blobs that were rewritten prove nothing to the engine of this graph; None if they do. Reads.

    Lance 7 reads a blob of size 0 at position 0 as empty and one without a description as null. Newer releases write
    null as the former and read both as null.
    """
    if graph.format.compacts_blobs or "Rewrite" not in chain.operations:
        return None
    columns = [name for name in spec_of(graph, entry).blob_columns if pinned.schema.field(name).nullable]
    if not columns:
        return None
    return (
        f"may have null blobs in {', '.join(columns)} that its engine reads as empty from now on, "
        "which this release of Lance cannot tell"
    )


T = TypeVar("T")
_MAX_PROBLEM = 300


class EvidenceCollector:
    """Evidence of one tier about the tables of one graph; branches are read once, and only if there is drift."""

    def __init__(self, graph: Graph, tier: EvidenceTier, comparison: Comparison | None = None) -> None:
        self._graph = graph
        self._tier = tier
        self._comparison = comparison or Here()
        self._branches: tuple[BranchView, ...] | None = None

    def collect(self, entry: TableEntry, head: Dataset, chain: History) -> DriftEvidence:
        """What differs between the pin of `entry` and `head`. Reads."""
        started, problems, meter = time.monotonic(), list[str](), BytesRead()
        sides = _attempt(
            problems, lambda: Sides(before=read_side(self._graph.open_pinned(entry)), after=read_side(head))
        )
        found = DriftEvidence(tier=self._tier)
        if sides is not None:
            metadata = _metadata(found, sides, problems)
            found = _look_at_rows(metadata, sides, problems, meter, self._comparison)
            unseen = unseen_blobs(self._graph, entry, sides.before.dataset, chain)
            if found.content_equal and not sides.same_fragments and unseen:
                found = replace(found, content_equal=None, content_reason=f"it {unseen}")
        versions = version_evidence(chain, after=entry.version)
        views = _attempt(problems, self._views) or ()
        found = replace(
            found,
            versions=versions,
            versions_omitted=head.version - entry.version - len(versions),
            branches=branch_evidence(entry, views, content_equal=found.content_equal),
            if_not_published=if_not_published(),
            problem="; ".join(problems) or None,
        )
        seconds = round(time.monotonic() - started, 3)
        costs = tuple(_measured(cost, self._tier, meter, seconds) for cost in found.costs)
        return replace(found, if_published=(*_of_merge(chain), *if_published(found)), costs=costs)

    def unreadable(self, error: OpsError) -> DriftEvidence:
        """The evidence of a table whose Lance HEAD cannot be opened. Pure."""
        return DriftEvidence(tier=self._tier, problem=short(str(error), _MAX_PROBLEM))

    def _views(self) -> tuple[BranchView, ...]:
        if self._branches is None:
            self._branches = tuple(_view(self._graph, name) for name in self._graph.branches())
        return self._branches


def _metadata(found: DriftEvidence, sides: Sides, problems: list[str]) -> DriftEvidence:
    equal, reason = content_verdict(sides, None, None)
    return replace(
        found,
        costs=estimate(sides),
        content_equal=equal,
        content_reason=reason,
        rows_before=sides.before.rows,
        rows_after=sides.after.rows,
        rows_added=0 if sides.same_fragments else None,
        rows_removed=0 if sides.same_fragments else None,
        rows_changed=0 if equal else None,
        fragments_before=len(sides.before.fragments),
        fragments_after=len(sides.after.fragments),
        fragments_identical=len(sides.identical),
        columns=column_types(sides),
        indexes=_attempt(problems, lambda: index_evidence(sides)) or (),
    )


def _look_at_rows(
    found: DriftEvidence, sides: Sides, problems: list[str], meter: BytesRead, comparison: Comparison
) -> DriftEvidence:
    if found.tier is EvidenceTier.COUNTS:
        return found
    diff = _attempt(problems, lambda: comparison.rows(sides, meter))
    if diff is None:
        return found
    values = None
    if found.tier is EvidenceTier.FULL:
        values = _attempt(problems, lambda: comparison.values(sides, meter))
    changed = values.changed if values is not None else diff.rewritten
    equal, reason = content_verdict(sides, diff, values)
    return replace(
        found,
        content_equal=equal,
        content_reason=reason,
        rows_added=len(diff.added),
        rows_removed=len(diff.removed),
        rows_changed=None if changed is None else len(changed),
        columns=values.columns if values is not None else found.columns,
        shown=_attempt(problems, lambda: shown_rows(sides, diff, changed, meter)) or (),
    )


def _attempt(problems: list[str], read: Callable[[], T]) -> T | None:
    try:
        return read()
    except OpsError as error:
        problems.append(short(str(error), _MAX_PROBLEM))
        return None


def _measured(cost: TierCost, tier: EvidenceTier, meter: BytesRead, seconds: float) -> TierCost:
    return replace(cost, measured_bytes=meter.bytes_read, seconds=seconds) if cost.tier is tier else cost
