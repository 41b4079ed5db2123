"""Cleanup: plan what goes, remove what was approved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import XComArg
from airflow.sdk.definitions.xcom_arg import PlainXComArg
from airflow.sdk.exceptions import AirflowSkipException

from omnigraph_airflow.audited import audited
from omnigraph_airflow.links import ASKED
from omnigraph_airflow.operators.ask import approved
from omnigraph_airflow.operators.base import (
    OmnigraphOperator,
    approved_plan,
    keep_plan,
    kept_plan,
    log_files,
    skip_if_frozen,
    to_xcom,
)
from omnigraph_airflow.operators.lots import LotOperator
from omnigraph_ops import serde
from omnigraph_ops.errors import ApprovalMissing, StorageError
from omnigraph_ops.lots import deal
from omnigraph_ops.models import CleanupPlan, RetentionPolicy, SnapshotExpiry
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.stages.cleanup.view import plan_view
from omnigraph_ops.views import terminal

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph

PLAN = "plan"
"""XCom key of the kept plan's name; `return_value` is the list that the next task is mapped over."""
ORPHANED_FORKS = "orphaned forks"


class PlanCleanupOperator(OmnigraphOperator):
    """Decides which versions go; deletes nothing. Returns lots of tables with work, the kept plan as XCom `plan`.

    :param after: JSON that the stage before this one left (templated); None: that stage did not run,
        then this skips.
    :param keep: newest versions to keep per table (templated).
    :param older_than: remove only versions older than this, as in `7d` (templated).
    :param expiry: terms of a snapshot expiry instead of the two, as a mapping (templated).
    :param between_pins: also remove unprotected versions above the oldest pin of a branch (templated).
    :param tables: only these table keys (templated).
    :param digest: use the kept plan of this digest instead of making one (templated).
    :param skip_frozen: skip a graph that is wholly frozen, where nothing could be removed.
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = (
        *("graph", "after", "keep", "older_than"),
        *("expiry", "between_pins", "tables", "digest"),
    )

    def __init__(
        self,
        *,
        after: Any,
        keep: int | str | None = None,
        older_than: str | None = None,
        expiry: Any = None,
        between_pins: bool | str = False,
        tables: Sequence[str] | str | None = None,
        digest: str | None = None,
        skip_frozen: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.after = after
        self.keep = keep
        self.older_than = older_than
        self.expiry = expiry
        self.between_pins = between_pins
        self.tables = tables
        self.digest = digest
        self.skip_frozen = skip_frozen

    @property
    def kept(self) -> XComArg:
        """The name of the kept plan, for the tasks that show it and carry it out. Pure."""
        return PlainXComArg(self, PLAN)

    def run_stage(self, graph: Graph, context: Context) -> list[list[str]]:
        if self.skip_frozen:
            skip_if_frozen(graph)
        if self.after is None:
            raise AirflowSkipException("the stages before this one did not finish")
        from omnigraph_ops.stages.cleanup.plan import plan_cleanup

        plan = approved_plan(graph, CleanupPlan, self.digest) or plan_cleanup(
            graph, self._policy(), tables=tuple(self.tables or ())
        )
        context["ti"].xcom_push(key=PLAN, value=keep_plan(context, graph, plan))
        for line in terminal.text(plan_view(plan)).splitlines():
            self.log.info(line)
        files = [f for table in plan.tables for f in table.files]
        log_files(self.log, [*files, *(f for fork in plan.orphaned_forks for f in fork.files)])
        lots = [list(lot) for lot in deal([table.table_key for table in plan.tables if table.versions])]
        return lots + ([[ORPHANED_FORKS]] if plan.orphaned_forks else [])

    def _policy(self) -> RetentionPolicy:
        """The policy of the params; an empty mapping is what the trigger form makes of nothing. Pure."""
        from omnigraph_ops.durations import parse_duration
        from omnigraph_ops.stages.cleanup.request import too_young

        if self.expiry:
            expiry = serde.from_json(SnapshotExpiry, dict(self.expiry))
            policy = RetentionPolicy(expiry=expiry, between_pins=bool(self.between_pins))
        else:
            policy = RetentionPolicy(
                keep_versions=None if self.keep is None else int(self.keep),
                older_than_secs=None if self.older_than is None else parse_duration(str(self.older_than)),
                between_pins=bool(self.between_pins),
            )
        if why := too_young(policy):
            raise ApprovalMissing(f"{why}, or leave the age empty")
        return policy


class CleanupTablesOperator(LotOperator):
    """Removes the approved versions of the tables of a lot, after checking the approval itself.

    :param lot: the table keys, or `orphaned forks` alone (templated).
    :param plan: name of the kept plan that was shown (templated).
    :param approval: id of the approval task.
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = (*LotOperator.template_fields, "plan")

    def __init__(self, *, plan: Any, approval: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.approval = approval

    def run_stage(self, graph: Graph, context: Context) -> list[Any]:
        self._approved = kept_plan(context, graph, CleanupPlan, self.plan)
        decision = approved(
            context, graph.storage, self.approval, self._approved.digest, what=f"cleanup of {self.label}"
        )
        with audited(graph, "cleanup", decision) as work:
            rows = super().run_stage(graph, context)
            work.ends(AuditEvent.APPLIED, work.told)
        return rows

    def run_table(self, graph: Graph, table_key: str, context: Context) -> Any:
        from omnigraph_ops.stages.cleanup.apply import cleanup_table

        if table_key == ORPHANED_FORKS:
            return _remove_forks(graph, self._approved)
        stats = cleanup_table(graph, self._approved, table_key)
        graph.run.notes(stats)
        return to_xcom(stats)


def _remove_forks(graph: Graph, plan: CleanupPlan) -> list[Any]:
    from omnigraph_ops.stages.cleanup.apply import remove_orphaned_forks

    forks = remove_orphaned_forks(graph, plan)
    for fork in forks:
        graph.run.notes(fork)
    if failed := [f"{f.branch} of {f.table_key}: {f.error}" for f in forks if f.error is not None]:
        raise StorageError(f"orphaned forks that could not be removed: {'; '.join(failed)}")
    return [to_xcom(fork) for fork in forks]
