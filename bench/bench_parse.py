"""Claim: a graph costs a graphs file some milliseconds at each parse, and the scheduler next to nothing by its tables.

Printed: the parse of 50 graphs against that of one, beyond what one costs Airflow anyway; the bytes of their serialised
DAGs; and one look of the scheduler at 50 runs whose plans have 200 small tables, against plans of 20. The claim holds
when 50 graphs take less than half a second, and ten times the tables far less than ten times the look.

    make bench
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GRAPHS = 50
TABLES = (20, 200)
_ENTRY = """\
  graph-{n}:
    target: s3://lake/graphs/graph-{n}.omni
    connection: lake
    retention: {{keep: 10, older_than: 7d}}
    budget: {{max_bytes: 20GiB, deadline: 4h}}
    approvals: {{approvers: [ana], cleanup: {{max_versions: 500, max_bytes: 10GiB}}}}
    alerts: {{on_failure: [{{notifier: some.where.Notifier, with: {{to: ops}}}}]}}
"""


def graphs_file(folder: Path, graphs: int) -> Path:
    """A graphs file with so many entries."""
    path = folder / f"{graphs}.yaml"
    path.write_text("version: 1\ngraphs:\n" + "".join(_ENTRY.format(n=n) for n in range(graphs)))
    return path


def measured(folder: Path, what: str, graphs: int) -> dict[str, float]:
    """Run one measurement of this file in a process of its own."""
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(folder / f"{what}-{graphs}"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "OMNIGRAPH_GRAPHS_FILE": str(graphs_file(folder, graphs)),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "plugins"))),
    }
    command = [sys.executable, __file__, what]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def generated() -> Any:
    """The generated DAGs, parsed as the DAG processor does."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(str(ROOT / "dags" / "omnigraph_graphs.py"))
    if bag.import_errors or not bag.dags:
        raise SystemExit(f"nothing to measure: {bag.import_errors}")
    return bag


def parse() -> dict[str, float]:
    """Parse, with all that Airflow imports already there."""
    import time

    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization

    # The nightly DAG of the deployment imports what the generated ones do.
    DagBag(str(ROOT / "dags" / "omnigraph_maintenance.py"))
    started = time.perf_counter()
    bag = generated()
    parsed = time.perf_counter()
    serialised = [json.dumps(DagSerialization.to_dict(dag)) for dag in bag.dags.values()]
    return {
        "parse": parsed - started,
        "serialise": time.perf_counter() - parsed,
        "bytes": sum(map(len, serialised)),
    }


def schedule() -> dict[str, float]:
    """Look once at a run of every graph whose plan is made; seconds by the tables of the plan."""
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils import db
    from airflow.utils.session import create_session

    db.initdb()
    bag = generated()
    with create_session() as session:
        session.add(DagBundleModel(name="bench"))
    sync_bag_to_db(bag, "bench", None)
    return {str(tables): _looks(bag, tables) for tables in TABLES}


def _looks(bag: Any, tables: int) -> float:
    """Seconds of one look of the scheduler at all runs."""
    import time

    from airflow.utils.session import create_session

    seconds = 0.0
    for dag_id in bag.dags:
        with create_session() as session:
            run = _planned(session, dag_id, tables)
            started = time.perf_counter()
            run.task_instance_scheduling_decisions(session=session)
            seconds += time.perf_counter() - started
    return seconds


def _planned(session: Any, dag_id: str, tables: int) -> Any:
    """A run whose tables are dealt out, and wait to be mapped over."""
    import pendulum
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.models.taskmap import TaskMap
    from airflow.utils.state import DagRunState, TaskInstanceState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    from omnigraph_ops.parallel import deal

    dag = SerializedDagModel.get_dag(dag_id, session=session)
    now = pendulum.now("UTC")
    run = dag.create_dagrun(
        run_id=f"manual__{tables}",
        run_type=DagRunType.MANUAL,
        run_after=now,
        state=DagRunState.RUNNING,
        triggered_by=DagRunTriggeredByType.TEST,
        session=session,
    )
    run.dag = dag
    dealt = {"light_tables": [list(lot) for lot in deal([f"node:T{n}" for n in range(tables)])], "heavy_tables": []}
    done = {"wait_for_quiet_graph", "check_recovery", "plan_optimize", *dealt}
    for instance in run.get_task_instances(session=session):
        if instance.task_id in done:
            instance.state = TaskInstanceState.SUCCESS
        if instance.task_id in dealt:
            session.add(TaskMap.from_task_instance_xcom(instance, dealt[instance.task_id]))
    session.flush()
    return run


def main() -> None:
    """Measure each in a process of its own and print the ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one, many = (measured(folder, "parse", graphs) for graphs in (1, GRAPHS))
        look = measured(folder, "schedule", GRAPHS)
    few, lots = (look[str(tables)] for tables in TABLES)
    print(f"parse of {GRAPHS} graphs         {many['parse']:.3f} s ({many['parse'] / one['parse']:.1f} times one)")
    print(f"their serialisation          {many['serialise']:.3f} s, {many['bytes'] / GRAPHS / 1024:.1f} KiB each")
    print(f"a look at {GRAPHS} runs          {lots:.3f} s with {TABLES[1]} tables each, {few:.3f} s with {TABLES[0]}")
    print(f"ratio of the looks           {lots / few:.1f} for {TABLES[1] / TABLES[0]:.0f} times the tables")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        print(json.dumps({"parse": parse, "schedule": schedule}[sys.argv[1]]()))
