"""Nights of a graph as the history keeps them, ending at how it stands now: one failed, one found no work."""

from __future__ import annotations

from dataclasses import dataclass, replace

from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models.health import TableHealth
from omnigraph_ops.models.history import (
    Answer,
    Measured,
    RunDecision,
    RunOrigin,
    RunOutcome,
    RunRecord,
    TableRecord,
    Work,
)
from omnigraph_ops.outcomes.history import append
from omnigraph_ops.stages.health.read import everything_now, health
from tests.support.history import DAY_US, record

NIGHTS = 14
FAILED, IDLE = 5, 9
"""The night that failed, and the one that found nothing to do."""
TROUBLE = "the store answered 503 for 10 minutes"


def write_nights(graph: Graph, dag_id: str, *, failing: bool = False, nights: int = NIGHTS) -> None:
    """Add the reports of so many nights, the newest some hours ago; with `failing`, that one failed. Writes."""
    maker = _Nights(
        dag_id=dag_id,
        nights=nights,
        failing=failing,
        tables=health(graph).tables,
        now=everything_now(graph).graph,
        first_us=now_us() - nights * DAY_US + DAY_US * 3 // 5,
    )
    for night in range(nights):
        append(graph, maker.run(night))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nights:
    dag_id: str
    nights: int
    failing: bool
    tables: tuple[TableHealth, ...]
    now: Measured
    first_us: int

    def run(self, night: int) -> RunRecord:
        failed = night == FAILED or (self.failing and night == self.nights - 1)
        idle = night == IDLE
        outcome = RunOutcome.FAILED if failed else RunOutcome.NOTHING_TO_DO if idle else RunOutcome.SUCCEEDED
        started = self.first_us + night * DAY_US
        base = record(f"{self.dag_id}/scheduled__{night}", started_at_us=started)
        approved = RunDecision(
            stage="cleanup", answer=Answer.APPROVED, by="ana", digest="sha256:" + "0" * 64, at_us=started + 60_000_000
        )
        return replace(
            base,
            header=replace(
                base.header,
                origin=RunOrigin.AIRFLOW,
                verb="optimize+repair+cleanup",
                triggered_by="scheduled",
                dag_id=self.dag_id,
                dag_run_id=f"scheduled__{night}",
            ),
            ended_at_us=started + (4 if idle else 95 + 11 * (night % 5) + 4 * night) * 1_000_000,
            outcome=outcome,
            errors=(f"{self.tables[0].table_key}: {TROUBLE}",) if failed else (),
            attention=(f"{self.tables[0].table_key}: drifted, waits for an approval",) if night > 11 else (),
            before=replace(self._after(night, failed=failed), fragments=(self.now.fragments or 0) + 60 + night),
            after=self._after(night, failed=failed),
            work=_work(night, self.now.data_bytes or 0, idle=idle, failed=failed),
            counts=replace(
                base.counts,
                succeeded=0 if idle else len(self.tables) - int(failed),
                failed=int(failed),
                nothing_to_do=len(self.tables) if idle else 0,
            ),
            decisions=() if idle or failed else (approved,),
            tables=tuple(self._table(table, night, self._outcome(table, outcome)) for table in self.tables),
        )

    def _outcome(self, table: TableHealth, run: RunOutcome) -> RunOutcome:
        """One table is enough for a run to fail."""
        spared = run is RunOutcome.FAILED and table is not self.tables[0]
        return RunOutcome.SUCCEEDED if spared else run

    def _after(self, night: int, *, failed: bool) -> Measured:
        ago = self.nights - 1 - night
        return replace(
            self.now,
            fragments=(self.now.fragments or 0) + ago * 3 + (30 if failed else 0),
            data_bytes=(self.now.data_bytes or 0) * (100 - 2 * ago) // 100,
            dead_bytes=(self.now.dead_bytes or 0) * (100 - 15 * (ago % 5)) // 100,
            score=max(0, (self.now.score or 0) - ago - (14 if failed else 0)),
        )

    def _table(self, table: TableHealth, night: int, outcome: RunOutcome) -> TableRecord:
        ago = self.nights - 1 - night
        after = Measured(
            version=20 + night,
            rows=table.rows * (100 - ago) // 100,
            fragments=table.fragments + ago // 3,
            data_bytes=table.data_bytes * (100 - 2 * ago) // 100,
            dead_bytes=table.dead_bytes,
            versions=table.versions + ago % 4,
            deleted_share=min(1.0, table.deleted_share + 0.004 * (ago % 3)),
            unindexed_share=table.unindexed_share,
            score=max(0, (table.score or 0) - ago),
        )
        done = outcome is RunOutcome.SUCCEEDED
        return TableRecord(
            table_key=table.table_key,
            outcome=outcome,
            stages=("optimize", "cleanup") if done else (),
            reason="" if done else "no work",
            error=TROUBLE if outcome is RunOutcome.FAILED else None,
            before=replace(after, fragments=(after.fragments or 0) + 6, version=18 + night),
            after=after,
            work=Work(
                bytes_rewritten=table.data_bytes, fragments_removed=6, fragments_added=1, write_amplification=2.1
            ),
            executor="in_process",
        )


def _work(night: int, data: int, *, idle: bool, failed: bool) -> Work:
    if idle:
        return Work()
    return Work(
        fragments_removed=60 + 5 * night,
        fragments_added=12,
        versions_removed=0 if failed else 9 + night,
        bytes_rewritten=data * (60 + 15 * (night % 4)) // 100,
        bytes_ingested=data * (20 + night) // 100,
        bytes_reclaimed=0 if failed else data * (40 + 12 * (night % 3)) // 100,
        write_amplification=round(2.6 - night * 0.07, 2),
    )
