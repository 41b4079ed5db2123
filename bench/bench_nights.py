"""Claim: a table that grows by 1 % a night is rewritten O(log n) times per row under `tiered`, not every night.

100 nights of appends of 1 % each; every night folds the index if its turn has come and rewrites what the policy
wants, with the calls that optimize makes on a table: `converge` (Lance's default), `tiered` with a fold every night,
and `tiered` with an index that waits until a share of the rows is uncovered. Printed: bytes rewritten per byte
ingested, for data and for the index, and what a reader finds: fragments and rows that the index does not cover, at
the end and at most; a full scan at the end; a hundred look-ups by key at the end and with most rows uncovered. The
last lines are ratios of bytes: data of `converge` over `tiered`, index of a fold every night over the default share.

    make bench
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.lance.tables import (
    build_index,
    commit_results,
    execute_task,
    fold_index,
    fragment_facts,
    index_facts,
    plan_tasks,
    table_facts,
)
from omnigraph_ops.models.optimize import RewritePolicy
from omnigraph_ops.stages.optimize.fragments import uncovered_rows
from omnigraph_ops.stages.optimize.index_plan import waiting_for_rows
from omnigraph_ops.stages.optimize.plan import OptimizePolicy

ROWS, NIGHTS = 200_000, 100
TARGET_ROWS = 1_048_576
INDEX = "id_idx"
DEFAULT = Settings().tier_unindexed_share
SHARES = (0.0, 0.02, DEFAULT, 0.1, 0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Season:
    """All nights under one policy: bytes, counts and seconds."""

    policy: RewritePolicy
    share: float
    ingested: int
    data: int
    index: int
    most_fragments: int
    fragments: int
    folds: int
    uncovered: int
    most_uncovered: int
    scan: float
    look_ups: float
    worst_look_ups: float


def rows(first: int, count: int) -> pa.Table:
    """Rows with ids from `first` on. Pure."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"e{n}" for n in numbers],
            "src": [f"p{n * 7919 % ROWS}" for n in numbers],
            "dst": [f"p{n * 104729 % ROWS}" for n in numbers],
        }
    )


def optimize(dataset: Dataset, policy: OptimizePolicy) -> tuple[int, int]:
    """Fold unless the index waits, then rewrite; the bytes written to data and index. Writes."""
    waits = waiting_for_rows(table_facts(dataset, TARGET_ROWS), policy, policy.unindexed_share) is not None
    if not waits:
        fold_index(dataset, INDEX, 1)
    tasks = plan_tasks(dataset, TARGET_ROWS, policy.exclude)
    metrics = commit_results(dataset, [execute_task(dataset, t.payload) for t in tasks]) if tasks else None
    return metrics.bytes_written if metrics else 0, 0 if waits else index_facts(dataset)[0].size_bytes


def season(wanted: RewritePolicy, share: float) -> Season:
    """A fresh table and all its nights."""
    policy = OptimizePolicy(
        target_rows=TARGET_ROWS,
        spark_threshold_bytes=2**40,
        compacts_blobs=True,
        policy=wanted,
        fan_in=4,
        unindexed_share=share,
    )
    nightly = ROWS // 100
    with tempfile.TemporaryDirectory() as folder:
        lance = LanceGateway(None)
        uri = str(Path(folder) / "rows")
        build_index(lance.create(uri, rows(0, ROWS)), "id", "BTREE", INDEX)
        dataset = lance.open(uri)
        ingested = data = index = folds = most = most_uncovered = 0
        worst = 0.0
        for night in range(NIGHTS):
            dataset = lance.append(dataset, rows(ROWS + night * nightly, nightly))
            ingested += fragment_facts(dataset)[-1].data_bytes
            wrote = optimize(dataset, policy)
            data, index, folds = data + wrote[0], index + wrote[1], folds + (wrote[1] > 0)
            left = fragment_facts(dataset)
            uncovered = uncovered_rows(left, index_facts(dataset)[0])
            most = max(most, len(left))
            if uncovered > most_uncovered:
                most_uncovered, worst = uncovered, best(partial(look_up, dataset))
        at_end = best(partial(look_up, dataset))
        assert dataset.count_rows() == ROWS + NIGHTS * nightly
        return Season(
            policy=wanted,
            share=share,
            ingested=ingested,
            data=data,
            index=index,
            most_fragments=most,
            fragments=len(left),
            folds=folds,
            uncovered=uncovered,
            most_uncovered=most_uncovered,
            scan=best(dataset.to_table),
            look_ups=at_end,
            worst_look_ups=worst or at_end,
        )


def look_up(dataset: Dataset) -> None:
    """A hundred rows by key. Reads."""
    for number in range(100):
        dataset.to_table(filter=f"id = 'e{number * 1999}'")


def best(action: Callable[[], object]) -> float:
    """Seconds of the fastest of three."""
    found = []
    for _ in range(3):
        started = time.perf_counter()
        action()
        found.append(time.perf_counter() - started)
    return min(found)


def told(s: Season) -> str:
    """One line of the output. Pure."""
    name = f"{s.policy} {s.share:.0%}" if s.policy is RewritePolicy.TIERED else str(s.policy)
    return (
        f"{name:<10} {NIGHTS} nights, {s.ingested:,} bytes ingested: "
        f"data rewritten x {s.data / s.ingested:.2f}, index x {s.index / s.ingested:.2f} ({s.folds} folds); "
        f"{s.fragments} fragments (at most {s.most_fragments}), "
        f"{s.uncovered} rows uncovered (at most {s.most_uncovered}), scan {s.scan * 1000:.0f} ms, "
        f"100 look-ups {s.look_ups * 1000:.0f} ms (with most uncovered {s.worst_look_ups * 1000:.0f} ms)"
    )


def main() -> None:
    converge = season(RewritePolicy.CONVERGE, 0.0)
    tiered = {share: season(RewritePolicy.TIERED, share) for share in SHARES}
    for found in (converge, *tiered.values()):
        print(told(found))
    default = tiered[DEFAULT]
    print(f"data bytes rewritten, converge over tiered: x {converge.data / max(default.data, 1):.1f}")
    print(f"index bytes, every night over {DEFAULT:.0%} uncovered: x {tiered[0.0].index / max(default.index, 1):.1f}")


if __name__ == "__main__":
    main()
