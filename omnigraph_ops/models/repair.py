"""Repair: classified drift, previews, reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from omnigraph_ops.models.evidence import DriftEvidence


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
    error: str | None = None
    rows_before: int | None = None
    rows_after: int | None = None
    evidence: DriftEvidence | None = None
    """What differs, for a person; never decides anything."""
    readable: bool = True
    """Whether readers could read the newest version; one that they could not is never published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPreview:
    """What repair would publish; `digest` binds an approval to exactly this value."""

    uri: str
    stamp: int
    planned_at_us: int
    expires_at_us: int
    rows: tuple[RepairRow, ...]
    tables: tuple[str, ...] = ()
    """The table keys it was narrowed to; empty for every maintained table."""
    digest: str

    @property
    def drifted(self) -> tuple[RepairRow, ...]:
        return tuple(r for r in self.rows if r.classification is not Classification.NO_DRIFT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What repair did; `manifest_version` is the new graph version or None when nothing was published."""

    uri: str
    confirm: bool
    force: bool
    manifest_version: int | None
    tables: tuple[RepairRow, ...]
    digest: str | None = None
    """Of the preview that is shown or was applied."""

    @property
    def refused(self) -> tuple[RepairRow, ...]:
        return tuple(r for r in self.tables if r.action is RepairAction.REFUSED)
