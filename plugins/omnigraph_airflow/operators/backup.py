"""Backups: freeze, copy, verify, and end the freeze in every outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph_airflow.hooks.omnigraph import OmnigraphHook
from omnigraph_airflow.operators.base import OmnigraphOperator, to_xcom
from omnigraph_airflow.run_facts import run_id_of
from omnigraph_ops.errors import CorruptGraph, InvalidInput
from omnigraph_ops.progress import Lines

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph
    from omnigraph_ops.storage.location import StoreAccess

_MOST_NAMED = 5


class FreezeOperator(OmnigraphOperator):
    """Freezes the graph; returns the id of the freeze. The setup of whatever copies it.

    A retry ends what the attempt before it took and could not name any more.

    :param ttl: after this the freeze ends by itself, as in `12h` (templated).
    :param reason: shown to everybody whom the freeze stops (templated).
    """

    template_fields: Sequence[str] = ("graph", "ttl", "reason")

    def __init__(self, *, ttl: str = "1d", reason: str = "backup {{ run_id }}", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ttl = ttl
        self.reason = reason

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.coordination.freezes import unfreeze_all
        from omnigraph_ops.quantities import parse_duration
        from omnigraph_ops.stages.freeze.take import freeze_graph
        from omnigraph_ops.stages.freeze.view import freeze_view
        from omnigraph_ops.views import terminal

        owner = f"{run_id_of(context)}/{self.task_id}"
        unfreeze_all(graph, owner)
        freeze = freeze_graph(
            graph,
            ttl_seconds=float(parse_duration(str(self.ttl))),
            reason=self.reason,
            owner=owner,
            progress=Lines(self.log.info),
        )
        self.log.info("%s", terminal.text(freeze_view(freeze)))
        return freeze.freeze_id


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
            return to_xcom(unfreeze(graph, self.freeze_id))
        except InvalidInput as error:
            self.log.info("%s", error)
            return None


class BackupOperator(OmnigraphOperator):
    """Copies a frozen graph below a destination; a retry goes on where the attempt before it ended.

    :param destination: a path or `s3://` URI, reached with the credentials of the graph (templated).
    :param freeze_id: what to copy (templated).
    :param incremental: take unchanged files from the newest finished backup of this graph there (templated).
    :param checksum: a SHA-256 of every file, also where the store could copy by itself (templated).
    :param max_bytes_per_second: as in `50MB`; empty: no bound (templated).
    """

    template_fields: Sequence[str] = (
        "graph",
        "destination",
        "freeze_id",
        "incremental",
        "checksum",
        "max_bytes_per_second",
    )

    def __init__(
        self,
        *,
        destination: str,
        freeze_id: Any,
        incremental: bool | str = True,
        checksum: bool | str = False,
        max_bytes_per_second: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.destination = destination
        self.freeze_id = freeze_id
        self.incremental = incremental
        self.checksum = checksum
        self.max_bytes_per_second = max_bytes_per_second

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.quantities import parse_bytes
        from omnigraph_ops.stages.backup.listing import newest_finished
        from omnigraph_ops.stages.backup.take import BackupOptions, backup_graph
        from omnigraph_ops.stages.backup.view import backup_view
        from omnigraph_ops.views import terminal

        if not self.destination:
            raise InvalidInput("no destination named: set the param destination or the Variable omnigraph_backups")
        access = _access(self.graph)
        earlier = newest_finished(self.destination, graph.target, access) if self.incremental else None
        options = BackupOptions(
            freeze_id=self.freeze_id,
            incremental_from=earlier,
            need_checksums=bool(self.checksum),
            bytes_per_second=parse_bytes(str(self.max_bytes_per_second)) if self.max_bytes_per_second else None,
            access=access,
        )
        report = backup_graph(graph, self.destination, options, progress=Lines(self.log.info))
        self.log.info("%s", terminal.text(backup_view(report)))
        graph.run.notes(report)
        return to_xcom(report)


class VerifyBackupOperator(OmnigraphOperator):
    """Reads a backup again, all of it; fails with what is wrong.

    :param backup: what `BackupOperator` returned (templated).
    """

    template_fields: Sequence[str] = ("graph", "backup")

    def __init__(self, *, backup: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.backup = backup

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.stages.backup.verify import verify_backup
        from omnigraph_ops.stages.backup.view import verify_view
        from omnigraph_ops.views import terminal

        report = verify_backup(self.backup["backup"], access=_access(self.graph), progress=Lines(self.log.info))
        self.log.info("%s", terminal.text(verify_view(report)))
        if report.problems:
            named = "; ".join(f"{p.file} {p.reason}" for p in report.problems[:_MOST_NAMED])
            raise CorruptGraph(f"{report.backup} has {len(report.problems)} problems: {named}")
        graph.run.notes(report)
        return to_xcom(report)


def _access(graph: str) -> StoreAccess:
    """The store as the graph's connection reaches it. Reads the connection."""
    from omnigraph_ops.storage.location import StoreAccess

    return StoreAccess(variables=OmnigraphHook(graph).address().store)
