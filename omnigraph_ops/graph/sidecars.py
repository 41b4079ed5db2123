"""Recovery sidecars: the engine's durable record of a write in flight, and the audit of those that were finished."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from omnigraph_ops import serde
from omnigraph_ops.errors import InvalidInput, OperatorNeeded
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import EXPIRY_BRANCH_PREFIX, RECOVERIES_DIR, RECOVERY_DIR, is_ulid, made_at_us, now_us
from omnigraph_ops.graph.schema import TableIdentity
from omnigraph_ops.graph.state import RECOVERIES_SCHEMA, TableEntry
from omnigraph_ops.lance.gateway import Dataset, DatasetMissing, LanceFailure, lance_errors
from omnigraph_ops.storage.location import locate
from omnigraph_ops.storage.store import Storage


def engine_root(graph: Graph, entry: TableEntry) -> str:
    """The root to write into a sidecar: the setting, else the absolute path we opened. Reads links.

    Raises:
        OperatorNeeded: the last publish spelled this very directory differently, so an engine that
            opens it that way would refuse our sidecar; set `engine_root` to its spelling.
        InvalidInput: the setting names another directory.
    """
    chosen = chosen_root(graph)
    if chosen is not None:
        return chosen
    recorded = recorded_root(graph, entry)
    if recorded is not None and recorded != graph.uri and _leads_here(graph, recorded):
        raise OperatorNeeded(
            f"{entry.table_key} was last published under the root {recorded!r}, not {graph.uri!r}; nothing was "
            "written; set OMNIGRAPH_OPS_ENGINE_ROOT to the spelling that the engine opens this graph with"
        )
    return graph.uri


def chosen_root(graph: Graph) -> str | None:
    """The setting, None when there is none. Reads links.

    Raises:
        InvalidInput: it names another place, or no engine spells a root like that.
    """
    chosen = graph.settings.engine_root
    if chosen is None:
        return None
    place, spelled = locate(chosen), chosen.rstrip("/")
    if place.is_local and "://" in chosen:
        raise InvalidInput(f"engine_root {chosen!r} is a URI, of which engines keep the path; nothing was written")
    both_local = place.is_local and graph.storage.is_local
    if not (_leads_here(graph, spelled) if both_local else place.root == graph.uri):
        raise InvalidInput(f"engine_root {chosen!r} is not the directory {graph.uri!r}; nothing was written")
    return spelled if place.is_local else place.root


def recorded_root(graph: Graph, entry: TableEntry) -> str | None:
    """The root in the entry's version metadata, None where it cannot be told (S3, odd paths). Pure."""
    path = entry.manifest_path
    if path is None or not graph.storage.is_local:
        return None
    root, found, _ = path.partition(f"/{entry.path}/")
    if not found:
        return None
    return graph.format.recorded_local_root(root)


def _leads_here(graph: Graph, spelled: str) -> bool:
    """Whether an engine may open this directory under a path. Reads links.

    A relative one leads here from a directory that only its engine knows. A copy or a moved graph keeps paths of its
    old home: no engine reaches *this* directory through them, so they do not count.
    """
    return not os.path.isabs(spelled) or (os.path.exists(spelled) and os.path.samefile(spelled, graph.uri))


