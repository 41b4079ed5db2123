"""Claim: a table that grows by 1 % a night is rewritten O(log n) times per row under `tiered`, not every night.

100 nights of appends of 1 % each; every night folds the index and rewrites what the policy wants, with the calls
that optimize makes on a table: `converge` (Lance's default) and `tiered`. Printed: bytes rewritten per byte
ingested, for data and for the index, and what a reader finds in the end: fragments, rows that the index does not
cover, a full scan, a hundred look-ups by key. The last line is the ratio of the data bytes.

    make bench
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from omnigraph_ops.edges.lance_gateway import Dataset, LanceGateway
from omnigraph_ops.edges.lance_tables import (
    build_index,
    commit_results,
    execute_task,
    fold_index,
    fragment_facts,
    index_facts,
    plan_tasks,
)
from omnigraph_ops.models import RewritePolicy
from omnigraph_ops.optimize.plan import OptimizePolicy

ROWS, NIGHTS = 200_000, 100
TARGET_ROWS = 1_048_576
INDEX = "id_idx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Season:
    """All nights under one policy: bytes, counts and seconds."""

    policy: RewritePolicy
    ingested: int
    data: int
    index: int
    most_fragments: int
    fragments: int
    uncovered: int
    scan: float
    look_ups: float


def rows(first: int, count: int) -> pa.Table:
    """Edges with ids from `first` on. Pure."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"e{n}" for n in numbers],
            "src": [f"p{n * 7919 % ROWS}" for n in numbers],
            "dst": [f"p{n * 104729 % ROWS}" for n in numbers],
        }
    )


def optimize(dataset: Dataset, policy: OptimizePolicy) -> tuple[int, int]:
    """Fold, then rewrite; the bytes written to data and index. Writes."""
    fold_index(dataset, INDEX, 1)
    tasks = plan_tasks(dataset, TARGET_ROWS, policy.exclude)
    metrics = commit_results(dataset, [execute_task(dataset, t.payload) for t in tasks]) if tasks else None
    return metrics.bytes_written if metrics else 0, index_facts(dataset)[0].size_bytes


def season(wanted: RewritePolicy) -> Season:
    """A fresh table and all its nights."""
    policy = OptimizePolicy(
        target_rows=TARGET_ROWS, spark_threshold_bytes=2**40, compacts_blobs=True, rewrite=wanted, fan_in=4
    )
    nightly = ROWS // 100
    with tempfile.TemporaryDirectory() as folder:
        lance = LanceGateway(None)
        uri = str(Path(folder) / "edges")
        build_index(lance.create(uri, rows(0, ROWS)), "id", "BTREE", INDEX)
        dataset = lance.open(uri)
        ingested = data = index = most = 0
        for night in range(NIGHTS):
            dataset = lance.append(dataset, rows(ROWS + night * nightly, nightly))
            ingested += fragment_facts(dataset)[-1].data_bytes
            wrote = optimize(dataset, policy)
            data, index = data + wrote[0], index + wrote[1]
            most = max(most, len(fragment_facts(dataset)))
        covered = index_facts(dataset)[0].covered
        left = fragment_facts(dataset)
        assert dataset.count_rows() == ROWS + NIGHTS * nightly
        return Season(
            policy=wanted,
            ingested=ingested,
            data=data,
            index=index,
            most_fragments=most,
            fragments=len(left),
            uncovered=sum(f.physical_rows for f in left if f.fragment_id not in covered),
            scan=best(dataset.to_table),
            look_ups=best(lambda: [dataset.to_table(filter=f"id = 'e{n * 1999}'") for n in range(100)]),
        )


def best(action: Callable[[], object]) -> float:
    """Seconds of the fastest of three."""
    found = []
    for _ in range(3):
        started = time.perf_counter()
        action()
        found.append(time.perf_counter() - started)
    return min(found)


def main() -> None:
    seasons = [season(policy) for policy in RewritePolicy]
    for s in seasons:
        print(
            f"{s.policy:<9} {NIGHTS} nights, {s.ingested:,} bytes ingested: "
            f"data rewritten x {s.data / s.ingested:.2f}, index x {s.index / s.ingested:.2f}; "
            f"{s.fragments} fragments at the end (at most {s.most_fragments}), {s.uncovered} rows uncovered, "
            f"scan {s.scan * 1000:.0f} ms, 100 look-ups {s.look_ups * 1000:.0f} ms"
        )
    converge, tiered = seasons
    print(f"data bytes rewritten, converge over tiered: x {converge.data / max(tiered.data, 1):.1f}")


if __name__ == "__main__":
    main()
