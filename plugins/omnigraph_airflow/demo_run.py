"""Follows one run of the demo: prints what happens, answers the approvals as a person would."""

from __future__ import annotations

import contextlib
import textwrap
import time
from typing import Any

import httpx

from omnigraph_airflow.demo_airflow import DemoAirflow, DemoError

# Answering sooner can fail the gate: the executor's own event about the parked task is still on its way.
READING_SECONDS = 10.0
RUN_SECONDS = 900
SHOWN = {"running", "success", "failed", "skipped", "upstream_failed", "up_for_retry", "awaiting_input"}
DONE = {"success", "failed"}


class RunFollower:
    """Prints each state change of a run once, with the table it is about."""

    def __init__(self, airflow: DemoAirflow, run_id: str) -> None:
        self._airflow = airflow
        self._path = airflow.run_path(run_id)
        self._started = time.monotonic()
        self._seen: dict[tuple[str, int], str] = {}
        self._asked: dict[str, float] = {}

    def follow(self) -> str:
        """Until the run ends; returns its state. Writes (answers)."""
        while time.monotonic() - self._started < RUN_SECONDS:
            if not self._airflow.alive():
                raise DemoError(f"Airflow stopped, see {self._airflow.log_file}")
            # A busy machine answers late; an answer that landed is no longer asked for.
            with contextlib.suppress(httpx.TransportError):
                state = self._step()
                if state in DONE:
                    return state
            time.sleep(0.5)
        raise DemoError(f"the run did not end within {RUN_SECONDS} s")

    def _step(self) -> str:
        state = str(self._airflow.call("GET", self._path)["state"])
        self._show_changes()
        if state not in DONE:
            self._answer()
        return state

    def report(self) -> Any:
        """The report that the run's last task left. Reads."""
        path = f"{self._path}/taskInstances/report/xcomEntries/report"
        return self._airflow.call("GET", path)["value"]

    def _show_changes(self) -> None:
        found = self._airflow.call("GET", f"{self._path}/taskInstances?limit=200")["task_instances"]
        for task in sorted(found, key=lambda t: (t["end_date"] or "9", t["start_date"] or "9")):
            key, state = (task["task_id"], task["map_index"]), task["state"]
            if state not in SHOWN or self._seen.get(key) == state:
                continue
            if state == "running" and task["rendered_map_index"] == str(task["map_index"]):
                continue  # which table it is about is known a moment later
            self._seen[key] = state
            self._say(_task_line(task))

    def _answer(self) -> None:
        pending = self._airflow.call("GET", f"{self._path}/hitlDetails?response_received=false")
        for request in pending["hitl_details"]:
            task_id = request["task_instance"]["task_id"]
            if self._seen.get((task_id, -1)) != "awaiting_input":
                continue
            if task_id not in self._asked:
                self._asked[task_id] = time.monotonic()
                self._show_request(request)
            elif time.monotonic() - self._asked[task_id] > READING_SECONDS:
                self._approve(task_id)

    def _show_request(self, request: dict[str, Any]) -> None:
        print(f"\n    Required Actions: {request['subject']}")
        print(textwrap.indent(request["body"], "    | ", lambda line: True))
        print(f"\n    The demo reads this for {READING_SECONDS:.0f} s, as a person would in the browser.")

    def _approve(self, task_id: str) -> None:
        answer = {"chosen_options": ["Approve"], "params_input": {}}
        self._airflow.call("PATCH", f"{self._path}/taskInstances/{task_id}/-1/hitlDetails", answer)
        print(f"    It answers Approve to {task_id} through Airflow's REST API, as the user admin.\n")
        self._asked[task_id] = float("inf")

    def _say(self, text: str) -> None:
        elapsed = int(time.monotonic() - self._started)
        print(f"  {elapsed // 60}:{elapsed % 60:02d}  {text}", flush=True)


def _task_line(task: dict[str, Any]) -> str:
    table = task["rendered_map_index"] or (str(task["map_index"]) if task["map_index"] >= 0 else "")
    seconds = f"{task['duration']:.1f} s" if task["state"] in DONE and task["duration"] else ""
    return f"{task['task_id']:<21} {table:<24} {task['state']:<15} {seconds}".rstrip()