WRITER_KINDS = frozenset({"Mutation", "Load", "SchemaApply", "BranchMerge", "EnsureIndices", "Optimize"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarPin:
    """One table version that a writer is about to move."""

    table_key: str
    table_path: str
    """Full dataset URI, in the spelling of the process that armed it."""
    expected_version: int
    post_commit_pin: int
    confirmed_version: int | None = None
    table_branch: str | None = None
    identity: TableIdentity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageIntent:
    """The graph commit that a writer publishes its tables with."""

    graph_commit_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAuthority:
    """What a writer found before it armed; it publishes only where that is still so."""

    graph_head: str | None = None
    """The newest graph commit of its branch, None where the branch has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTransaction:
    """A Lance transaction that a writer made up before it armed."""

    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeEffect:
    """What a merge is about to commit to one table."""

    planned_transactions: tuple[PlannedTransaction, ...] = ()
    source_fork_version: int | None = None
    """Where it makes the Lance branch of the target, if it does."""
    source_version: int | None = None
    """The same, where it commits nothing to that branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEffect:
    """What a writer is about to commit to one table."""

    planned_transaction: PlannedTransaction | None = None
    kind: MergeEffect | None = None
    """Of a merge."""
    identity: TableIdentity | None = None
    source_fork_version: int | None = None
    """Where an index build makes the Lance branch, if it does."""

    @property
    def fork_version(self) -> int | None:
        """The version at which it makes a Lance branch, as far as it says."""
        made_by_merge = self.kind and (self.kind.source_fork_version or self.kind.source_version)
        return made_by_merge or self.source_fork_version

    @property
    def transactions(self) -> frozenset[str]:
        """The ids of the transactions."""
        planned = self.kind.planned_transactions if self.kind is not None else ()
        return frozenset(t.uuid for t in (*planned, self.planned_transaction) if t is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedFile:
    """The manifest file of a version, as its writer found it."""

    e_tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedVersion:
    """The version of a table that a writer is about to publish."""

    table_version: int
    table_branch: str | None = None
    version_metadata: ConfirmedFile = ConfirmedFile()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSlot:
    """One table of what a writer publishes."""

    table_key: str
    identity: TableIdentity
    confirmed: ConfirmedVersion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntendedDelta:
    """All that a writer publishes."""

    table_updates: tuple[DeltaSlot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOutcome:
    """What happened to one table of a sidecar."""

    table_key: str
    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactWrite:
    """What a load, mutation, merge or index build of stamp 6 announces beside its tables."""

    lineage: LineageIntent
    rollback_graph_commit_id: str
    effect_phase: str
    """`Armed`, from its commits to the tables on `EffectsConfirmed`."""
    authority: WriteAuthority = WriteAuthority()
    effects: tuple[PlannedEffect, ...] = ()
    intended_delta: IntendedDelta = IntendedDelta()
    rollback_audit_outcomes: tuple[AuditOutcome, ...] | None = None
    """Noted by who rolls it back, before that is published."""

    @property
    def transactions(self) -> frozenset[str]:
        """The ids of all transactions that it announces."""
        return frozenset[str]().union(*(effect.transactions for effect in self.effects))

    def forks_at(self, pin: SidecarPin) -> int:
        """The version at which it makes the Lance branch of a table. Pure."""
        said = (effect.fork_version for effect in self.effects if effect.identity == pin.identity)
        return next(filter(None, said), pin.expected_version)

    @property
    def is_unconfirmed(self) -> bool:
        """Whether its sidecar says that not all of its commits are known to have landed."""
        return self.effect_phase == "Armed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """A parsed sidecar; keys this tool does not use are ignored, as the engine does."""

    schema_version: int
    operation_id: str
    started_at: str
    writer_kind: str
    tables: tuple[SidecarPin, ...]
    branch: str | None = None
    actor_id: str | None = None
    protocol_v3: ExactWrite | None = None
    protocol_v4: ExactWrite | None = None
    protocol_v8: ExactWrite | None = None

    @property
    def started_at_us(self) -> int | None:
        return int(self.started_at) if self.started_at.isdecimal() else None

    @property
    def names_a_table_twice(self) -> bool:
        """Whether the engine would refuse it for that."""
        return len({pin.table_key for pin in self.tables}) < len(self.tables)

    @property
    def exact_write(self) -> ExactWrite | None:
        """What it announces beside its tables; None for `Optimize`, a schema apply, and all of stamp 3."""
        return self.protocol_v3 or self.protocol_v4 or self.protocol_v8

    @property
    def is_of_row_expiry(self) -> bool:
        """Whether it is about a branch of row expiry alone: nobody reads that, and the run that made it starts anew."""
        name = self.branch or ""
        return name.startswith(EXPIRY_BRANCH_PREFIX) and all(pin.table_branch == name for pin in self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFile:
    """A file below `__recovery/`: parsed, or the reason why it cannot be."""

    path: str
    sidecar: Sidecar | None
    problem: str | None = None


def sidecar_path(operation_id: str) -> str:
    """The graph-relative path of a sidecar. Pure."""
    return f"{RECOVERY_DIR}/{operation_id}.json"


def list_sidecars(storage: Storage, newest_version: int) -> tuple[SidecarFile, ...]:
    """Every `*.json` below `__recovery/`, in name (= time) order; one that vanishes is skipped. Reads."""
    found = []
    for name in storage.list(RECOVERY_DIR):
        if not name.endswith(".json"):
            continue
        file = read_sidecar(storage, f"{RECOVERY_DIR}/{name}", newest_version)
        found += [file] if file is not None else []
    return tuple(found)


def read_sidecar(storage: Storage, path: str, newest_version: int) -> SidecarFile | None:
    """One sidecar as it is stored right now, None when it is gone. Reads."""
    try:
        return _parse(path, storage.read(path), newest_version)
    except FileNotFoundError:
        return None


def sidecar_names(storage: Storage) -> frozenset[str]:
    """Names of the sidecar files alone: the cheap look before and after arming. Reads."""
    return frozenset(name for name in storage.list(RECOVERY_DIR) if name.endswith(".json"))


def write_sidecar(graph: Graph, entry: TableEntry, operation_id: str, root: str) -> str:
    """Arm: put one single-pin Optimize sidecar for `entry` under the engine's `root`. Writes, atomically."""
    document = graph.format.sidecar(entry, f"{root}/{entry.path}", operation_id, now_us())
    path = sidecar_path(operation_id)
    graph.storage.write(path, json.dumps(document, indent=2, ensure_ascii=False).encode())
    return path


def _parse(path: str, raw: bytes, newest_version: int) -> SidecarFile:
    try:
        sidecar = serde.from_json(Sidecar, raw)
    except InvalidInput as error:
        return SidecarFile(path=path, sidecar=None, problem=str(error))
    problem = _problem(path, sidecar, newest_version)
    return SidecarFile(path=path, sidecar=None if problem else sidecar, problem=problem)


def _problem(path: str, sidecar: Sidecar, newest_version: int) -> str | None:
    """Why nobody but its writer may settle a sidecar, None when this tool knows its kind. Pure."""
    if sidecar.schema_version > newest_version:
        return (
            f"schema_version={sidecar.schema_version} is newer than the maximum {newest_version}: the omnigraph that "
            "wrote it settles it"
        )
    if sidecar.writer_kind not in WRITER_KINDS:
        return f"unknown writer_kind {sidecar.writer_kind!r}: the omnigraph that wrote it settles it"
    return None if path == sidecar_path(sidecar.operation_id) else "operation_id differs from the file name"


ROLLED_FORWARD = "RolledForward"
ROLLED_BACK = "RolledBack"


def append_audit(
    graph: Graph,
    sidecar: Sidecar,
    *,
    commit_id: str,
    kind: str,
    outcomes: tuple[AuditOutcome, ...],
    created_at_us: int,
) -> None:
    """Append the audit row unless this operation already has one of that kind. Writes."""
    dataset = open_audit(graph)
    with lance_errors("read the recovery audit"):
        known = dataset.to_table(columns=["operation_id", "recovery_kind"]).to_pylist()
    if any(r["operation_id"] == sidecar.operation_id and r["recovery_kind"] == kind for r in known):
        return
    row = {
        "graph_commit_id": commit_id,
        "recovery_kind": kind,
        "recovery_for_actor": sidecar.actor_id,
        "operation_id": sidecar.operation_id,
        "sidecar_writer_kind": sidecar.writer_kind,
        "per_table_outcomes_json": json.dumps([asdict(o) for o in outcomes], separators=(",", ":"), ensure_ascii=False),
        "created_at": datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(microseconds=created_at_us),
    }
    graph.lance.strip_auto_cleanup(dataset)
    graph.lance.append(dataset, pa.Table.from_pylist([row], schema=RECOVERIES_SCHEMA))


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBackWrite:
    """A write that the audit calls rolled back; both times in microseconds since the epoch."""

    armed_at_us: int
    """By the clock of the writer, to the millisecond."""
    judged_at_us: int
    """By the clock of the process that rolled it back."""


def rolled_back(graph: Graph, *kinds: str) -> tuple[RolledBackWrite, ...]:
    """The writes of these kinds that were rolled back, by the engine or by this tool; raises as `rollbacks`. Reads."""
    return tuple(
        RolledBackWrite(
            armed_at_us=made_at_us(row["operation_id"]),
            judged_at_us=round(row["created_at"].replace(tzinfo=UTC).timestamp() * 1_000_000),
        )
        for row in rollbacks(graph, "operation_id", "sidecar_writer_kind", "created_at")
        if row["sidecar_writer_kind"] in kinds and is_ulid(row["operation_id"])
    )


def rollbacks(graph: Graph, *columns: str) -> tuple[dict[str, Any], ...]:
    """These cells of every row of the recovery audit about a rollback. Reads.

    Raises:
        LanceFailure: the audit cannot be read.
    """
    try:
        dataset = graph.open_at(RECOVERIES_DIR)
    except DatasetMissing:
        return ()  # nothing was ever recovered
    with lance_errors("read the recovery audit"):
        rows = dataset.to_table(columns=["recovery_kind", *columns]).to_pylist()
    return tuple(row for row in rows if row["recovery_kind"] == ROLLED_BACK)


def open_audit(graph: Graph) -> Dataset:
    """The recovery audit, made where there is none; `LanceFailure` where it cannot be read. Writes then."""
    with contextlib.suppress(DatasetMissing):
        return graph.open_at(RECOVERIES_DIR)
    # Two recoveries may create it at once; the loser opens what the winner made.
    with contextlib.suppress(LanceFailure):
        return graph.lance.create(graph.storage.uri(RECOVERIES_DIR), RECOVERIES_SCHEMA.empty_table())
    return graph.open_at(RECOVERIES_DIR)
