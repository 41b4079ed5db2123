"""Repair: classified drift, the evidence about it, previews, reports.

Evidence about the drift of one table: what differs between its published version and its Lance HEAD. A field is None
where the tier that was run does not know. Values of rows are text for a person: short, on one line, without control
characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from omnigraph_ops.models.history import Measured
from omnigraph_ops.models.outcomes import Outcome, StagePlan, StageReport, TableOutcome, TablePlanned
from omnigraph_ops.quantities import count


class EvidenceTier(StrEnum):
    """How much is read to find out what differs."""

    COUNTS = "counts"
    """Metadata only; no data file is read."""
    SAMPLE = "sample"
    """Rows added, removed and rewritten by stable row id, and a handful of them in full."""
    FULL = "full"
    """Every value of every fragment that is not the same file on both sides."""


class RowChange(StrEnum):
    """What happened to a row past the pin."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierCost:
    """What a tier reads from this table; measured for the tier that was run."""

    tier: EvidenceTier
    estimated_bytes: int
    """Bytes of data files, both versions together."""
    at_least: bool = False
    """The estimate leaves blobs out: Lance does not list their bytes."""
    measured_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownValue:
    """One column of a shown row; a side is None where the row or the column does not exist."""

    column: str
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """One row that differs."""

    row_id: int
    change: RowChange
    values: tuple[ShownValue, ...]
    columns_omitted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEvidence:
    """One column on both sides; digests and counts cover the rows that were compared, by row id."""

    column: str
    type_before: str | None
    """None: the column was added past the pin."""
    type_after: str | None
    """None: the column was dropped past the pin."""
    digest_before: str | None = None
    digest_after: str | None = None
    equal: bool | None = None
    """Whether the same rows hold the same values."""
    rows_changed: int | None = None
    """Rows that both sides have, with other values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of a table version an index knows."""

    fragments_covered: int
    fragments: int
    rows_covered: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEvidence:
    """Coverage of one index; a side is None where the index does not exist."""

    name: str
    columns: tuple[str, ...]
    before: Coverage | None
    after: Coverage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionProperty:
    """A property that the writer attached to its transaction, e.g. the commit message."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionEvidence:
    """Who could have made one version past the pin, and when."""

    version: int
    operation: str | None
    """None when it cannot be read; `problem` says why."""
    committed_at_us: int | None = None
    read_version: int | None = None
    writer: str | None = None
    """Library and release that wrote the version, e.g. `lance 7.0.0`."""
    predicate: str | None = None
    """The condition of a Delete."""
    properties: tuple[TransactionProperty, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchEvidence:
    """How one branch of the graph reads the table; None for main."""

    branch: str | None
    version: int | None
    """The version it publishes, None when the branch cannot be read."""
    fork: str | None = None
    """The Lance branch of the table that owns the version, None for the main chain."""
    sees_change: bool | None = None
    """Whether publishing changes what its readers see; None when unknown."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftEvidence:
    """Everything that one tier found out about the drift of one table."""

    tier: EvidenceTier
    costs: tuple[TierCost, ...] = ()
    content_equal: bool | None = None
    """Proven equal or different by stable row id; None when this tier does not prove either."""
    content_reason: str = ""
    rows_before: int | None = None
    rows_after: int | None = None
    rows_added: int | None = None
    rows_removed: int | None = None
    rows_changed: int | None = None
    """`full`: rows with other values. `sample`: rows that Lance records as written past the pin."""
    fragments_before: int | None = None
    fragments_after: int | None = None
    fragments_identical: int | None = None
    """Fragments whose files, deletions and row ids are the same on both sides."""
    columns: tuple[ColumnEvidence, ...] = ()
    indexes: tuple[IndexEvidence, ...] = ()
    versions: tuple[VersionEvidence, ...] = ()
    versions_omitted: int = 0
    branches: tuple[BranchEvidence, ...] = ()
    shown: tuple[ShownRow, ...] = ()
    if_published: tuple[str, ...] = ()
    if_not_published: tuple[str, ...] = ()
    problem: str | None = None
    """What could not be read; the evidence is then incomplete."""


MERGE_TRANSACTION = "omnigraph-merge-"
"""How the id of each transaction of a merge by engine 0.9.0 begins; a ULID follows."""


class Classification(StrEnum):
    """Evidence about a table's drift, in the engine's tokens."""

    NO_DRIFT = "no_drift"
    VERIFIED_MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"


