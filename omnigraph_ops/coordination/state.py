"""Every place below `__maintenance/` of a graph: what lies there, who removes it, and how its small files are kept.

All modules take their paths from here, and the classification of orphans asks `kept_by`. Deleting the whole folder
never harms the graph: history, approvals and running work are lost, and holds are only tags from then on.

Those small files are one JSON value each, put whole, with one answer to a file that cannot be read. A kind of file is
declared once, beside its type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from omnigraph_ops import serde
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.layout import MAINTENANCE_DIR, RECOVERY_DIR, RESTORING_PATH

if TYPE_CHECKING:
    from omnigraph_ops.storage.store import Storage


AUDIT_DIR = f"{MAINTENANCE_DIR}/audit"
CLONES_DIR = f"{MAINTENANCE_DIR}/clones"
CONSENTS_DIR = f"{MAINTENANCE_DIR}/consents"
EXPIRE_ROWS_LEASE_PATH = f"{MAINTENANCE_DIR}/expire-rows"
FENCE_PATH = f"{MAINTENANCE_DIR}/fence.json"
FENCES_DIR = f"{MAINTENANCE_DIR}/fences"
FREEZES_DIR = f"{MAINTENANCE_DIR}/freezes"
HISTORY_PATH = f"{MAINTENANCE_DIR}/history.lance"
HOLDS_DIR = f"{MAINTENANCE_DIR}/holds"
INGEST_DIR = f"{MAINTENANCE_DIR}/ingest"
LEASE_PATH = f"{MAINTENANCE_DIR}/lease"
OPERATIONS_DIR = f"{MAINTENANCE_DIR}/operations"
PLANS_DIR = f"{MAINTENANCE_DIR}/plans"
PROBE_PREFIX = f"{MAINTENANCE_DIR}/probe-"
QUARANTINE_DIR = f"{MAINTENANCE_DIR}/quarantine"
REMOVALS_DIR = f"{MAINTENANCE_DIR}/removals"
RESTORE_LEASE_PATH = f"{MAINTENANCE_DIR}/restore-turn"
RESULTS_DIR = f"{MAINTENANCE_DIR}/results"
REWRITES_DIR = f"{MAINTENANCE_DIR}/rewrites"
RUNS_DIR = f"{MAINTENANCE_DIR}/runs"
TASKS_DIR = f"{MAINTENANCE_DIR}/tasks"
THROTTLE_DIR = f"{MAINTENANCE_DIR}/throttle"

LEASE_FILE = r"-(0\d{19})\.json"
"""Pattern of what follows the path of a lease in the name of its files. There is always a next number."""


class Kept(StrEnum):
    """Until when `orphans` leaves a file alone."""

    ALWAYS = "always"
    """Only who is named beside it in `PLACES` removes it."""
    BY_HOLD = "by_hold"
    """As long as the hold in its path counts."""
    BY_TABLE = "by_table"
    """As long as the table in its path is live."""
    NEVER = "never"
    """It is left over as soon as `orphans` may run."""


_ULID = r"[0-7][0-9A-HJKMNP-TV-Z]{25}"
_JSON = r"[^/]+\.json"

PLACES = (
    # Pattern of the path in the graph, and what keeps a file: the group `hold` or `table` of the path names it. Behind
    # each: what lies there, and who removes it.
    (rf"{QUARANTINE_DIR}/(?s:.+)", Kept.ALWAYS),  # orphan moved aside; orphans --purge or --restore
    (rf"{HISTORY_PATH}/(?s:.+)", Kept.ALWAYS),  # history; whoever adds to it
    (rf"{LEASE_PATH}{LEASE_FILE}", Kept.ALWAYS),  # committer lease; the next holder
    (rf"{EXPIRE_ROWS_LEASE_PATH}{LEASE_FILE}", Kept.ALWAYS),  # lease of expire-rows; the next holder
    (rf"{RESTORE_LEASE_PATH}{LEASE_FILE}", Kept.ALWAYS),  # lease of restore; the next holder
    (rf"{RUNS_DIR}/lease{LEASE_FILE}", Kept.ALWAYS),  # lease of who settles runs; the next holder
    (rf"{FENCES_DIR}/[0-9a-f]{{32}}\.json", Kept.ALWAYS),  # note of a fence; its holder, unlock, the next fence
    (re.escape(FENCE_PATH), Kept.ALWAYS),  # note of a fence of 0.3.2 and earlier; the same
    (re.escape(RESTORING_PATH), Kept.ALWAYS),  # note of a restore at work; restore
    (rf"{PROBE_PREFIX}[0-9a-f]{{32}}", Kept.NEVER),  # probe of the store; the process that tries it, orphans
    # operation whose sidecar is ours; its process, whoever sweeps, orphans. Nothing is planned beside a sidecar
    (rf"{OPERATIONS_DIR}/{_ULID}\.json", Kept.NEVER),
    (rf"{OPERATIONS_DIR}/{_JSON}", Kept.ALWAYS),  # operation with a name of another release; a person
    (rf"{HOLDS_DIR}/(?P<hold>[^/]+)\.json", Kept.BY_HOLD),  # hold; its owner, or whoever sweeps (litter.py)
    (
        rf"{FREEZES_DIR}/(?P<hold>{_ULID})/[^/]+",
        Kept.BY_HOLD,
    ),  # contract of a freeze; unfreeze, or whoever sweeps
    # clone on which index work is prepared; its process, or whoever sweeps
    (rf"{CLONES_DIR}/(?P<hold>{_ULID})\.lance/.+", Kept.BY_HOLD),
    (rf"{REMOVALS_DIR}/{_JSON}", Kept.ALWAYS),  # announced removal of versions; cleanup, or whoever sweeps
    (rf"{PLANS_DIR}/{_JSON}", Kept.ALWAYS),  # sealed plan; the next plan, when expired
    # files of a plan that Spark made; the next such plan, a week after it was made
    (rf"{PLANS_DIR}/{_ULID}/[a-z]+-\d+-\d+\.[0-9a-f]{{32}}\.parquet", Kept.ALWAYS),
    (rf"{CONSENTS_DIR}/{_JSON}", Kept.ALWAYS),  # consent to a plan; the next question, when expired
    (rf"{AUDIT_DIR}/{_JSON}", Kept.ALWAYS),  # entry of the audit log; a person
    (rf"{INGEST_DIR}/{_JSON}", Kept.ALWAYS),  # what a run left of a table; optimize
    (rf"{THROTTLE_DIR}/{_JSON}", Kept.ALWAYS),  # admission of rewrites; the next task
    # journal of a rewrite; optimize of the table
    (rf"{REWRITES_DIR}/(?P<table>[^/]+)/(?:lease{LEASE_FILE}|[^/]+/(?:plan|task-\d+\.[0-9a-f]+)\.json)", Kept.BY_TABLE),
    (rf"{RESULTS_DIR}/[^/]+/{_JSON}", Kept.NEVER),  # result of a submitted rewrite; the task that submitted it, orphans
    # journal of a run of the shell; its process, the next run
    (rf"{RUNS_DIR}/[0-9A-Z]{{26}}/(?:intent|record|\d{{6,}})\.json", Kept.ALWAYS),
    # journal of the tasks of a DAG run; the next DAG run
    (rf"{TASKS_DIR}/[0-9a-f]{{32}}/(?:recorded\.json|[0-9A-Z]{{26}}/(?:intent|left|\d{{6,}})\.json)", Kept.ALWAYS),
)

_HALF_WRITTEN = re.compile(
    rf"(?:{RECOVERY_DIR}|{MAINTENANCE_DIR}(?:/[a-z_-]+|/plans/{_ULID}|/(?:runs|results)/[^/]+"
    r"|/(?:rewrites|tasks)/[^/]+(?:/[^/]+)?)?)"
    r"/[^/]+(?:\.tmp|#\d+)"
)


def kept_by(path: str) -> tuple[Kept, str] | None:
    """What keeps a file, and the hold or table that its path names for that; None for no file of this tool. Pure."""
    if not path.startswith(f"{MAINTENANCE_DIR}/"):
        return None
    for pattern, kept in PLACES:
        match = re.fullmatch(pattern, path)
        if match is not None:
            return kept, next(iter(match.groupdict().values()), "")
    return None


def is_unfinished(path: str) -> bool:
    """Whether a path is a small file, ours or a sidecar, that was not given its final name. Pure."""
    return _HALF_WRITTEN.fullmatch(path) is not None


T = TypeVar("T")
Unreadable = Callable[[str, InvalidInput], None]
"""Called with the path of a file that cannot be read, and why: it raises, or the file counts as not there."""
_SUFFIX = ".json"


def as_missing(_path: str, _error: InvalidInput) -> None:
    """Let a file that cannot be read count as one that is not there. Pure."""


def refuse(_path: str, error: InvalidInput) -> None:
    """Let whoever reads a file that cannot be read hear why. Pure."""
    raise error


_NEWEST = 1
"""Of the versions of their schemas, which files of this release do not name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """The one field of any file that tells how to read the others."""

    schema_version: int = 1


