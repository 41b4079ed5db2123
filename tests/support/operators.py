"""Operators of one run, executed one after the other without a scheduler, and what is on disk around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

from omnigraph_ops.coordination.fence import current_lock
from omnigraph_ops.coordination.state import HOLDS_DIR
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.outcomes import audit_log
from tests.support.rows import Rows, rows_everywhere

ASK = "airflow.providers.standard.operators.hitl.upsert_hitl_detail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one task ended: `success`, `skipped`, `failed` for good, `retry`, `waits`, or `asks` a person."""

    state: str
    sentence: str = ""
    """Of a skip, a failure or a question."""
    value: Any = None
    """What it returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What a graph looks like on disk, by the kinds of thing that a stage may change."""

    version: int
    """Of the graph manifest."""
    pins: dict[str, int]
    heads: dict[str, int]
    versions: dict[str, tuple[int, ...]]
    """Every version of a table's main chain."""
    rows: dict[str | None, Rows]
    sidecars: frozenset[str]
    holds: frozenset[str]
    locked: bool
    decided: int
    """Entries of the audit log."""

    def changed(self, after: Disk) -> set[str]:
        """The names of what differs. Pure."""
        return {f.name for f in fields(self) if getattr(self, f.name) != getattr(after, f.name)}


def disk_of(uri: str) -> Disk:
    """Open the graph anew and look; every pin of every branch is scanned. Reads."""
    graph = open_graph(uri)
    entries = graph.state().entries
    heads = {e.table_key: graph.open_head(e) for e in entries}
    return Disk(
        version=graph.state().manifest_version,
        pins={e.table_key: e.version for e in entries},
        heads={key: int(head.version) for key, head in heads.items()},
        versions={key: tuple(v["version"] for v in head.versions()) for key, head in heads.items()},
        rows=rows_everywhere(graph),
        sidecars=sidecar_names(graph.storage) if graph.format.publishes else frozenset(),
        holds=frozenset(graph.storage.list(HOLDS_DIR)),
        locked=graph.format.publishes and current_lock(graph) is not None,
        decided=len(audit_log.log_of(graph.storage, "").entries),
    )


@dataclass(slots=True)
class Run:
    """XComs of one run by task and key; who triggered it by hand."""

    graph: Graph
    dag_id: str = "a_dag"
    xcoms: dict[tuple[str, str], Any] = field(default_factory=dict)
    by: str = "ann"
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    def execute(self, operator: Any) -> Outcome:
        """Execute the operator as Airflow's worker would, and keep what it returns. Writes."""
        from airflow.sdk.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowSensorTimeout,
            AirflowSkipException,
            TaskAwaitingInput,
        )

        from omnigraph_ops.errors import OpsError

        try:
            with _questions():
                value = operator.execute(self._context(operator))
        except AirflowSkipException as skip:
            return Outcome(state="skipped", sentence=str(skip))
        except TaskAwaitingInput:
            return Outcome(state="asks", sentence=operator.subject)
        except AirflowFailException as error:
            return Outcome(state="failed", sentence=str(error))
        except AirflowSensorTimeout as waited:
            return Outcome(state="waits", sentence=str(waited))
        except (OpsError, AirflowException) as error:
            return Outcome(state="retry", sentence=str(error))
        self.xcoms[operator.task_id, "return_value"] = value
        return Outcome(state="success", value=value)

    def of(self, task_id: str, key: str = "return_value") -> Any:
        """What a task left."""
        return self.xcoms[task_id, key]

    def _context(self, operator: Any) -> Any:
        run = SimpleNamespace(run_type="manual", start_date=self.started, triggering_user_name=self.by, clear_number=0)
        instance = _Instance(self, operator.task_id)
        return {
            "ti": instance,
            "task_instance": instance,
            "run_id": "a run",
            "dag_run": run,
            "dag": SimpleNamespace(dag_id=self.dag_id),
            "task": SimpleNamespace(upstream_task_ids={"the plan"}),
        }


class _Instance:
    """The task instance of one task of a `Run`."""

    id = "0" * 32
    map_index = -1
    try_number = 1

    def __init__(self, run: Run, task_id: str) -> None:
        self.run_id, self.dag_id, self.task_id, self._run = "a run", run.dag_id, task_id, run

    def xcom_push(self, *, key: str, value: Any) -> None:
        self._run.xcoms[self.task_id, key] = value

    def xcom_pull(self, *, task_ids: str, key: str = "return_value") -> Any:
        return self._run.xcoms.get((task_ids, key))


@contextmanager
def _questions() -> Iterator[None]:
    """A question is asked by parking the task; Airflow's database is not there to keep it."""
    with mock.patch(ASK):
        yield
