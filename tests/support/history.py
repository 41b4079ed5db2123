"""Records for tests of the history."""

from __future__ import annotations

from functools import reduce
from typing import Any

from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.models.history import (
    Answer,
    Measured,
    RunDecision,
    RunHeader,
    RunOrigin,
    RunOutcome,
    RunRecord,
    TableCounts,
    TableRecord,
    UnitWindow,
    Work,
)
from omnigraph_ops.outcomes.results import RunResults, with_value

DAY_US = 86_400 * 1_000_000


def header(run_id: str = "cli/host:1/x", *, started_at_us: int | None = None, **fields: Any) -> RunHeader:
    return RunHeader(
        **{
            "run_id": run_id,
            "origin": RunOrigin.CLI,
            "verb": "optimize",
            "triggered_by": "ada@host",
            "started_at_us": now_us() if started_at_us is None else started_at_us,
            "graph": "/g",
            "stamp": 6,
            "tool_version": "1",
            **fields,
        }
    )


def table(table_key: str = "node:A", **fields: Any) -> TableRecord:
    return TableRecord(
        **{
            "table_key": table_key,
            "outcome": RunOutcome.SUCCEEDED,
            "stages": ("optimize",),
            "before": Measured(version=3, rows=10, fragments=4),
            "after": Measured(version=7, rows=10, fragments=1, data_bytes=2048, deleted_share=0.0, score=98),
            "work": Work(fragments_removed=4, fragments_added=1, bytes_rewritten=1024, write_amplification=2.5),
            "executor": "spark",
            "windows": (UnitWindow(unit="fold", seconds=0.25), UnitWindow(unit="rewrite", seconds=1.5)),
            **fields,
        }
    )


def record(run_id: str = "cli/host:1/x", *, started_at_us: int | None = None, **fields: Any) -> RunRecord:
    """A record with everything in it."""
    head = header(run_id, started_at_us=started_at_us)
    decision = RunDecision(
        stage="cleanup", answer=Answer.REJECTED, by="ada", digest="sha256:1", at_us=head.started_at_us
    )
    return RunRecord(
        **{
            "record_id": new_ulid(),
            "header": head,
            "ended_at_us": head.started_at_us + 2_500_000,
            "outcome": RunOutcome.SUCCEEDED,
            "errors": (),
            "attention": ("look at node:B",),
            "counts": TableCounts(succeeded=1),
            "before": Measured(version=1, fragments=4),
            "after": Measured(version=2, rows=10, fragments=1, data_bytes=2048, dead_bytes=10, score=97),
            "work": Work(bytes_rewritten=1024, bytes_reclaimed=5, versions_removed=2, preempted=1),
            "decisions": (decision,),
            "tables": (table(decisions=(decision,)),),
            **fields,
        }
    )


def noted(*values: object, **fields: Any) -> RunResults:
    """The results of a run that noted these plans and reports. Pure."""
    return reduce(with_value, values, RunResults(**fields))
