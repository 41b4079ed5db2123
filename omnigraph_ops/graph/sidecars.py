"""Recovery sidecars: the engine's durable record of a write in flight, parsed, written and removed."""

from __future__ import annotations

import json
from dataclasses import dataclass

from omnigraph_ops import serde
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.catalog import TableIdentity
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.ids import now_us
from omnigraph_ops.graph.layout import RECOVERY_DIR
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.storage.store import Storage

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
class Sidecar:
    """A parsed sidecar; keys this tool does not use are ignored, as the engine does."""

    schema_version: int
    operation_id: str
    started_at: str
    writer_kind: str
    tables: tuple[SidecarPin, ...]
    branch: str | None = None
    actor_id: str | None = None

    @property
    def started_at_us(self) -> int | None:
        return int(self.started_at) if self.started_at.isdigit() else None


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
    if sidecar.schema_version > newest_version:
        problem = f"schema_version={sidecar.schema_version} is newer than the maximum {newest_version}"
        return SidecarFile(path=path, sidecar=None, problem=problem)
    if sidecar.writer_kind not in WRITER_KINDS:
        return SidecarFile(path=path, sidecar=None, problem=f"unknown writer_kind {sidecar.writer_kind!r}")
    if path != sidecar_path(sidecar.operation_id):
        return SidecarFile(path=path, sidecar=None, problem="operation_id differs from the file name")
    return SidecarFile(path=path, sidecar=sidecar)
