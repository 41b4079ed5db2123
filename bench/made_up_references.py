"""The Spark application in whose job `orphans` every second file of the inventory is referred to; only a bench uses it.

The references are those of a table with a version per data file, as the real task writes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.references import Reference
from omnigraph_ops.spark import application, orphans_job
from omnigraph_ops.spark.orphans_tasks import Judging, ReferencesRead, read_references_of
from omnigraph_ops.stages.orphans.candidates import MOST_IN_PART
from omnigraph_ops.storage.parquet import parquet_rows, to_parquet


def _put(graph: Graph, folder: str, number: int, rows: Sequence[tuple[int, str]]) -> str:
    name = f"references-999999-{number:06d}.{0:032x}.parquet"
    graph.storage.write(f"{folder}/{name}", to_parquet({"way": "int8", "path": "string"}, rows))
    return name


def _made_up(listing: str) -> Any:
    def read(
        target: str, settings: Settings, folder: str, paths: Sequence[str], batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        graph = open_graph(target, settings)
        for batch in read_references_of(target, settings, folder, paths, batches):
            done, more = serde.from_json(ReferencesRead, batch.column(0).to_pylist()[0]), list[str]()
            if done.path == paths[-1]:
                odd = islice(parquet_rows(listing, {"path"}), 1, None, 2)
                rows = ((Reference.EXACT, row["path"]) for row in odd)
                while piece := list(islice(rows, MOST_IN_PART)):
                    more.append(_put(graph, folder, len(more), piece))
            found = serde.dumps(replace(done, parts=(*done.parts, *more)))
            yield pa.RecordBatch.from_pydict({"found": [found]})

    return read


if __name__ == "__main__":
    words = sys.argv[sys.argv.index("--request") + 1]
    orphans_job.read_references_of = _made_up(json.loads(words)["listing"])
    orphans_job.Judging = lambda **known: Judging(**(known | {"verify": False}))
    sys.exit(application.main())
