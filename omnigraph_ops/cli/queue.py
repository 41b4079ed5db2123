"""`optimize --queue`: hand the run to the nightly DAG and return at once."""

from __future__ import annotations

from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.options import flag, request_of
from omnigraph_ops.errors import UsageError
from omnigraph_ops.stages.optimize.stage import OptimizeRequest
from omnigraph_ops.views.view import View

QUEUE = flag(
    "queue", "Do not wait: start the nightly DAG at OMNIGRAPH_OPS_AIRFLOW_URL (token in OMNIGRAPH_OPS_AIRFLOW_TOKEN)."
)
_NOT_FOR_A_NIGHT = {"tables", "exclusive", "defer_index_remap"}


def queued(call: Call) -> int | None:
    """Start the DAG, with what the options say; None where they do not ask for that. Triggers the nightly DAG."""
    if not call.options["queue"]:
        return None
    from omnigraph_ops.cli.airflow_api import queue_run

    if call.given("tables", "exclusive", "fence"):
        raise UsageError("--queue starts the nightly DAG, which takes neither --table nor --exclusive nor --fence")
    if call.options["defer_index_remap"]:
        raise UsageError("--queue: set OMNIGRAPH_OPS_DEFER_INDEX_REMAP where Airflow runs instead")
    wanted = request_of(OptimizeRequest, call.options).model_dump(mode="json", exclude=_NOT_FOR_A_NIGHT)
    graph = call.open()
    run = queue_run({"graph": graph.target, **{name: value for name, value in wanted.items() if value}})
    call.emit(run, View(title=f"queued {run.dag_run_id} of {run.dag_id} for {graph.uri} ({run.state})"))
    return 0
