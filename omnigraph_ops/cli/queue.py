"""`optimize --queue`: hand the run to the nightly DAG and return at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.options import flag, request_of
from omnigraph_ops.errors import InvalidInput, OpsError, OutcomeUnknown, UsageError
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.stages.optimize.stage import OptimizeRequest
from omnigraph_ops.storage.location import real_place
from omnigraph_ops.views.view import View

if TYPE_CHECKING:
    import httpx

QUEUE = flag(
    "queue", "Do not wait: start the nightly DAG at OMNIGRAPH_OPS_AIRFLOW_URL (token in OMNIGRAPH_OPS_AIRFLOW_TOKEN)."
)
_NOT_FOR_A_NIGHT = {"tables", "exclusive", "defer_index_remap"}
URL = "OMNIGRAPH_OPS_AIRFLOW_URL"
TOKEN = "OMNIGRAPH_OPS_AIRFLOW_TOKEN"
_SECONDS = 30.0


def queued(call: Call) -> int | None:
    """Start the DAG, with what the options say; None where they do not ask for that. Triggers the nightly DAG."""
    if not call.options["queue"]:
        return None
    from omnigraph_ops.config.graph_entries import NIGHTLY, nightly_dag_id

    if call.given("tables", "exclusive", "fence", "spark"):
        raise UsageError(
            "--queue starts the nightly DAG, which takes neither --table nor --exclusive nor --fence nor --spark; its "
            "rewrites run on Spark from OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES on; nothing was queued"
        )
    if call.options["defer_index_remap"]:
        raise UsageError("--queue: set OMNIGRAPH_OPS_DEFER_INDEX_REMAP where Airflow runs instead")
    wanted = request_of(OptimizeRequest, call.options).model_dump(mode="json", exclude=_NOT_FOR_A_NIGHT)
    graph = call.open()
    name = _name_in_file(graph.target)
    dag_id = NIGHTLY if name is None else nightly_dag_id(name)
    run = queue_run(dag_id, {"graph": name or graph.target, **{key: value for key, value in wanted.items() if value}})
    call.emit(run, View(title=f"queued {run.dag_run_id} of {run.dag_id} for {graph.uri} ({run.state})"))
    return 0


def _name_in_file(target: str) -> str | None:
    """What the graphs file calls the graph that lies there; None: no file is named, or it does not say. Reads."""
    from omnigraph_ops.config.graph_entries import GRAPHS_FILE
    from omnigraph_ops.config.graphs_file import read_graphs

    file = os.environ.get(GRAPHS_FILE)
    entries = read_graphs(file).graphs if file else ()
    return next((entry.name for entry in entries if real_place(entry.root) == real_place(target)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """A run that Airflow accepted."""

    dag_id: str
    dag_run_id: str
    state: str


def queue_run(dag_id: str, conf: Mapping[str, object]) -> QueuedRun:
    """Start a run of a nightly DAG with these params; address and token come from the environment. Triggers a run.

    Raises:
        InvalidInput: no address or no token; nothing was sent.
        OpsError: the DAG is paused, Airflow refused the run, or could not be reached.
        OutcomeUnknown: no answer came, or one that does not tell; the message names the run to look for.
    """
    base, token = os.environ.get(URL, "").rstrip("/"), os.environ.get(TOKEN, "")
    if not _is_address(base):
        raise InvalidInput(f"--queue needs {URL}, the http:// or https:// address of Airflow; nothing was queued")
    if not token:
        raise InvalidInput(f"--queue needs an Airflow API token in {TOKEN}; nothing was queued")
    run_id = f"queued__{new_ulid()}"
    unknown = f"look for the run {run_id} of {dag_id} before queueing again"
    _refuse_paused(base, token, dag_id)
    answer = _sent(base, token, dag_id, {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf)}, unknown)
    if not answer.is_success:
        refusal = f"{answer.status_code} {_detail(answer)}"
        if answer.is_server_error:
            # Of a proxy, perhaps, before an Airflow that took the run.
            raise OutcomeUnknown(f"Airflow at {base} did not say whether it took the run ({refusal}); {unknown}")
        raise OpsError(f"Airflow at {base} refused the run ({refusal}); nothing was queued{_remedy(answer)}")
    try:
        run = answer.json()
        return QueuedRun(dag_id=dag_id, dag_run_id=str(run.get("dag_run_id", run_id)), state=str(run.get("state")))
    except (ValueError, AttributeError):
        raise OutcomeUnknown(f"Airflow at {base} gave a strange answer; {unknown}") from None


def _refuse_paused(base: str, token: str, dag_id: str) -> None:
    """Raise `OpsError` if the DAG is paused: Airflow takes a run then, and never starts it. Reads."""
    import httpx

    from omnigraph_ops.config.graph_entries import GRAPHS_FILE, NIGHTLY

    try:
        found = _asked("GET", f"{base}/api/v2/dags/{dag_id}", token).json()
    except (httpx.HTTPError, ImportError, ValueError):
        return  # what starts the run says more
    if not (isinstance(found, dict) and found.get("is_paused") is True):
        return
    other = "" if dag_id != NIGHTLY else f", or set {GRAPHS_FILE} here if the graph has a DAG of its own"
    raise OpsError(f"the DAG {dag_id} is paused, so no run of it would start; nothing was queued; unpause it{other}")


def _sent(base: str, token: str, dag_id: str, body: Mapping[str, object], unknown: str) -> httpx.Response:
    """What Airflow answers to a run. Triggers the run."""
    import httpx

    try:
        return _asked("POST", f"{base}/api/v2/dags/{dag_id}/dagRuns", token, body)
    except (httpx.ConnectError, httpx.ConnectTimeout, ImportError) as error:
        # ImportError: a SOCKS proxy needs a package that is not there.
        raise OpsError(f"no connection to {base} ({error}); nothing was queued") from None
    except (httpx.HTTPError, ValueError) as error:
        raise OutcomeUnknown(f"Airflow at {base} gave no answer ({error}); {unknown}") from None


def _asked(method: str, url: str, token: str, body: Mapping[str, object] | None = None) -> httpx.Response:
    """Send one request to Airflow."""
    import ssl

    import httpx

    # No redirect is followed: it could carry the token to another host. Trusted is what this machine trusts.
    return httpx.request(
        method,
        url,
        json=body,
        headers={"authorization": f"Bearer {token}", "accept": "application/json"},
        timeout=_SECONDS,
        verify=ssl.create_default_context(),
    )


def _remedy(answer: httpx.Response) -> str:
    """What to do about a refusal that Airflow does not explain; empty where it does. Pure."""
    if answer.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"; correct {URL}: it is the address of Airflow's page, without /api"
    return ""


def _is_address(said: str) -> bool:
    """Whether it names a server and how to talk to it. Pure."""
    import httpx

    try:
        url = httpx.URL(said)
    except httpx.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host)


def _detail(answer: httpx.Response) -> str:
    try:
        detail = answer.json().get("detail")
    except (ValueError, AttributeError):
        return answer.reason_phrase
    return detail if isinstance(detail, str) else json.dumps(detail)[:300]
