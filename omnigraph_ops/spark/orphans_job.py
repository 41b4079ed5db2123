"""The job `orphans`: the files of a graph judged in Spark tasks, and the plan of their removal in Parquet parts.

A verdict on a file needs the references that meet it at one point (`Judge.meeting_point`): a file name, or the uuid of
an index. So references and stored files are partitioned and sorted by that point, the references of a point first, and
each task judges its files as they come. Nothing grows with the graph but the number of tasks and of parts: a worker
holds one batch of rows with the references of its points, the driver holds totals.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.references import References, datasets_to_read
from omnigraph_ops.models.orphans import FilesInParts, OrphansPlan, SkippedDataset
from omnigraph_ops.progress import Lines, Progress
from omnigraph_ops.requests import from_words
from omnigraph_ops.spark.job import FOUND, Job, in_tasks
from omnigraph_ops.spark.orphans_tasks import (
    MOST_IN_SOURCE,
    MOST_UNKNOWN,
    Judging,
    PartSorted,
    ReferencesRead,
    Source,
    folder_rows,
    inventory_rows,
    judge_rows,
    read_references_of,
    reference_rows,
    rows_of_sources,
    stored_rows,
)
from omnigraph_ops.stages.orphans.candidates import Folders, Sorted, Totals, folder_of, sweep_parts
from omnigraph_ops.stages.orphans.inventory_file import Inventory
from omnigraph_ops.stages.orphans.plan import Searched, plan_orphans
from omnigraph_ops.stages.orphans.stage import OrphansRequest
from omnigraph_ops.stages.orphans.survey import survey
from omnigraph_ops.storage.inventory import Stored, remove_files

_ROWS = "point string, what tinyint, path string, size bigint, modified_at double, number bigint"
_ORDER = ("point", "what", "path", "number")
_MOST_SLICES = 1000
"""Sources share tasks above this number of them."""


@dataclass(slots=True)
class SparkSearch:
    """Searches in tasks; writes below `folder` of the graph."""

    spark: SparkSession
    folder: str

    def __call__(self, graph: Graph, inventory: Inventory | None, cutoff: float, progress: Progress, /) -> Searched:
        """As `Search`. Reads, and writes parts."""
        references: list[Source] = []
        look = survey(graph, cutoff=cutoff, reader=partial(self._references, references))
        seen, totals, folders = Sorted(), Totals(), Folders(judge=look.judge)
        if inventory is None:
            listed = _of_store(graph, folders)
        else:
            listed = (partial(inventory_rows, inventory, piece) for piece in inventory.pieces())
        judging = Judging(
            root=graph.storage.root,
            folder=self.folder,
            judge=look.judge,
            cutoff=look.cutoff,
            verify=inventory is not None,
        )
        progress("judging what is stored")
        rows = _judged(self.spark, judging, [*references, *listed]).collect()
        found = [serde.from_json(PartSorted, row.found) for row in rows]
        _joined(seen, totals, folders, found)
        parts = sorted((part for each in found for part in each.parts), key=lambda p: p.name)
        self._sweep(graph, {part.name for part in parts})
        return Searched(
            look=look,
            sorted=seen,
            totals=totals,
            folders=folders.old(look.cutoff),
            references=sum(each.references for each in found),
            foreign=sum(each.foreign for each in found),
            parts=FilesInParts(
                folder=self.folder,
                parts=tuple(parts),
                places=(),
                sample=(),
                unknown=sum(each.unknown_files for each in found),
            ),
        )

    def _references(self, sources: list[Source], graph: Graph, table_paths: Iterable[str]) -> References:
        """The branches of every dataset; the references themselves are in parts, which `sources` gets. Reads."""
        paths = datasets_to_read(graph, table_paths)
        read = partial(read_references_of, graph.target, graph.settings, self.folder, paths)
        tasks = self.spark.range(0, len(paths), 1, max(len(paths), 1)).mapInArrow(in_tasks(read), FOUND)
        done = [serde.from_json(ReferencesRead, row.found) for row in tasks.collect()]
        known = {d.path: d for d in done if d.problem is None}
        sources += [partial(reference_rows, part) for path in sorted(known) for part in known[path].parts]
        return References(
            branches={path: known[path].branches for path in sorted(known)},
            skipped=tuple(
                SkippedDataset(path=d.path, reason=d.problem)
                for d in sorted(done, key=lambda d: d.path)
                if d.problem is not None
            ),
        )

    def _sweep(self, graph: Graph, kept: set[str]) -> None:
        """Remove the references, and what lost or speculative tasks wrote. Destroys files below `folder`."""
        rest = [f"{self.folder}/{name}" for name in graph.storage.list(self.folder) if name not in kept]
        for fault in remove_files(graph.storage, rest)[:1]:
            raise StorageError(f"cannot remove {fault.path}, which a task of this plan wrote: {fault.reason}")


def _of_store(graph: Graph, folders: Folders) -> Iterator[Source]:
    """The upper levels, listed here, and a source for each folder below them. Reads."""
    levels = graph.upper_levels()
    for item in levels.found:
        folders.add(item)
    files = [item for item in levels.found if not item.is_folder]
    for start in range(0, len(files), MOST_IN_SOURCE):
        yield partial(stored_rows, files[start : start + MOST_IN_SOURCE])
    yield from (partial(folder_rows, folder) for folder in levels.deeper)


def _judged(spark: SparkSession, judging: Judging, sources: Sequence[Source]) -> DataFrame:
    """What each task found about its share of the rows. Lazy."""
    slices = max(min(len(sources), _MOST_SLICES), 1)
    numbers = spark.range(0, len(sources), 1, slices)
    rows = numbers.mapInArrow(in_tasks(partial(rows_of_sources, judging, tuple(sources))), _ROWS)
    judge = in_tasks(partial(judge_rows, judging))
    # Without a number of partitions: Spark makes them by size.
    return rows.repartition("point").sortWithinPartitions(*_ORDER).mapInArrow(judge, FOUND)


def _joined(seen: Sorted, totals: Totals, folders: Folders, found: Sequence[PartSorted]) -> None:
    """Add what the tasks found."""
    for each in found:
        seen.join(each.sorted)
        totals.join(each.places)
        for path, modified_at in each.empty:
            folders.add(Stored(path=path, size=0, modified_at=modified_at, is_folder=True))
    for each in found:
        for folder in each.filled:
            folders.fill(folder)
    seen.unknown = sorted(seen.unknown, key=lambda u: u.path)[:MOST_UNKNOWN]


def _orphans(spark: SparkSession, arguments: Namespace) -> OrphansPlan:
    request = from_words(OrphansRequest, arguments.request)
    graph = open_graph(arguments.graph, Settings.from_env())
    sweep_parts(graph.storage, graph.settings.plan_ttl_seconds)
    return plan_orphans(
        graph,
        older_than_seconds=request.older_than,
        quarantine=request.quarantine,
        listing=None if request.listing is None else Path(request.listing),
        search=SparkSearch(spark, folder_of(arguments.plan_id)),
        progress=Lines(partial(print, flush=True)),
    )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--graph", required=True, help="path or s3:// URI, as every executor reaches it")
    parser.add_argument("--plan-id", required=True, help="ULID of the plan, which names the folder of its parts")
    parser.add_argument("--request", default="{}", help='what is asked, e.g. {"older_than": "7d"}')


ORPHANS = Job(
    name="orphans", summary="Plan the removal of orphans.", subject="graph", arguments=_arguments, work=_orphans
)