class RepairAction(StrEnum):
    """What repair did, in the engine's tokens."""

    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRow:
    """Classification of one table's drift and what was done; fields are the engine's."""

    table_key: str
    manifest_version: int
    lance_head_version: int
    classification: Classification
    action: RepairAction
    operations: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()
    """The ids that Lance gave the commits past the pin: an approval is for these commits alone."""
    error: str | None = None
    rows_before: int | None = None
    rows_after: int | None = None
    evidence: DriftEvidence | None = None
    """What differs, for a person; never decides anything."""
    readable: bool = True
    """Whether readers could read the newest version; one that they could not is never published."""

    @property
    def publishable(self) -> bool:
        """Whether somebody may publish the newest version at all. Pure."""
        return self.readable and self.lance_head_version > self.manifest_version

    @property
    def is_of_merge(self) -> bool:
        """Whether a merge of branches made one of the commits past the pin. Pure."""
        return any(one.startswith(MERGE_TRANSACTION) for one in self.transactions)

    @property
    def is_published(self) -> bool:
        """Whether a repair publishes it. Pure."""
        return self.action in {RepairAction.HEALED, RepairAction.FORCED}

    @property
    def lacked_switch(self) -> bool:
        """Whether a repair left it only because the switch was off. Pure."""
        return self.action is RepairAction.REFUSED and self.publishable

    @property
    def refusal(self) -> str | None:
        """Why a repair left it, None when it did not. Pure."""
        if self.action is not RepairAction.REFUSED:
            return None
        return self.error or f"repair refused {self.classification.value} drift"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPreview(StagePlan):
    """What repair would publish; `digest` binds an approval to exactly this value."""

    stage = "repair"
    uri: str
    stamp: int
    planned_at_us: int
    expires_at_us: int
    rows: tuple[RepairRow, ...]
    tables: tuple[str, ...] = ()
    """The table keys it was narrowed to; empty for every maintained table."""
    digest: str

    def by_table(self) -> Iterator[TablePlanned]:
        for row in self.rows:
            drift = "" if row.classification is Classification.NO_DRIFT else row.classification.replace("_", " ")
            before = Measured(version=row.manifest_version)
            yield TablePlanned(table_key=row.table_key, before=before, asked=drift)

    @property
    def drifted(self) -> tuple[RepairRow, ...]:
        return tuple(r for r in self.rows if r.classification is not Classification.NO_DRIFT)

    @property
    def lost(self) -> tuple[RepairRow, ...]:
        """Drifted tables whose newest version nobody may publish: it cannot be read. Pure."""
        return tuple(r for r in self.drifted if not r.publishable)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport(StageReport):
    """What repair did; `manifest_version` is the new graph version or None when nothing was published."""

    stage = "repair"
    uri: str
    confirm: bool
    force: bool
    manifest_version: int | None
    tables: tuple[RepairRow, ...]
    digest: str | None = None
    """Of the preview that is shown or was applied."""
    already_published: tuple[str, ...] = ()
    """The keys of the tables whose approved version somebody else had published by then."""

    @property
    def refused(self) -> tuple[RepairRow, ...]:
        return tuple(r for r in self.tables if r.action is RepairAction.REFUSED)

    def outcome(self, plan: object = None) -> Outcome:
        left = ", ".join(row.table_key for row in self.tables if row.lacked_switch)
        without = f"repair was approved without the switch, so nothing was published of {left}"
        return Outcome(
            stage=self.stage,
            detail=self._detail(),
            applied=self.manifest_version is not None or bool(self.already_published),
            changed=any(row.is_published for row in self.tables),
            asks_by_plan=True,
            problem="; ".join(self._refusals()),
            unapproved=without if left else "",
            tables=tuple(self._table_outcome(row) for row in self.tables),
        )

    def then(self, later: RepairReport) -> RepairReport:
        """The last that published: what comes after it only finds that there is nothing to do. Pure."""
        return later if later.manifest_version is not None or self.manifest_version is None else self

    def _detail(self) -> str:
        counts = Counter(row.action.value for row in self.tables)
        done = ", ".join(f"{number} {action}" for action, number in sorted(counts.items()))
        version = self.manifest_version
        done += f"; {len(self.already_published)} already published" if self.already_published else ""
        return f"{done}; {'nothing was published' if version is None else f'graph manifest version {version}'}"

    def _table_outcome(self, row: RepairRow) -> TableOutcome:
        """What was done to one table: to leave what needs the switch is no failure. Pure."""
        if row.lacked_switch:
            return TableOutcome(table_key=row.table_key, reason=row.refusal or "")
        reason = "already published" if row.table_key in self.already_published else ""
        return TableOutcome(table_key=row.table_key, changed=row.is_published, error=row.refusal, reason=reason)

    def _refusals(self) -> Iterator[str]:
        """What was refused, and what a person can do about it. Pure."""
        lost = [row.table_key for row in self.refused if not row.publishable]
        if others := len(self.refused) - len(lost):
            yield (
                f"repair refused {count(others, 'suspicious or unverifiable table')}, nothing of them changed; review "
                "the preview and run again with --force --confirm only if publishing that drift is intended"
            )
        if halves := ", ".join(row.table_key for row in self.refused if row.publishable and row.is_of_merge):
            yield (
                f"a merge of branches that was never published wrote to {halves}: --force may publish half of it; "
                "recover rolls it back once another write was published"
            )
        if lost:
            yield (
                f"no repair helps {', '.join(lost)}: the newest version cannot be read and is not published, whoever "
                "asks; restore the graph from a backup"
            )
