"""Airflow's public REST API, as far as the shell needs it: start a run of the nightly DAG."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph_ops.errors import InvalidInput, OpsError, OutcomeUnknown
from omnigraph_ops.graph.ids import new_ulid

DAG_ID = "omnigraph_maintenance"
URL = "OMNIGRAPH_OPS_AIRFLOW_URL"
TOKEN = "OMNIGRAPH_OPS_AIRFLOW_TOKEN"
_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """A run that Airflow accepted."""

    dag_id: str
    dag_run_id: str
    state: str


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could carry the token to another host."""

    def redirect_request(self, *_args: Any, **_options: Any) -> None:
        return None


def queue_run(conf: Mapping[str, object]) -> QueuedRun:
    """Start a run of the nightly DAG with these params; address and token come from the environment. Triggers a run.

    Raises:
        InvalidInput: no address or no token; nothing was sent.
        OpsError: Airflow refused the run, or could not be reached.
        OutcomeUnknown: no answer came; the message names the run to look for.
    """
    base, token = os.environ.get(URL, "").rstrip("/"), os.environ.get(TOKEN, "")
    if not base.startswith(("http://", "https://")):
        raise InvalidInput(f"--queue needs {URL}, the http:// or https:// address of Airflow; nothing was queued")
    if not token:
        raise InvalidInput(f"--queue needs an Airflow API token in {TOKEN}; nothing was queued")
    run_id = f"queued__{new_ulid()}"
    request = urllib.request.Request(
        f"{base}/api/v2/dags/{DAG_ID}/dagRuns",
        method="POST",
        data=json.dumps({"dag_run_id": run_id, "logical_date": None, "conf": dict(conf)}).encode(),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json", "accept": "application/json"},
    )
    answer = _answer(request, base, run_id)
    return QueuedRun(dag_id=DAG_ID, dag_run_id=str(answer.get("dag_run_id", run_id)), state=str(answer.get("state")))


def _answer(request: urllib.request.Request, base: str, run_id: str) -> dict[str, Any]:
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_SECONDS) as response:
            found = json.loads(response.read())
    except urllib.error.HTTPError as error:
        raise OpsError(
            f"Airflow at {base} refused the run ({error.code} {_detail(error)}); nothing was queued"
        ) from None
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.URLError) and isinstance(error.reason, ConnectionRefusedError):
            raise OpsError(f"nothing listens at {base}; nothing was queued") from None
        raise OutcomeUnknown(
            f"Airflow at {base} gave no answer ({error}); look for the run {run_id} of {DAG_ID} before queueing again"
        ) from None
    if not isinstance(found, dict):
        raise OutcomeUnknown(f"Airflow at {base} gave a strange answer; look for the run {run_id} of {DAG_ID}")
    return found


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        detail = json.loads(error.read()).get("detail")
    except (ValueError, AttributeError, OSError):
        return str(error.reason)
    return detail if isinstance(detail, str) else json.dumps(detail)[:300]
