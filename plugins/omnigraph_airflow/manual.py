"""What the DAGs that people trigger by hand have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import Param, dag

from omnigraph_airflow.decisions import ANSWER_WITHIN

ASKED_IN_FORM: Mapping[str, Any] = {
    "answer_within": ANSWER_WITHIN,
    "only_confirmed": True,
    "confirmed": "{{ params.confirm }}",
    "digest": "{{ params.digest }}",
}
"""What every approval of these DAGs has: the trigger form confirms, and may name the plan."""


def manual_dag(*, dag_id: str, params: Mapping[str, Param], doc_md: str | None) -> Callable[[Callable[[], None]], Any]:
    """The `@dag` of such a DAG: no schedule, one run at a time, retries only where a retry can help. Pure."""
    return dag(
        dag_id=dag_id,
        schedule=None,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        # Only what may succeed later is raised as retryable (omnigraph_airflow.errors).
        default_args={"owner": "omnigraph", "retries": 2, "retry_delay": timedelta(minutes=2)},
        render_template_as_native_obj=True,
        params=dict(params),
        tags=["omnigraph", dag_id.removeprefix("omnigraph_")],
        doc_md=doc_md,
    )
