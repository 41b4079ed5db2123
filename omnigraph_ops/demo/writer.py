"""Write a demo graph: its schema files, its tables, and every publish of its history."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

from omnigraph_ops.demo import tables
from omnigraph_ops.demo.contract import DemoContract, DemoTable, contract
from omnigraph_ops.demo.publisher import Publisher, Publisher3, Publisher6, TableVersion, table_version
from omnigraph_ops.demo.spec import DemoSpec, DemoSummary, TableSummary, check_spec, demo_types
from omnigraph_ops.demo.tables import branch_rows, deleted_ids, load_rows, updated_rows
from omnigraph_ops.errors import InvalidInput, StorageError, reason_of
from omnigraph_ops.graph.layout import RECOVERY_DIR, SCHEMA_IR_FILE, SCHEMA_SOURCE_FILE, SCHEMA_STATE_FILE, encode_ulid
from omnigraph_ops.graph.opening import backup_around
from omnigraph_ops.outcomes.backups import graph_around
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.quantities import count
from omnigraph_ops.storage.location import locate
from omnigraph_ops.storage.store import Storage

_DOMAIN_MS = 1_795_000_000_000
_WRITTEN_TABLE = "node:Person"
TEXT_RELEASES = {3: "8.0.1", 6: "10.0.0"}
"""Which pylance takes words apart as the engine of a stamp does."""


def write_demo_graph(root: str | os.PathLike[str], spec: DemoSpec, *, progress: Progress = SILENT) -> DemoSummary:
    """Write a graph of either stamp that the real engine opens, loads into and optimizes. Writes.

    Raises:
        InvalidInput: the directory cannot be taken, or the spec cannot be satisfied; nothing was written.
        StorageError: the directory cannot be written, as on a full disk.
    """
    check_spec(spec)
    path = locate(os.fspath(root)).root
    _refuse_place(path)
    types = demo_types(spec)
    domain = encode_ulid(_DOMAIN_MS, random.Random(f"{spec.seed}:domain").getrandbits(80))
    built = contract(types, spec.stamp, domain)
    if unknown := sorted(set(spec.drift_tables) - {t.key for t in built.tables}):
        known = ", ".join(sorted(t.key for t in built.tables))
        raise InvalidInput(
            f"a demo graph with these types has no table {', '.join(unknown)}; it has {known}; nothing was written"
        )
    publisher: Publisher = Publisher3(root=path) if spec.stamp == 3 else Publisher6(root=path)
    history = _History(
        root=path,
        spec=spec,
        tables=built.tables,
        publisher=publisher,
        progress=progress,
    )
    try:
        _write_contract(Path(path), "".join(f"{t.source()}\n" for t in types), built)
        return history.write()
    except OSError as error:
        rest = f"; delete {path} before you write it again" if os.path.exists(path) else ""
        raise StorageError(f"{path} cannot be written: {reason_of(error)}; no graph was made{rest}") from error


def _refuse_place(path: str) -> None:
    """Refuse a place that is not new or empty, or is not on this machine, or is inside a graph or backup. Reads."""
    place = Storage(path)
    if not place.is_local:
        raise InvalidInput(f"{path} is not on this machine; a demo graph is only written to a local directory")
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        state = "not empty" if os.path.isdir(path) else "a file"
        raise InvalidInput(
            f"{path} is {state}; nothing was written; a demo graph is only written to a new or empty directory"
        )
    if (around := graph_around(place, itself=False) or backup_around(place)) is not None:
        raise InvalidInput(f"{path} is inside {around}, a graph or a backup; nothing was written; write it elsewhere")


def _write_contract(root: Path, source: str, built: DemoContract) -> None:
    # The engine leaves an empty recovery folder behind after its first load.
    (root / RECOVERY_DIR).mkdir(parents=True)
    for name, text in (
        (SCHEMA_SOURCE_FILE, source),
        (SCHEMA_IR_FILE, built.ir_json),
        (SCHEMA_STATE_FILE, built.state_json),
    ):
        (root / name).write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """The events of a demo graph, in order."""

    root: str
    spec: DemoSpec
    tables: tuple[DemoTable, ...]
    publisher: Publisher
    progress: Progress

    def write(self) -> DemoSummary:
        """Every event, then what main publishes. Writes."""
        self._create()
        branches: tuple[str, ...] = ()
        for load in range(self.spec.loads):
            # Made before the last load, so that branches pin versions that main has left behind.
            if load and load == self.spec.loads - 1:
                branches = self._branch()
            self._load(load)
        if self.spec.loads <= 1:
            branches = self._branch()
        self._update()
        self._delete()
        summary = self._summary(branches)
        self._drift()
        return summary

    def _create(self) -> None:
        self.progress(f"creating {count(len(self.tables), 'empty table')}")
        empty = [tables.create_table(self.root, table, self.spec.stamp) for table in self.tables]
        self.publisher.create(
            tuple(table_version(table, dataset) for table, dataset in zip(self.tables, empty, strict=True))
        )

    def _load(self, load: int) -> None:
        self.progress(f"load {load + 1} of {self.spec.loads}")
        self.publisher.publish(tuple(self._load_table(table, load) for table in self.tables))

    def _load_table(self, table: DemoTable, load: int) -> TableVersion:
        rows = load_rows(table.type, self.spec, load)
        dataset = tables.append(tables.open_table(self.root, table), rows)
        if load + 1 == self.spec.index_after_load:
            tables.build_indexes(dataset, table.type, TEXT_RELEASES[self.spec.stamp])
        return table_version(table, tables.open_table(self.root, table))

    def _branch(self) -> tuple[str, ...]:
        lazy = tuple(f"lazy-{n + 1}" for n in range(self.spec.lazy_branches))
        for name in lazy:
            self.publisher.create_branch(name)
        written = tuple(f"review/hires-{n + 1}" for n in range(self.spec.written_branches))
        for number, name in enumerate(written):
            self.progress(f"writing on branch {name}")
            self.publisher.create_branch(name)
            self._write_on_branch(name, number)
        return lazy + written

    def _write_on_branch(self, name: str, number: int) -> None:
        table = self._table(_WRITTEN_TABLE)
        main = tables.open_table(self.root, table)
        fork = main.create_branch(name, main.version)
        tables.append(fork, branch_rows(table.type, self.spec, number))
        written = main.checkout_version((name, None))
        self.publisher.publish((table_version(table, written, name),), name)

    def _update(self) -> None:
        if not self.spec.updates:
            return
        self.progress(f"updating {self.spec.updates} people")
        table = self._table(_WRITTEN_TABLE)
        tables.merge(tables.open_table(self.root, table), updated_rows(table.type, self.spec))
        self.publisher.publish((table_version(table, tables.open_table(self.root, table)),))

    def _delete(self) -> None:
        if not self.spec.deletes:
            return
        self.progress(f"deleting {count(self.spec.deletes, 'row')} per node table")
        nodes = [table for table in self.tables if table.type.ends is None]
        edges = [table for table in self.tables if table.type.ends is not None]
        ids = [(table, deleted_ids(table.type, self.spec)) for table in nodes]
        gone = tuple(value for _, own in ids for value in own)
        changed = [table for table, own in ids if self._delete_from(table, ("id",), own)]
        # The engine takes the edges of a deleted node with it.
        changed += [table for table in edges if self._delete_from(table, ("src", "dst"), gone)]
        self.publisher.publish(tuple(table_version(table, tables.open_table(self.root, table)) for table in changed))

    def _delete_from(self, table: DemoTable, columns: tuple[str, ...], ids: tuple[str, ...]) -> bool:
        return tables.delete_ids(tables.open_table(self.root, table), columns, ids)

    def _drift(self) -> None:
        for key in self.spec.drift_tables:
            self.progress(f"moving {key} past its pin by {self.spec.drift_kind}")
            dataset = tables.open_table(self.root, self._table(key))
            tables.move_past_pin(dataset, key, self.spec.drift_kind)

    def _table(self, key: str) -> DemoTable:
        return next(table for table in self.tables if table.key == key)

    def _summary(self, branches: tuple[str, ...]) -> DemoSummary:
        return DemoSummary(
            root=self.root,
            stamp=self.spec.stamp,
            tables=tuple(self._table_summary(table) for table in self.tables),
            branches=branches,
        )

    def _table_summary(self, table: DemoTable) -> TableSummary:
        dataset = tables.open_table(self.root, table)
        return TableSummary(
            table_key=table.key,
            path=table.path,
            version=dataset.version,
            rows=dataset.count_rows(),
            fragments=len(dataset.get_fragments()),
        )
