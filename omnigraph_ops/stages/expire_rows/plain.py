"""Row retention on plain Lance: one delete of what lies below the cut, under the lease of this tool."""

from __future__ import annotations

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_incrementing, wait_random

from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.errors import PublishConflict, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.lance.errors import CommitConflict, CommitContention
from omnigraph_ops.lance.gateway import Dataset, live_rows
from omnigraph_ops.lance.rows import Clock, clock_of, count_below, delete_below
from omnigraph_ops.models.retention import RowRetentionPlan, TableRowPlan, TableRowStats
from omnigraph_ops.stages.expire_rows.look import dataset_in, over_bounds

ATTEMPTS = 5
_PAUSE_SECONDS = 0.2


def expire_plain(graph: Graph, plan: RowRetentionPlan, table: TableRowPlan) -> TableRowStats:
    """Delete the rows below the cut in one commit, counted anew before each attempt. Destroys rows.

    The delete sees exactly the version that was counted: rows that others append meanwhile stay, and one that
    another writer changed makes the commit a conflict.

    Raises:
        StalePlan: more rows are below the cut than the plan allows.
        PublishConflict: other writers were faster each time; nothing was deleted.
    """
    again = again_after(CommitConflict, CommitContention, graph=graph, pause=_PAUSE_SECONDS)
    try:
        removed = again(_delete_expired, graph, plan, table)
    except RetryError:
        raise PublishConflict(
            f"{table.table_key}: other writers were faster {ATTEMPTS} times; nothing was deleted; apply the plan again"
        ) from None
    return _stats(graph, table, removed, again.statistics["attempt_number"])


def again_after(*errors: type[Exception], graph: Graph, pause: float) -> Retrying:
    """A bounded number of attempts, with longer and longer pauses; a run that is asked to stop ends them. Pure."""
    return Retrying(
        retry=retry_if_exception_type(errors),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_incrementing(pause, pause) + wait_random(0, pause),
        sleep=graph.run.pause,
    )


def _delete_expired(graph: Graph, plan: RowRetentionPlan, table: TableRowPlan) -> int:
    with committer_turn(graph, f"expire rows of {table.table_key}") as keeper:
        dataset = dataset_in(graph, graph.state_of(table.table_key), table.table_key)
        clock = clock_of(dataset, table.policy.property, table.policy.unit)
        expired = refuse_over_bounds(plan, table, dataset, clock)
        keeper.assert_held()
        return delete_below(dataset, clock, table.cut) if expired else 0


def refuse_over_bounds(plan: RowRetentionPlan, table: TableRowPlan, dataset: Dataset, clock: Clock) -> int:
    """How many rows are below the cut now; `StalePlan` when the plan does not allow so many. Reads."""
    expired = count_below(dataset, clock, table.cut)
    over = over_bounds(expired, live_rows(dataset), max_rows=table.max_rows, max_share=plan.max_share)
    if expired and over:
        raise StalePlan(f"{table.table_key}: {over}; nothing was deleted; plan again")
    return expired


def _stats(graph: Graph, table: TableRowPlan, removed: int, attempts: int) -> TableRowStats:
    """What a reader sees now. Reads."""
    state = graph.state_of(table.table_key)
    dataset = dataset_in(graph, state, table.table_key)
    clock = clock_of(dataset, table.policy.property, table.policy.unit)
    return TableRowStats(
        table_key=table.table_key,
        rows_removed=removed,
        rows_left=count_below(dataset, clock, table.cut),
        attempts=attempts,
        manifest_version=int(dataset.version),
    )
