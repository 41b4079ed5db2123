"""Put the published rows of a table on top of commits that were never published, and publish that.

Where such a commit was published by mistake, these are the rows that were there before it. Only where every one of
these commits is known: whoever calls this says by which.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from omnigraph_ops.coordination.lease import LeaseKeeper
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import name_after, read_manifest
from omnigraph_ops.graph.layout import chain_folder
from omnigraph_ops.graph.publish import version_update
from omnigraph_ops.graph.sidecars import SidecarPin
from omnigraph_ops.graph.state import BranchState, TableEntry, TableUpdate
from omnigraph_ops.lance.commits import drafted, restored
from omnigraph_ops.lance.evidence import other_rows
from omnigraph_ops.lance.gateway import DatasetMissing, live_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlaid:
    """A table, and the version up to which everything above its published one is known."""

    entry: TableEntry
    head: int
    base: int
    """The version whose rows are put on top."""

    @classmethod
    def at(cls, graph: Graph, entry: TableEntry) -> Self:
        """A table up to its newest version. Reads."""
        return cls(entry=entry, head=int(graph.open_newest(entry).version), base=entry.version)

    @classmethod
    def of_pin(cls, graph: Graph, state: BranchState, pin: SidecarPin) -> Self | None:
        """The table of a sidecar as its branch publishes it; None where it publishes another one. Reads."""
        entry = state.get(pin.table_key)
        if entry is None or (entry.identity, entry.branch) != (pin.identity, state.branch):
            return None
        return cls.at(graph, entry)

    @property
    def chain(self) -> str:
        """The folder of its versions, relative to the graph."""
        return chain_folder(self.entry.path, self.entry.branch)

    @property
    def is_ahead(self) -> bool:
        """Whether there is a version after that one."""
        return self.head > self.base


def put_back(
    graph: Graph, tables: Sequence[Overlaid], *, operation: str, keeper: LeaseKeeper
) -> tuple[TableUpdate, ...] | None:
    """Restore the rows of the bases of tables; None where another writer came before. Writes.

    A repetition after a kill begins anew: what is there already has the same rows.

    Returns:
        What the caller publishes: what is put on top first, one for each table.
    """
    updates, below = list[TableUpdate](), list[TableUpdate]()
    for table in tables:
        version = restore_published(graph, table, operation, keeper)
        if version is None:
            return None
        rows = live_rows(graph.open_version(table.entry, table.base))
        updates.append(version_update(graph, table.entry, version, rows=rows))
        below += () if graph.format.compares_heads else _below(graph, table, version)
    keeper.assert_held()
    return (*updates, *below)


def _below(graph: Graph, table: Overlaid, version: int) -> Iterator[TableUpdate]:
    """The updates that publish the versions between, so that a writer that is alive cannot publish them. Reads."""
    for number in range(table.entry.version + 1, version):
        with contextlib.suppress(DatasetMissing):  # after a cleanup
            rows = live_rows(graph.open_version(table.entry, number))
            yield version_update(graph, table.entry, number, rows=rows)


def restore_published(graph: Graph, table: Overlaid, operation: str, keeper: LeaseKeeper) -> int | None:
    """Commit the rows of the base on exactly the version that is known; None if there is another. Writes."""
    chain = table.chain
    last, base = (read_manifest(graph.storage, chain, version) for version in (table.head, table.base))
    with drafted(last, name_after(last), restored(table.base), mark=operation, beside=(base,)) as draft:
        if other_rows(graph.open_version(table.entry, table.base), draft.dataset) is not None:
            return None
        graph.storage.write(f"{chain}/_transactions/{draft.transaction_name}", draft.transaction)
        keeper.assert_held()
        made = graph.storage.create(f"{chain}/_versions/{draft.manifest.name}", draft.manifest.content)
        return draft.manifest.version if made else None
