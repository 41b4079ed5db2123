"""A private Airflow for the demo: starts it, follows its run, answers the approvals, stops all of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from omnigraph_airflow import DAGS_FOLDER
from omnigraph_ops.config.graph_entries import NIGHTLY

USER = PASSWORD = "admin"
START_SECONDS = 300
ALIVE_SECONDS = 10.0
"""How often a person who waits is told so."""
CALL_SECONDS = 60
STOP_SECONDS = 20


class DemoError(Exception):
    """The demo cannot go on; the message is one sentence for a person."""


def free_port(wanted: int) -> int:
    """`wanted` if nothing listens there, else a port that the system picks. Reads."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise DemoError("no free port on 127.0.0.1")


def airflow_environment(home: Path, port: int, graph: Path, java: dict[str, str]) -> dict[str, str]:
    """The environment of a private Airflow on SQLite with local Spark. Reads."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW")}
    bin_dir = str(Path(sys.executable).parent)
    url = f"http://localhost:{port}"
    settings = {
        "CORE__DAGS_FOLDER": DAGS_FOLDER,
        "CORE__LOAD_EXAMPLES": False,
        # On a busy machine the first import of Airflow itself takes longer than the 30 s it gives a DAG file.
        "CORE__DAGBAG_IMPORT_TIMEOUT": 120,
        "CORE__PARALLELISM": 4,
        "CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": home / "passwords.json",
        # After five seconds of waiting for another writer, the DAG processor of a busy machine ends for good.
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home.absolute()}/airflow.db?timeout=120",
        "API__HOST": "127.0.0.1",
        "API__PORT": port,
        "API__BASE_URL": url,
        "API__WORKERS": 1,
        # Unpausing would start last night's run beside the one the demo triggers.
        "SCHEDULER__USE_JOB_SCHEDULE": False,
        "SCHEDULER__ENABLE_HEALTH_CHECK": False,
        "LOGGING__WORKER_LOG_SERVER_PORT": free_port(8793),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": free_port(8794),
        "CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
    }
    airflow = {
        f"AIRFLOW_{name}" if name.startswith("CONN") else f"AIRFLOW__{name}": str(v) for name, v in settings.items()
    }
    return {
        **inherited,
        **java,
        **airflow,
        "AIRFLOW_HOME": str(home),
        "OMNIGRAPH_GRAPH": str(graph),
        "PATH": f"{bin_dir}{os.pathsep}{inherited.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
    }


class DemoAirflow:
    """`airflow standalone` in a process group of its own, so that stopping it leaves nothing behind."""

    def __init__(self, home: Path, port: int, environment: dict[str, str]) -> None:
        self.home = home
        self.url = f"http://localhost:{port}"
        self.log_file = home / "standalone.log"
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._token = ""

    def start(self) -> None:
        """Start all components and wait until they are healthy. Writes."""
        self.home.mkdir(parents=True)
        (self.home / "passwords.json").write_text(json.dumps({USER: PASSWORD}))
        command = [sys.executable, "-m", "airflow", "standalone"]
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait("Airflow", self._healthy)
        login = self.call("POST", "/auth/token", {"username": USER, "password": PASSWORD})
        self._token = login["access_token"]
        self._wait(f"the DAG {NIGHTLY}", self._parsed)

    def stop(self) -> None:
        """End every process of the group, first politely. Writes."""
        if self._process is None:
            return
        for how in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, how)
            except ProcessLookupError:
                break
            if self._group_ends(STOP_SECONDS if how == signal.SIGTERM else 5):
                break
        self._process.wait()
        self._process = None

    def alive(self) -> bool:
        """Whether Airflow is still running. Reads."""
        return self._process is not None and self._process.poll() is None

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One REST call; `DemoError` when Airflow refuses it."""
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        # It is on this machine: whatever proxy the environment names is for others.
        answer = httpx.request(
            method, self.url + path, json=body, headers=headers, timeout=CALL_SECONDS, trust_env=False
        )
        if not answer.is_success:
            raise DemoError(f"Airflow answered {answer.status_code} to {method} {path}: {answer.text[:300]}")
        return answer.json() if answer.content else None

    def run_path(self, run_id: str) -> str:
        """REST path of a run of the maintenance DAG. Pure."""
        return f"/api/v2/dags/{NIGHTLY}/dagRuns/{quote(run_id, safe='')}"

    def _healthy(self) -> bool:
        health = self.call("GET", "/api/v2/monitor/health")
        parts = ("metadatabase", "scheduler", "dag_processor")
        return all((health.get(part) or {}).get("status") == "healthy" for part in parts)

    def _parsed(self) -> bool:
        errors = self.call("GET", "/api/v2/importErrors")["import_errors"]
        if errors:
            raise DemoError(f"the DAG does not load: {errors[0]['stack_trace'].strip().splitlines()[-1]}")
        return any(dag["dag_id"] == NIGHTLY for dag in self.call("GET", "/api/v2/dags")["dags"])

    def _wait(self, what: str, ready: Any) -> None:
        started = said = time.monotonic()
        while (now := time.monotonic()) < started + START_SECONDS:
            if now - said >= ALIVE_SECONDS:
                said = now
                print(f"   waiting for {what}, {now - started:.0f} s", flush=True)
            if not self.alive():
                raise DemoError(f"Airflow stopped while starting, see {self.log_file}")
            try:
                if ready():
                    return
            except httpx.TransportError:
                pass  # nothing listens yet
            time.sleep(0.5)
        raise DemoError(f"{what} was not ready after {START_SECONDS} s, see {self.log_file}")

    def _group_ends(self, seconds: float) -> bool:
        assert self._process is not None
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._process.poll()
            try:
                os.killpg(self._process.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.2)
        return False


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
