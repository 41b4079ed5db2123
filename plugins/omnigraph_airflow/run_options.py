"""What a run wants of optimize, from rendered params to the library's own values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from omnigraph_ops.errors import GraphFrozen
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models import SkipReason, TableStats

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.stages.optimize.budget import Budget


def under_policy(graph: Graph, policy: Any, cutoff: Any, auto: Any) -> Graph:
    """The graph with a run's params in place of the deployment's settings. Pure."""
    settings = graph.settings.for_run(policy=policy or None, cutoff=int(cutoff) if cutoff else None, auto=bool(auto))
    return graph.with_settings(settings)


def policy_arguments(policy: Any, cutoff: Any, auto: Any) -> list[str]:
    """The same params as arguments of the Spark application. Pure."""
    arguments = ["--policy", str(policy)] if policy else []
    arguments += ["--cutoff", str(int(cutoff))] if cutoff else []
    return [*arguments, "--auto"] if auto else arguments


def budget_from(max_bytes: Any, max_tables: Any, deadline: Any) -> Budget | None:
    """The budget of a run, None without any bound; a number may come as text and text as a number. Pure."""
    from omnigraph_ops.stages.optimize.budget import budget_of

    return budget_of(
        None if max_bytes is None else str(max_bytes),
        None if max_tables is None else int(max_tables),
        None if deadline is None else str(deadline),
    )


def frozen_since(graph: Graph, table_key: str | None = None) -> str | None:
    """Who froze the whole graph, or the table, as a sentence; None when nobody did. Reads."""
    from omnigraph_ops.coordination.freezes import refuse_frozen

    try:
        refuse_frozen(graph, table_key)
    except GraphFrozen as error:
        return str(error)
    return None


def left_alone(graph: Graph, table_key: str, not_after: Any, *, say: Callable[[str], None]) -> TableStats | None:
    """The row of a table that may not be optimized now, frozen or late, though it was planned; else None. Reads."""
    frozen = frozen_since(graph, table_key)
    if frozen is not None:
        say(f"{table_key}: {frozen}")
        return TableStats(table_key=table_key, skipped=SkipReason.FROZEN)
    if is_late(not_after):
        say(f"{table_key}: the deadline has passed, it waits for another run")
        return TableStats(table_key=table_key, skipped=SkipReason.DEFERRED_BUDGET)
    return None


def is_late(not_after: Any) -> bool:
    """Whether the run's deadline, in microseconds, has passed. Reads the clock."""
    return not_after is not None and now_us() > int(not_after)
