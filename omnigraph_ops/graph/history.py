"""Which Lance operations made the versions of a table after its pin."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.lance_manifest import UnreadableTransaction, VersionRecord, version_record
from omnigraph_ops.storage.store import Storage

# Operations that change no row: all that a maintenance unit may commit under its sidecar.
CONTENT_PRESERVING = frozenset({"UpdateConfig", "CreateIndex", "ReserveFragments", "Rewrite"})


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Operation names in version order, up to the first version that cannot be read."""

    operations: tuple[str, ...]
    problem: str | None = None
    records: tuple[VersionRecord, ...] = ()
    """The commits behind the operations, one each."""

    @property
    def preserves_content(self) -> bool:
        """Whether every version is known and none changed a row. Unknown is not. Pure."""
        return self.problem is None and CONTENT_PRESERVING.issuperset(self.operations)


def commits_after(storage: Storage, table_path: str, after: int, upto: int) -> tuple[VersionRecord, ...]:
    """The commits that made the versions `after + 1 ... upto` of a table's main chain. Reads.

    Raises:
        CorruptGraph: one of them cannot be read.
    """
    try:
        return tuple(version_record(storage, table_path, version) for version in range(after + 1, upto + 1))
    except UnreadableTransaction as error:
        raise CorruptGraph(f"{table_path}: {error}") from None


def history(storage: Storage, table_path: str, *, after: int, upto: int) -> History:
    """Operations of the versions `after + 1 ... upto` of a table's main chain. Reads."""
    records: list[VersionRecord] = []
    problem = None
    for version in range(after + 1, upto + 1):
        try:
            records.append(version_record(storage, table_path, version))
        except UnreadableTransaction as error:
            problem = str(error)
            break
    return History(operations=tuple(r.operation for r in records), problem=problem, records=tuple(records))
