"""`make demo`: a night of maintenance on a generated graph, in a real Airflow, while you watch.

    python -m omnigraph_airflow.demo [--no-ui] [--home DIR] [--port N]

Everything lives below `--home` (default `.demo`) and is made anew by every run.
"""

from __future__ import annotations

import argparse
import fcntl
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import httpx

from omnigraph_airflow import demo_tables
from omnigraph_airflow.demo_airflow import (
    DAG_ID,
    PASSWORD,
    USER,
    DemoAirflow,
    DemoError,
    airflow_environment,
    free_port,
)
from omnigraph_airflow.demo_run import RunFollower
from omnigraph_ops.errors import NotInstalled, OpsError


def main(argv: list[str] | None = None) -> int:
    """Run the demo; the exit code says whether the night went well. Writes."""
    args = _arguments(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _only_one(args.home):
            return _demo(args)
    except (DemoError, OpsError, OSError, httpx.TransportError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.")
        return 130


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make demo", description="A night of maintenance, in Airflow.", allow_abbrev=False
    )
    parser.add_argument("--no-ui", action="store_true", help="stop by itself when the night is over")
    parser.add_argument("--home", type=Path, default=Path(".demo"), help="where everything is put")
    parser.add_argument("--port", type=int, default=8080, help="of the UI; another one if it is taken")
    args = parser.parse_args(argv)
    args.home = args.home.resolve()
    return args


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def _only_one(home: Path) -> Iterator[None]:
    """Hold the home against a second demo, which would delete it under this one."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DemoError(f"another demo is running in {home}: stop it, or use --home") from None
        for name in ("airflow", "graph"):
            shutil.rmtree(home / name, ignore_errors=True)
        yield


def _demo(args: argparse.Namespace) -> int:
    from omnigraph_ops.spark.java import spark_environment

    for package in ("apache-airflow", "pyspark"):
        if not any(metadata.distributions(name=package)):
            raise NotInstalled.of("the demo", package, "all")
    graph, port = args.home / "graph", free_port(args.port)
    print(f"1. A graph with fragments, stale indexes and one drifted table, in {graph}", flush=True)
    _write_graph(graph)
    before = demo_tables.observe(graph)

    print(
        f"\n2. Airflow (SQLite, local Spark) on port {port}; its log is in {args.home / 'airflow'}",
        flush=True,
    )
    started = time.monotonic()
    airflow_home = args.home / "airflow"
    airflow = DemoAirflow(airflow_home, port, airflow_environment(airflow_home, port, graph, spark_environment()))
    try:
        airflow.start()
        print(f"   ready after {time.monotonic() - started:.0f} s")
        code = _night(airflow, graph, before)
        if not args.no_ui:
            _leave_running(airflow)
        return code
    finally:
        print("Stopping Airflow ...", flush=True)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        airflow.stop()


def _write_graph(graph: Path) -> None:
    from omnigraph_ops.demo import DemoSpec, write_demo_graph

    spec = DemoSpec(loads=30, rows=400, deletes=40, updates=60, drift_tables=("node:Company",), drift_kind="compaction")
    write_demo_graph(str(graph), spec)


def _night(airflow: DemoAirflow, graph: Path, before: dict[str, demo_tables.PlannedTable]) -> int:
    conf = {
        "graph": str(graph),
        "quiet_seconds": 1,
        "keep": 2,
        "older_than": None,
        "spark_threshold": demo_tables.spark_threshold(before),
    }
    print(f"\n3. The night: {DAG_ID}, triggered through the REST API with")
    print("   " + ", ".join(f"{name}={value}" for name, value in conf.items()) + "\n")
    airflow.call("PATCH", f"/api/v2/dags/{DAG_ID}", {"is_paused": False})
    run = airflow.call("POST", f"/api/v2/dags/{DAG_ID}/dagRuns", {"logical_date": None, "conf": conf})
    follower = RunFollower(airflow, run["dag_run_id"])
    state = follower.follow()
    print(f"\n   The run ended: {state}\n")
    print("4. Its report (XCom `report` of the last task)\n")
    print("\n".join(f"   {line}" for line in follower.report()["markdown"].splitlines()))
    return _verdict(state, before, demo_tables.observe(graph))


def _verdict(
    state: str, before: dict[str, demo_tables.PlannedTable], after: dict[str, demo_tables.PlannedTable]
) -> int:
    print("\n5. Before -> after\n")
    print("\n".join(f"   {line}" for line in demo_tables.comparison(before, after).splitlines()) + "\n")
    print("   A table that was repaired tonight is optimized the next night.\n")
    problems = demo_tables.complaints(before, after)
    if state != "success":
        problems.insert(0, f"the run ended {state}")
    for problem in problems:
        print(f"   NOT WELL: {problem}")
    return 1 if problems else 0


def _leave_running(airflow: DemoAirflow) -> None:
    print(f"   Airflow is still running: {airflow.url}/dags/{DAG_ID}")
    print(f"   user {USER}, password {PASSWORD}; Ctrl-C stops it.\n", flush=True)
    while airflow.alive():
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
