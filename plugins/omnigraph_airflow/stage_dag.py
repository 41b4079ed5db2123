"""The manual DAG of a stage that plans first: look, ask, carry out exactly what was looked at, report."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pendulum
from airflow.sdk import DAG, Param, TriggerRule

from omnigraph_airflow.forms import ALLOW_YOUNG, FORCE, in_params, stage_params
from omnigraph_airflow.operators.base import task_args
from omnigraph_airflow.operators.recovery import CheckRecoveryOperator
from omnigraph_airflow.operators.report import ReportOperator
from omnigraph_airflow.operators.stages import stage_tasks
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.stages.stage import AnyPlanned, Effect

ASKED_IN_FORM: Mapping[str, Any] = {
    "answer_within": None,
    "only_confirmed": True,
    "confirmed": "{{ params.confirm }}",
    "digest": "{{ params.digest }}",
}
"""What every approval of these DAGs has: the trigger form confirms, and may name the plan.

Which graph a run is about is known when it asks, and with it how long a question waits.
"""


_MOST_RUNS = 64


def manual_dag(*, dag_id: str, params: Mapping[str, Param], doc_md: str | None) -> DAG:
    """Such a DAG, without its tasks: no schedule, retries only where a retry can help. Pure."""
    return DAG(
        dag_id=dag_id,
        schedule=None,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,
        # Runs about other graphs do not wait for the answer that one of them waits for.
        max_active_runs=_MOST_RUNS,
        default_args=task_args(params),
        render_template_as_native_obj=True,
        params=dict(params),
        tags=["omnigraph", dag_id.removeprefix("omnigraph_")],
        doc_md=doc_md,
    )


_EFFECTS = {Effect.DESTROYS: "**destroys**"}


def stage_text(stage: AnyPlanned) -> str:
    """The page about the DAG, as Markdown. Pure."""
    tasks, what = stage.tasks, stage.summary.partition(". ")[0].removesuffix(".")
    if stage.measure:
        alone = "what is within the bounds of the form is done, and a larger plan waits"
    else:
        alone = f"{stage.routine}, and any other plan waits" if stage.routine else "the run waits"
    text = f"""# {what}

| Task | What it does | Effect |
|---|---|---|
| `check_recovery` | settles what `recover` can prove, removes what killed runs left, or stops | publishes, rolls back |
| `{tasks.plan}` | {_first_sentence(stage.plan)} | reads, keeps the plan in the graph |
| `{tasks.approve}` | a run without **Confirm** stops here | |
| `{tasks.apply}` | {_first_sentence(stage.apply)} | {_EFFECTS.get(stage.effect, stage.effect.value)} |
| `report` | what happened; red when anything failed, or a question got no Approve | reads, writes the history |

Trigger it once to look: the plan is in the log of `{tasks.plan}`, with its digest. Trigger it again with **Confirm**
and that digest to carry out exactly what you saw. With **Confirm** alone, {alone} for an approval under
*Required Actions*. Where a graph has approvers, **Confirm** and a digest approve nothing: one of them has to answer
there.
"""
    return f"{text}\n{stage.about}\n" if stage.about else text


def _first_sentence(of: Callable[..., Any]) -> str:
    """What the docstring of a step says that it does. Pure."""
    sentence = (inspect.getdoc(of) or "").partition(". ")[0]
    return sentence[:1].lower() + sentence[1:]


def stage_dag(name: str) -> DAG:
    """The DAG of that stage, started by hand. Reads the graphs file."""
    stage = planned(name)
    with manual_dag(dag_id=stage.dag_id, params=stage_params(stage), doc_md=stage_text(stage)) as dag:
        recovery = CheckRecoveryOperator(task_id="check_recovery")
        young = in_params([ALLOW_YOUNG]) if stage.younger_in_forms else {}
        force = in_params([FORCE]) if stage.switch else {}
        plan, carried_out = stage_tasks(
            name, planning={"digest": "{{ params.digest }}", **young}, asking={**force, **ASKED_IN_FORM}
        )
        report = ReportOperator(task_id="report", trigger_rule=TriggerRule.ALL_DONE)

        recovery >> plan
        carried_out >> report
    return dag
