"""Backups: freeze, copy, verify, and end the freeze in every outcome; on Spark where there is enough to copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph_airflow.forms import request_in
from omnigraph_airflow.operators.base import OmnigraphOperator, RequestOperator
from omnigraph_airflow.operators.spark_jobs import SubmitJobOperator
from omnigraph_airflow.task_run import run_id_of
from omnigraph_ops import serde
from omnigraph_ops.errors import CorruptGraph, InvalidInput
from omnigraph_ops.models.backup import VerifyReport
from omnigraph_ops.progress import Lines
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.backup.stage import verify_view
from omnigraph_ops.stages.registry import UNASKED_BY_NAME

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph

T = TypeVar("T")
_MOST_NAMED = 5


class FreezeOperator(RequestOperator):
    """Freezes the graph; returns the id of the freeze. The setup of whatever copies it.

    A retry ends what the attempt before it took and could not name any more.

    :param backup: what `SubmitBackupOperator` will be asked for: what it would refuse, or a destination that
        cannot be listed, fails this task before it freezes; None: nothing will be copied (templated).
    """

    template_fields: Sequence[str] = (*RequestOperator.template_fields, "backup")

    def __init__(self, *, backup: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.backup = backup

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.coordination.freezes import unfreeze_all

        stage, owner = UNASKED_BY_NAME["freeze"], f"{run_id_of(context)}/{self.task_id}"
        unfreeze_all(graph, owner)  # First: the destination may fail in every retry.
        if self.backup is not None:
            _wanted(graph, self.backup)
        report = stage.run(graph, request_in(stage, {**self.request, "owner": owner}), Lines(self.log.info))
        self.log_view(stage.view(report))
        return report.freeze_id


class UnfreezeOperator(OmnigraphOperator):
    """Ends a freeze that this run took; one that has ended already is success. The teardown of `FreezeOperator`.

    :param freeze_id: what `FreezeOperator` returned (templated).
    """

    template_fields: Sequence[str] = ("graph", "freeze_id")

    def __init__(self, *, freeze_id: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.freeze_id = freeze_id

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.coordination.freezes import unfreeze
        from omnigraph_ops.coordination.holds import freezes

        # The id is an XCom, which whoever may edit the run can change to that of a freeze that others rely on.
        owners = {hold.owner for hold in freezes(graph.storage) if hold.hold_id == self.freeze_id}
        if any(not owner.startswith(f"{run_id_of(context)}/") for owner in owners):
            raise InvalidInput(
                f"the freeze {self.freeze_id} was not taken by this run; it was not ended; the XCom of the task that "
                "freezes was changed, and what this run froze ends after its ttl"
            )
        try:
            return serde.to_json(unfreeze(graph, self.freeze_id))
        except InvalidInput as error:
            self.log.info("%s", error)
            return None


class SubmitBackupOperator(RequestOperator, SubmitJobOperator):
    """Copies a frozen graph below a destination, on Spark from a threshold on; a retry goes on where it ended.

    The setting `OMNIGRAPH_OPS_SPARK_COPY_THRESHOLD_BYTES` is the threshold; where it is not set, the task copies
    everything itself and needs no Spark.
    """

    template_fields: Sequence[str] = (*SubmitJobOperator.template_fields, "request")

    def run_stage(self, graph: Graph, context: Context) -> Any:
        stage = UNASKED_BY_NAME["backup"]
        request = _wanted(graph, self.request)

        def submit(job: str, arguments: Sequence[str], value: type[T], check: Callable[[], None]) -> T:
            return self.submitted(context, graph, job, arguments, value)

        here = graph.settings.spark_copy_threshold_bytes is None
        report = stage.run(graph, request, Lines(self.log.info), None if here else submit)
        self.log_view(stage.view(report))
        graph.run.notes(report)
        return serde.to_json(report)


class SubmitVerifyOperator(SubmitJobOperator):
    """Reads a backup again, all of it, on Spark from the same threshold on; fails with what is wrong.

    :param backup: what `SubmitBackupOperator` returned (templated).
    """

    template_fields: Sequence[str] = (*SubmitJobOperator.template_fields, "backup")

    def __init__(self, *, backup: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.backup = backup

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.stages.backup.verify import verify_backup

        where, threshold = self.backup["backup"], graph.settings.spark_copy_threshold_bytes
        if threshold is None or self.backup["total"]["bytes"] < threshold:
            report = verify_backup(where, access=graph.storage.access, progress=Lines(self.log.info))
        else:
            report = self.submitted(context, graph, "verify", ("--backup", where), VerifyReport)
        self.log_view(verify_view(report))
        if report.problems:
            named = "; ".join(f"{p.file} {p.reason}" for p in report.problems[:_MOST_NAMED])
            raise CorruptGraph(
                f"{report.backup} has {count(len(report.problems), 'problem')}: {named}; the graph was not changed; do "
                "not restore this backup; run the DAG again: the next backup copies what is damaged from the graph"
            )
        graph.run.notes(report)
        return serde.to_json(report)


def _wanted(graph: Graph, asked: Mapping[str, Any]) -> Any:
    """The request for a backup of a graph. Reads the destination.

    Raises:
        InvalidInput: no backup can be made there.
        StorageError: the destination cannot be listed, for example because its bucket is missing.
    """
    from omnigraph_ops.outcomes.backups import backup_ids
    from omnigraph_ops.stages.backup.take import place_outside

    destination = str(asked.get("destination") or "").strip()
    if not destination:
        raise InvalidInput(
            "no destination named, so nothing was copied; set the param destination or the Variable omnigraph_backups"
        )
    if "://" not in destination and not destination.startswith("/"):
        raise InvalidInput(
            f"the destination {destination!r} is relative to a folder of the worker, so nothing was copied; give a "
            "path that begins with a slash, or an s3:// URI"
        )
    backup_ids(place_outside(graph, destination))
    return request_in(UNASKED_BY_NAME["backup"], {**asked, "destination": destination})
