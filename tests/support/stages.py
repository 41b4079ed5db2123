"""Every operator of the package on one graph, in the order of its stage, wired to what the ones before it left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from omnigraph_ops.graph import Graph
from omnigraph_ops.models.optimize import Executor
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.stages.stage import PartedStage
from tests.support.operators import Run
from tests.support.tables import PERSON
from tests.support.writers import entry_of

ORPHAN = "0" * 24 + "f" * 26 + ".lance"
SPARK = "airflow.providers.apache.spark.operators.spark_submit.SparkSubmitOperator.execute"
CHAINS = {
    "look": ("wait_for_quiet_graph", "check_recovery"),
    "optimize": ("plan_optimize", "light_tables", "optimize_table", "summarize"),
    "submit": ("submit_rewrite",),
    "repair": ("preview_repair", "approve_repair", "apply_repair"),
    "cleanup": ("plan_cleanup", "approve_cleanup", "cleanup_table"),
    "orphans": ("plan_orphans", "approve_orphans", "remove_orphans"),
    "backup": ("freeze", "copy", "verify", "unfreeze"),
}
"""The tasks of each stage in their order."""


def before(task_id: str) -> tuple[str, ...]:
    """The tasks of the same stage that run before that one. Pure."""
    chain = next(c for c in CHAINS.values() if task_id in c)
    return chain[: chain.index(task_id)]


def with_orphan(graph: Graph) -> Path:
    """A data file of a write that died eight days ago. Writes."""
    path = Path(graph.table_uri(entry_of(graph, PERSON)), "data", ORPHAN)
    path.write_bytes(b"left behind")
    os.utime(path, (time.time() - 8 * 86400,) * 2)
    return path


def operator(run: Run, task_id: str) -> Any:
    """The operator of a task, as its DAG makes it and the worker renders it. Pure."""
    made = _MAKERS[task_id](run)
    made["kwargs"].setdefault("graph", run.graph.uri)
    return made["cls"](task_id=task_id, **made["kwargs"])


@contextmanager
def spark_in_process() -> Iterator[None]:
    """Let a submit run its application in this process, on no Spark at all."""
    from airflow.sdk.exceptions import AirflowException

    from omnigraph_ops.spark import application, rewrite_job
    from omnigraph_ops.stages.optimize.table_run import InProcessExecutor

    def submit(made: Any, _context: Any) -> None:
        executor = mock.patch.object(rewrite_job, "SparkExecutor", lambda _spark: InProcessExecutor())
        with executor, mock.patch.object(application, "SparkSession"):
            code = application.main(made.application_args)
        if code:
            raise AirflowException(f"Cannot execute: spark-submit. Error code is: {code}.")

    with mock.patch(SPARK, submit):
        yield


def _made(cls: Any, **kwargs: Any) -> dict[str, Any]:
    return {"cls": cls, "kwargs": kwargs}


def _wait_for_quiet_graph(_run: Run) -> dict[str, Any]:
    from omnigraph_airflow.sensors.quiet_graph import QuietGraphSensor

    return _made(QuietGraphSensor, quiet_seconds=0, mode="poke", timeout=0.1, poke_interval=0.01)


def _check_recovery(_run: Run) -> dict[str, Any]:
    from omnigraph_airflow.operators.recovery import CheckRecoveryOperator

    return _made(CheckRecoveryOperator)


def _plan_optimize(_run: Run) -> dict[str, Any]:
    from omnigraph_airflow.operators.optimize import PlanOptimizeOperator

    return _made(PlanOptimizeOperator)


def _light_tables(run: Run) -> dict[str, Any]:
    from omnigraph_airflow.operators.optimize import SelectTablesOperator

    return _made(SelectTablesOperator, plan=run.of("plan_optimize"), runs_on=Executor.IN_PROCESS)


def _optimize_table(_run: Run) -> dict[str, Any]:
    from omnigraph_airflow.operators.optimize import OptimizeTablesOperator

    return _made(OptimizeTablesOperator, lot=[PERSON])


def _summarize(run: Run) -> dict[str, Any]:
    from omnigraph_airflow.operators.optimize import SummarizeOptimizeOperator

    return _made(SummarizeOptimizeOperator, plan=run.of("plan_optimize"), table_tasks=["optimize_table"])


def _submit_rewrite(_run: Run) -> dict[str, Any]:
    from omnigraph_airflow.operators.spark_jobs import SubmitRewriteOperator

    return _made(SubmitRewriteOperator, lot=[PERSON], result="__maintenance/results/a.json")


def _planning(stage: str, **said: Any) -> Callable[[Run], dict[str, Any]]:
    def make(_run: Run) -> dict[str, Any]:
        from omnigraph_airflow.operators.stages import PlanStageOperator

        return _made(PlanStageOperator, stage=stage, **said)

    return make


def _asking(stage: str, **said: Any) -> Callable[[Run], dict[str, Any]]:
    def make(run: Run) -> dict[str, Any]:
        from omnigraph_airflow.operators.stages import ApproveStageOperator

        return _made(ApproveStageOperator, stage=stage, plan=_kept(run, stage), **_CONFIRMED, **said)

    return make


def _applying(stage: str) -> Callable[[Run], dict[str, Any]]:
    def make(run: Run) -> dict[str, Any]:
        from omnigraph_airflow.operators.stages import ApplyPartsOperator, ApplyStageOperator

        of = planned(stage)
        said = {"stage": stage, "plan": _kept(run, stage), "approval": of.tasks.approve}
        if isinstance(of, PartedStage):
            return _made(ApplyPartsOperator, lot=[PERSON], **said)
        return _made(ApplyStageOperator, **said)

    return make


def _kept(run: Run, stage: str) -> Any:
    """The name of the plan that the planning task kept."""
    of = planned(stage)
    return run.of(of.tasks.plan, "plan" if isinstance(of, PartedStage) else "return_value")


def _freeze(_run: Run) -> dict[str, Any]:
    from omnigraph_airflow.operators.backup import FreezeOperator

    return _made(FreezeOperator, request={"reason": "backup"})


def _copy(run: Run) -> dict[str, Any]:
    from omnigraph_airflow.operators.backup import SubmitBackupOperator

    request = {"destination": f"{run.graph.uri}-backups", "freeze_id": run.of("freeze"), "incremental": True}
    return _made(SubmitBackupOperator, request=request)


def _verify(run: Run) -> dict[str, Any]:
    from omnigraph_airflow.operators.backup import SubmitVerifyOperator

    return _made(SubmitVerifyOperator, backup=run.of("copy"))


def _unfreeze(run: Run) -> dict[str, Any]:
    from omnigraph_airflow.operators.backup import UnfreezeOperator

    return _made(UnfreezeOperator, freeze_id=run.of("freeze"))


_WITHIN = {"count": 10_000, "size": "1TiB"}
_CONFIRMED: dict[str, Any] = {"answer_within": timedelta(hours=1), "confirmed": True}
_MAKERS: dict[str, Callable[[Run], dict[str, Any]]] = {
    **{
        task_id: globals()[f"_{task_id}"]
        for chain in ("look", "optimize", "submit", "backup")
        for task_id in CHAINS[chain]
    },
    "preview_repair": _planning("repair"),
    "approve_repair": _asking("repair"),
    "apply_repair": _applying("repair"),
    "plan_cleanup": _planning("cleanup", request={"keep": 1}, after={}),
    "approve_cleanup": _asking("cleanup", within=_WITHIN),
    "cleanup_table": _applying("cleanup"),
    "plan_orphans": _planning("orphans"),
    "approve_orphans": _asking("orphans", within=_WITHIN),
    "remove_orphans": _applying("orphans"),
}
