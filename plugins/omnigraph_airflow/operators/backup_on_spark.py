"""Backups whose files Spark copies where there is enough of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from omnigraph_airflow.operators.backup import sound, with_destination
from omnigraph_airflow.operators.base import to_xcom
from omnigraph_airflow.operators.spark_jobs import SubmitJobOperator
from omnigraph_airflow.run_options import request_in
from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.models.backup import VerifyReport
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.registry import UNASKED_BY_NAME
from omnigraph_ops.views import terminal

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph

T = TypeVar("T")


class SubmitBackupOperator(SubmitJobOperator):
    """Copies a frozen graph below a destination as `BackupOperator` does, on Spark from a threshold on.

    The setting `OMNIGRAPH_OPS_SPARK_COPY_THRESHOLD_BYTES` is the threshold; where it is not set, the task copies
    everything itself and needs no Spark.

    :param request: what is asked of the backup, by the names of its request's fields (templated).
    """

    template_fields: Sequence[str] = (*SubmitJobOperator.template_fields, "request")

    def __init__(self, *, request: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.request = dict(request or {})

    def run_stage(self, graph: Graph, context: Context) -> Any:
        stage, tell = UNASKED_BY_NAME["backup"], Lines(self.log.info)
        request = request_in(stage, with_destination(self.request))

        def submit(job: str, arguments: Sequence[str], value: type[T], check: Callable[[], None]) -> T:
            try:
                return self.submitted(context, graph, job, arguments, value)
            except AirflowFailException as error:
                raise OpsError(str(error)) from error
            except AirflowException as error:
                raise StorageError(str(error)) from error

        if graph.settings.spark_copy_threshold_bytes is None:
            report = stage.run(graph, request, tell)
        else:
            report = stage.run_on_spark(graph, request, tell, submit)
        self.log.info("%s", terminal.text(stage.view(report)))
        graph.run.notes(report)
        return to_xcom(report)


class SubmitVerifyOperator(SubmitJobOperator):
    """Reads a backup again as `VerifyBackupOperator` does, on Spark from the same threshold on.

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
            report = verify_backup(where, access=graph.context.access, progress=Lines(self.log.info))
        else:
            report = self.submitted(context, graph, "verify", ("--backup", where), VerifyReport)
        return sound(self, graph, report)
