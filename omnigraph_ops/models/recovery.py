"""What `check` and `recover` report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """What `check` found, with its exit code: 0 clean, 3 recover settles it, 4 a person is needed."""

    CLEAN = "clean"
    DRIFTED = "drifted"
    """Nothing is pending, and a table is ahead of what is published: a person repairs it; the others are maintained."""
    PENDING = "pending"
    NEEDS_PERSON = "needs_person"

    @property
    def exit_code(self) -> int:
        return {"clean": 0, "drifted": 4, "pending": 3, "needs_person": 4}[self.value]

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in flight or left behind that other runs have to wait for. Pure."""
        return self in {CheckStatus.CLEAN, CheckStatus.DRIFTED}


class SidecarClass(StrEnum):
    """What a read-write open by the engine would do with a recovery sidecar."""

    ROLL_FORWARD = "roll_forward"
    ROLL_BACK = "roll_back"
    STALE = "stale"
    ORPHANED_BRANCH = "orphaned_branch"
    NEEDS_REVIEW = "needs_review"


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFinding:
    """One recovery sidecar and what can be done about it."""

    operation_id: str
    path: str
    writer_kind: str
    branch: str | None
    table_keys: tuple[str, ...]
    started_at_us: int | None
    classification: SidecarClass
    recoverable: bool
    """Whether `recover` may finish it: single-pin Optimize sidecars only."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFinding:
    """A table whose Lance HEAD is not its pin, or cannot be read."""

    table_key: str
    manifest_version: int
    lance_head_version: int
    """0 where it cannot be read."""
    covered: bool
    """A recovery sidecar names this table."""
    recoverable: bool = False
    """Only commits of this tool moved it, proven to change no row: `recover` publishes them. Or only deletes that the
    engine committed and never published: `recover` rolls them back."""
    problem: str | None = None
    """Why the HEAD cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What stands between this graph and maintenance."""

    uri: str
    stamp: int
    status: CheckStatus
    sidecars: tuple[SidecarFinding, ...]
    staging_files: tuple[str, ...]
    schema_apply_lock: bool
    drift: tuple[DriftFinding, ...]
    advice: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOutcome:
    """What `recover` did with one sidecar, or with one table that is ahead of its pin without one."""

    operation_id: str
    table_key: str
    action: str
    """`rolled_forward`, `rolled_back`, `stale`, `deferred` (too young), `left_to_engine`; `relinked` of a lineage."""
    from_version: int | None = None
    to_version: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverReport:
    """All sidecars that `recover` looked at."""

    uri: str
    outcomes: tuple[RecoveryOutcome, ...]
    status: CheckStatus
    """The state afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockReport:
    """What `unlock` found, and with `confirm` removed."""

    uri: str
    confirm: bool
    locked: bool
    """A schema-apply lock was there."""