class Records(Generic[T]):
    """One kind of file; `cls` is a frozen dataclass, the paths are below the graph."""

    def __init__(self, cls: type[T], *, unreadable: Unreadable = as_missing) -> None:
        """Declare a kind of file.

        Args:
            unreadable: what happens where a file is damaged, or from a release that writes a later version.
        """
        self._cls, self._unreadable = cls, unreadable

    def read(self, storage: Storage, path: str) -> T | None:
        """The value in a file, None where there is none. Reads.

        Raises:
            OpsError: it cannot be read, and that is no matter of course for this kind.
        """
        try:
            data = storage.read(path)
        except FileNotFoundError:
            return None
        try:
            written = _version_of(data)
            if written > _NEWEST:
                raise InvalidInput(f"a later release wrote it, with version {written} of its schema")
            return serde.from_json(self._cls, data)
        except InvalidInput as error:
            self._unreadable(path, error)
            return None

    def write(self, storage: Storage, path: str, value: T, *, clean: Callable[[str], str] | None = None) -> None:
        """Put a file whole, in place of the one that is there; `clean` takes secrets out of its texts. Writes."""
        said = value if clean is None else _cleaned(serde.to_json(value), clean)
        storage.write(path, serde.dumps(said).encode())

    def create(self, storage: Storage, path: str, value: T) -> bool:
        """Put a file where there is none; whether it was put. Writes."""
        return storage.create(path, serde.dumps(value).encode())

    def paths(self, storage: Storage, folder: str) -> list[str]:
        """Where the files of a folder are, by name. Reads."""
        return [f"{folder}/{name}" for name in storage.list(folder) if name.endswith(_SUFFIX)]

    def all(self, storage: Storage, folder: str) -> Iterator[tuple[str, T]]:
        """Every value of a folder with the path of its file, by name, each read when its turn comes. Reads."""
        for path in self.paths(storage, folder):
            value = self.read(storage, path)
            if value is not None:
                yield path, value


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """A JSON value with every text in it cleaned: of its spelling, quotes and escapes would be taken out, too. Pure."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item, clean) for item in value]
    return {name: _cleaned(of, clean) for name, of in value.items()} if isinstance(value, dict) else value


def _version_of(data: bytes) -> int:
    """By which version of its schema a file was written; what is damaged is told by reading the rest. Pure."""
    try:
        return serde.from_json(_Version, data).schema_version
    except InvalidInput:
        return 1
