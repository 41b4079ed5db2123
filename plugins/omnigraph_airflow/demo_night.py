"""What `make demo` does: make a graph, start an Airflow, run a night, compare before and after, stop all of it."""

from __future__ import annotations

import argparse
import fcntl
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import IO, Any, NoReturn

import httpx

from omnigraph_airflow.demo_airflow import (
    PASSWORD,
    USER,
    DemoAirflow,
    DemoError,
    RunFollower,
    airflow_environment,
    free_port,
)
from omnigraph_ops.config.graph_entries import NIGHTLY
from omnigraph_ops.errors import NotInstalled, OpsError
from omnigraph_ops.models.optimize import OptimizeDecision, TablePlan


def observe(graph: Path) -> dict[str, TablePlan]:
    """What optimize would do with every table of the graph, in key order. Reads."""
    from omnigraph_ops.graph import open_graph
    from omnigraph_ops.stages.optimize.run import plan_optimize

    return {table.table_key: table for table in plan_optimize(open_graph(str(graph))).tables}


def _counts(table: TablePlan) -> tuple[int | None, int | None, int | None]:
    """Rows, fragments, and indexes that miss fragments or do not exist; a drifted table was not looked into. Pure."""
    if table.skipped:
        return None, None, None
    return table.rows, table.fragments, len(table.folds) + len(table.builds)


def _is_drifted(table: TablePlan) -> bool:
    """Whether the newest version is not the published one. Pure."""
    return table.read_version != table.lance_head_version


def spark_threshold(tables: Mapping[str, TablePlan]) -> int:
    """The threshold that sends exactly the heaviest rewrite to Spark. Pure."""
    return max((table.rewrite_bytes for table in tables.values()), default=0)


def comparison(before: Mapping[str, TablePlan], after: Mapping[str, TablePlan]) -> str:
    """Before and after per table, as text. Pure."""
    header = ("table", "rows", "fragments", "stale indexes", "published = newest")
    rows = [header] + [_cells(key, before[key], after[key]) for key in before if key in after]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _cells(key: str, old: TablePlan, new: TablePlan) -> tuple[str, ...]:
    counts = zip(_counts(old), _counts(new), strict=True)
    return (key, *(_change(was, now) for was, now in counts), f"{_pin(old)} -> {_pin(new)}")


def _change(old: int | None, new: int | None) -> str:
    before, after = ("?" if count is None else str(count) for count in (old, new))
    return before if before == after else f"{before} -> {after}"


def _pin(table: TablePlan) -> str:
    return f"no ({table.read_version} < {table.lance_head_version})" if _is_drifted(table) else "yes"


def complaints(before: Mapping[str, TablePlan], after: Mapping[str, TablePlan]) -> list[str]:
    """What the night should have done and did not; empty when all is well. Pure.

    A table that was drifted is published this night and optimized the next one.
    """
    found = [f"{key}: still drifted" for key, table in after.items() if _is_drifted(table)]
    for key, old in before.items():
        new = after.get(key)
        if new is None:
            found.append(f"{key}: gone")
        elif _is_drifted(old):
            continue
        elif (rows := _counts(new)[0]) != (had := _counts(old)[0]):
            found.append(f"{key}: {had} rows became {rows}")
        elif new.decision is OptimizeDecision.OPTIMIZE:
            found.append(f"{key}: still has something to optimize")
    return found


def run(argv: list[str] | None = None) -> int:
    """Run the demo; the exit code says whether the night went well. Writes."""
    args = _arguments(argv)
    _on_stop(_interrupt)
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
    # A signal to the whole group comes twice, once more from make: the second one must not end the stopping.
    _on_stop(signal.SIG_IGN)
    raise KeyboardInterrupt


def _on_stop(handler: Any) -> None:
    """Handle every signal that stops the demo, except one that it was started without, as by nohup. Writes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


@contextmanager
def _only_one(home: Path) -> Iterator[None]:
    """Hold the home against a second demo, which would delete it under this one; what is no demo's stays. Destroys."""
    made = [home / name for name in ("airflow", "graph")]
    with _lock_of(home, made) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DemoError(f"another demo is running in {home}: stop it, or use --home") from None
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)
        yield


def _lock_of(home: Path, made: Sequence[Path]) -> IO[str]:
    """The open file by which a demo holds its home. Writes."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        # In a home directory `airflow` is the folder that Airflow takes by default.
        if not (home / "lock").exists() and (others := [folder for folder in made if folder.exists()]):
            raise DemoError(
                f"{others[0]} was not made by the demo, which would delete it: name another folder with --home"
            )
        return (home / "lock").open("w")
    except OSError as error:
        raise DemoError(
            f"{home} cannot be written by this user: {error.strerror}; nothing was started; give this user the rights "
            "to that folder, or name another one: make demo DEMO_ARGS='--home DIR'"
        ) from None


def _demo(args: argparse.Namespace) -> int:
    from omnigraph_ops.spark.java import spark_environment

    for package in ("apache-airflow", "pyspark"):
        if not any(metadata.distributions(name=package)):
            raise NotInstalled.of("the demo", package, "all")
    graph, port = args.home / "graph", free_port(args.port)
    print(f"1. A graph with fragments, stale indexes and one drifted table, in {graph}", flush=True)
    _write_graph(graph)
    before = observe(graph)

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
        _on_stop(signal.SIG_IGN)
        with suppress(OSError):  # the terminal may be closed
            print("Stopping Airflow ...", flush=True)
        airflow.stop()


def _write_graph(graph: Path) -> None:
    from omnigraph_ops.demo import DemoSpec, write_demo_graph

    spec = DemoSpec(loads=30, rows=400, deletes=40, updates=60, drift_tables=("node:Company",), drift_kind="compaction")
    write_demo_graph(str(graph), spec)


def _night(airflow: DemoAirflow, graph: Path, before: dict[str, TablePlan]) -> int:
    conf = {
        "graph": str(graph),
        "quiet_seconds": 1,
        "keep": 2,
        "older_than": None,
        "spark_threshold": spark_threshold(before),
    }
    print(f"\n3. The night: {NIGHTLY}, triggered through the REST API with")
    print("   " + ", ".join(f"{name}={value}" for name, value in conf.items()) + "\n")
    airflow.call("PATCH", f"/api/v2/dags/{NIGHTLY}", {"is_paused": False})
    run = airflow.call("POST", f"/api/v2/dags/{NIGHTLY}/dagRuns", {"logical_date": None, "conf": conf})
    follower = RunFollower(airflow, run["dag_run_id"])
    state = follower.follow()
    print(f"\n   The run ended: {state}\n")
    print("4. Its report (XCom `report` of the last task)\n")
    print("\n".join(f"   {line}" for line in follower.report()["markdown"].splitlines()))
    return _verdict(state, before, observe(graph))


def _verdict(state: str, before: dict[str, TablePlan], after: dict[str, TablePlan]) -> int:
    print("\n5. Before -> after\n")
    print("\n".join(f"   {line}" for line in comparison(before, after).splitlines()) + "\n")
    print("   A table that was repaired tonight is optimized the next night.\n")
    problems = complaints(before, after)
    if state != "success":
        problems.insert(0, f"the run ended {state}")
    for problem in problems:
        print(f"   NOT WELL: {problem}")
    return 1 if problems else 0


def _leave_running(airflow: DemoAirflow) -> None:
    print(f"   Airflow is still running: {airflow.url}/dags/{NIGHTLY}")
    print(f"   user {USER}, password {PASSWORD}; Ctrl-C stops it.\n", flush=True)
    while airflow.alive():
        time.sleep(1)
