"""Airflow's REST API, as one of the stack's users."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import httpx

DAG_ID = "omnigraph_maintenance"
RUN_SECONDS = 900
# Airflow can lose an answer that comes within seconds of the question; a person is slower.
READING_SECONDS = 12.0
ENDED = {"success", "failed"}


class Refused(Exception):
    """Airflow answered with an error; `status` says which."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Client:
    """One user's session."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._url, self._token = url, ""
        self._token = self.call("POST", "/auth/token", {"username": user, "password": password})["access_token"]

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One call; `Refused` when Airflow does. May write."""
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        answer = httpx.request(method, self._url + path, json=body, headers=headers, timeout=60)
        if not answer.is_success:
            raise Refused(answer.status_code, answer.text[:500])
        return answer.json() if answer.content else None

    def trigger(self, conf: Mapping[str, Any]) -> str:
        """Start a run; its id. Triggers a run."""
        body = {"logical_date": None, "conf": conf}
        return str(self.call("POST", f"/api/v2/dags/{DAG_ID}/dagRuns", body)["dag_run_id"])

    def runs(self) -> list[dict[str, Any]]:
        """Every run of the nightly DAG, the oldest first. Reads."""
        found: list[dict[str, Any]] = self.call("GET", f"/api/v2/dags/{DAG_ID}/dagRuns?order_by=id")["dag_runs"]
        return found

    def follow(self, run_id: str, *, watch: Callable[[], None] = lambda: None) -> str:
        """Until the run has ended, its questions answered with Approve; its state. Answers questions."""
        asked: dict[str, float] = {}
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            state = str(self.call("GET", _run(run_id))["state"])
            if state in ENDED:
                return state
            watch()
            self._answer(run_id, asked)
            time.sleep(1)
        raise TimeoutError(f"{run_id} did not end: {self.tasks(run_id)}")

    def tasks(self, run_id: str) -> dict[str, str]:
        """State by task and map index. Reads."""
        found = self.call("GET", f"{_run(run_id)}/taskInstances?limit=200")["task_instances"]
        return {f"{t['task_id']}[{t['map_index']}]" if t["map_index"] >= 0 else t["task_id"]: t["state"] for t in found}

    def report(self, run_id: str) -> dict[str, Any]:
        """What the last task left. Reads."""
        value = self.call("GET", f"{_run(run_id)}/taskInstances/report/xcomEntries/report")["value"]
        found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
        return found

    def _answer(self, run_id: str, asked: dict[str, float]) -> None:
        pending = "hitlDetails?response_received=false&state=awaiting_input"
        for question in self.call("GET", f"{_run(run_id)}/{pending}")["hitl_details"]:
            task = question["task_instance"]["task_id"]
            if time.monotonic() - asked.setdefault(task, time.monotonic()) > READING_SECONDS:
                answer = {"chosen_options": ["Approve"], "params_input": {}}
                self.call("PATCH", f"{_run(run_id)}/taskInstances/{task}/-1/hitlDetails", answer)
                asked[task] = float("inf")


def _run(run_id: str) -> str:
    return f"/api/v2/dags/{DAG_ID}/dagRuns/{quote(run_id, safe='')}"
