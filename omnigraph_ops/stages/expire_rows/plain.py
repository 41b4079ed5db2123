"""Delete expired rows of plain Lance: one commit for a table, on the version that was counted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_incrementing, wait_random

from omnigraph_ops.coordination.freezes import refuse_any_freeze
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.errors import OpsError, PublishConflict
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.lance.gateway import LOST_COMMITS, Dataset
from omnigraph_ops.lance.rows import Clock, delete_below
from omnigraph_ops.models.cleanup import RowRetentionPlan, TableRowPlan, TableRowStats
from omnigraph_ops.stages.expire_rows.plan import Aged

ATTEMPTS = 5
_PAUSE_SECONDS = 0.2

Turn = Callable[[], contextlib.AbstractContextManager[object]]
"""The committer lease for a block, in which the table is still what was counted and nobody froze it; else it raises."""


Delete = Callable[[Dataset, Clock, int, Turn], int]
"""Deletes the rows of an open version below a cut in one commit, made in a turn, and returns how many. Destroys rows.

It raises `CommitConflict` or `IncompatibleCommit` where another writer changed some of the rows, or replaced all; then
nothing was deleted.
"""


def delete_here(dataset: Dataset, clock: Clock, cut: int, turn: Turn) -> int:
    """In this process. As `Delete`."""
    with turn():
        return delete_below(dataset, clock, cut)


def expire_plain(graph: Graph, plan: RowRetentionPlan, table: TableRowPlan, delete: Delete) -> TableRowStats:
    """Delete the rows below the cut in one commit, counted anew before each attempt. Destroys rows.

    The delete sees exactly the version that was counted: rows that others append meanwhile stay, and one that
    another writer changed makes the commit a conflict.

    Raises:
        StalePlan: more rows are below the cut than the plan allows.
        PublishConflict: other writers were faster each time; nothing was deleted.
    """
    again = again_after(*LOST_COMMITS, graph=graph, pause=_PAUSE_SECONDS)
    try:
        removed = again(_delete_expired, graph, plan, table, delete)
    except RetryError:
        raise PublishConflict(
            f"{table.table_key}: other writers were faster {ATTEMPTS} times; nothing was deleted; apply the plan again"
        ) from None
    attempts = again.statistics["attempt_number"]
    try:
        return _stats(graph, table, removed, attempts)
    except OpsError as error:
        why = f"{removed:,} row(s) were deleted, but the table could not be read afterwards: {error}"
        return TableRowStats(table_key=table.table_key, rows_removed=removed, attempts=attempts, error=why)


def again_after(*errors: type[Exception], graph: Graph, pause: float) -> Retrying:
    """A bounded number of attempts, with longer and longer pauses; a run that is asked to stop ends them. Pure."""
    return Retrying(
        retry=retry_if_exception_type(errors),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_incrementing(pause, pause) + wait_random(0, pause),
        sleep=graph.run.pause,
    )


def _delete_expired(graph: Graph, plan: RowRetentionPlan, table: TableRowPlan, delete: Delete) -> int:
    """Delete what is counted now. Destroys rows.

    Rows are counted, and tasks look for them, without the lease: that may take long. The commit is for the version
    that was counted, so the bounds need no second look under the lease.
    """
    aged = Aged.of(graph, graph.state_of(table.table_key), table)
    aged.refuse_another(graph, table)

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        with committer_turn(graph, f"expire rows of {table.table_key}") as keeper:
            refuse_any_freeze(graph)
            graph.lance.refuse_another(aged.dataset)
            keeper.assert_held()
            yield

    return delete(aged.dataset, aged.clock, table.cut, turn) if aged.refuse_over_bounds(plan, table) else 0


def _stats(graph: Graph, table: TableRowPlan, removed: int, attempts: int) -> TableRowStats:
    """What a reader sees now. Reads."""
    aged = Aged.of(graph, graph.state_of(table.table_key), table)
    return TableRowStats(
        table_key=table.table_key,
        rows_removed=removed,
        rows_left=aged.rows(),
        attempts=attempts,
        manifest_version=int(aged.dataset.version),
    )
