"""`optimize --queue`: hand the run to the nightly DAG and return at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.options import flag, request_of
from omnigraph_ops.errors import InvalidInput, OpsError, OutcomeUnknown, UsageError
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.stages.optimize.stage import OptimizeRequest
from omnigraph_ops.views.view import View

if TYPE_CHECKING:
    import httpx

QUEUE = flag(
    "queue", "Do not wait: start the nightly DAG at OMNIGRAPH_OPS_AIRFLOW_URL (token in OMNIGRAPH_OPS_AIRFLOW_TOKEN)."
)
_NOT_FOR_A_NIGHT = {"tables", "exclusive", "defer_index_remap"}
DAG_ID = "omnigraph_maintenance"
URL = "OMNIGRAPH_OPS_AIRFLOW_URL"
TOKEN = "OMNIGRAPH_OPS_AIRFLOW_TOKEN"
_SECONDS = 30.0


def queued(call: Call) -> int | None:
    """Start the DAG, with what the options say; None where they do not ask for that. Triggers the nightly DAG."""
    if not call.options["queue"]:
        return None
    if call.given("tables", "exclusive", "fence", "spark"):
        raise UsageError(
            "--queue starts the nightly DAG, which takes neither --table nor --exclusive nor --fence nor --spark; its "
            "rewrites run on Spark from OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES on; nothing was queued"
        )
    if call.options["defer_index_remap"]:
        raise UsageError("--queue: set OMNIGRAPH_OPS_DEFER_INDEX_REMAP where Airflow runs instead")
    wanted = request_of(OptimizeRequest, call.options).model_dump(mode="json", exclude=_NOT_FOR_A_NIGHT)
    graph = call.open()
    run = queue_run({"graph": graph.target, **{name: value for name, value in wanted.items() if value}})
    call.emit(run, View(title=f"queued {run.dag_run_id} of {run.dag_id} for {graph.uri} ({run.state})"))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """A run that Airflow accepted."""

    dag_id: str
    dag_run_id: str
    state: str


def queue_run(conf: Mapping[str, object]) -> QueuedRun:
    """Start a run of the nightly DAG with these params; address and token come from the environment. Triggers a run.

    Raises:
        InvalidInput: no address or no token; nothing was sent.
        OpsError: Airflow refused the run, or could not be reached.
        OutcomeUnknown: no answer came, or one that does not tell; the message names the run to look for.
    """
    import ssl

    import httpx

    base, token = os.environ.get(URL, "").rstrip("/"), os.environ.get(TOKEN, "")
    if not _is_address(base):
        raise InvalidInput(f"--queue needs {URL}, the http:// or https:// address of Airflow; nothing was queued")
    if not token:
        raise InvalidInput(f"--queue needs an Airflow API token in {TOKEN}; nothing was queued")
    run_id = f"queued__{new_ulid()}"
    try:
        # No redirect is followed: it could carry the token to another host. Trusted is what this machine trusts.
        answer = httpx.post(
            f"{base}/api/v2/dags/{DAG_ID}/dagRuns",
            json={"dag_run_id": run_id, "logical_date": None, "conf": dict(conf)},
            headers={"authorization": f"Bearer {token}", "accept": "application/json"},
            timeout=_SECONDS,
            verify=ssl.create_default_context(),
        )
    except (httpx.ConnectError, httpx.ConnectTimeout, ImportError) as error:
        # ImportError: a SOCKS proxy needs a package that is not there.
        raise OpsError(f"no connection to {base} ({error}); nothing was queued") from None
    except (httpx.HTTPError, ValueError) as error:
        raise _unknown(f"Airflow at {base} gave no answer ({error})", run_id) from None
    if not answer.is_success:
        refusal = f"{answer.status_code} {_detail(answer)}"
        if answer.is_server_error:
            # Of a proxy, perhaps, before an Airflow that took the run.
            raise _unknown(f"Airflow at {base} did not say whether it took the run ({refusal})", run_id)
        raise OpsError(f"Airflow at {base} refused the run ({refusal}); nothing was queued")
    try:
        run = answer.json()
        return QueuedRun(dag_id=DAG_ID, dag_run_id=str(run.get("dag_run_id", run_id)), state=str(run.get("state")))
    except (ValueError, AttributeError):
        raise _unknown(f"Airflow at {base} gave a strange answer", run_id) from None


def _is_address(said: str) -> bool:
    """Whether it names a server and how to talk to it. Pure."""
    import httpx

    try:
        url = httpx.URL(said)
    except httpx.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host)


def _unknown(what: str, run_id: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"{what}; look for the run {run_id} of {DAG_ID} before queueing again")


def _detail(answer: httpx.Response) -> str:
    try:
        detail = answer.json().get("detail")
    except (ValueError, AttributeError):
        return answer.reason_phrase
    return detail if isinstance(detail, str) else json.dumps(detail)[:300]
