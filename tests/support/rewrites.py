"""Rewrites that are interrupted, and what they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome
from omnigraph_ops.coordination.state import CLONES_DIR, REWRITES_DIR
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.versions import tracked_files
from omnigraph_ops.models.optimize import TableStats
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.stages.optimize.table_run import InProcessExecutor
from omnigraph_ops.storage.inventory import below_folder
from tests.support.leases import is_lease
from tests.support.writers import entry_of

TABLE = "node:Person"
GROUPS = 4
# Eight loads of ten rows, two loads to a group.
SPEC = {"node_types": 1, "loads": 8, "rows": 10}
IN_GROUPS = Settings(small_table_bytes=0, target_rows_per_fragment=20, lease_wait_seconds=5)


def clones(graph: Graph) -> set[str]:
    """The names of the clones that are there, whole or in part. Reads."""
    return {path.name for path in Path(graph.uri, CLONES_DIR).glob("*")}


class Died(BaseException):
    """The process of the rewrite is gone."""


class Counting(InProcessExecutor):
    """Counts what it executes; dies after `dies_after` results, or does something before it goes on."""

    def __init__(self, *, dies_after: int | None = None, then: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.dies_after, self.then = dies_after, then
        self.executed: list[int] = []

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        for order, outcome in zip(orders, super().execute(dataset, orders), strict=True):
            self.executed.append(order.index)
            yield outcome
            if self.dies_after is not None and len(self.executed) >= self.dies_after:
                raise Died
        if self.then is not None:
            act, self.then = self.then, None
            act()


def rewrite(graph: Graph, executor: Counting, said: list[str] | None = None) -> TableStats:
    """Optimize the table; what is said on the way goes to `said`. Writes."""
    return optimize_table(graph, TABLE, executor=executor, progress=Lines((said if said is not None else []).append))


def unreferenced(graph: Graph) -> set[str]:
    """Data files of the table that no version refers to. Reads."""
    entry = entry_of(graph, TABLE)
    stored = {f.path.rpartition("/")[2] for f in below_folder(graph.storage, f"{entry.path}/data") if not f.is_folder}
    head = graph.open_head(entry)
    used = {
        file.path
        for version in head.versions()
        for fragment in graph.lance.open(graph.table_uri(entry), version=version["version"]).get_fragments()
        for file in fragment.metadata.files
    }
    return stored - used


def unreferenced_files(graph: Graph, entry: TableEntry) -> list[str]:
    """Data and index files of a table that no version refers to. Reads."""
    used = {file for _, files in tracked_files(graph.open_head(entry)) for file in files}
    root = Path(graph.table_uri(entry))
    there = [str(p.relative_to(root)) for name in ("data", "_indices") for p in (root / name).rglob("*") if p.is_file()]
    return sorted(f for f in there if f not in used)


def journal_files(graph: Graph) -> list[str]:
    """Files of open journals. Reads."""
    return sorted(f.path for f in below_folder(graph.storage, REWRITES_DIR) if not (f.is_folder or is_lease(f.path)))
