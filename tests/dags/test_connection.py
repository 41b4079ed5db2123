"""The connection type `omnigraph`: what the hook makes of it, and where its credentials do not go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.storage.location import StoreAccess
from tests.support.templates import Templates

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
ROOT = Path(__file__).resolve().parents[2]
SECRET = "canary-3f9a1c"
SPEC = DemoSpec(node_types=1, loads=3, rows=20)
Connect = Callable[..., None]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Define the connection `lake` as a deployment does, in the environment."""

    def define(**fields: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "omnigraph", **fields}))

    return define


def hook(graph: str | None = None) -> Any:
    from omnigraph_airflow.hooks.omnigraph import OmnigraphHook

    return OmnigraphHook(graph, omnigraph_conn_id="lake")


def test_airflow_masks_the_id_of_a_key_too(connect: Connect) -> None:
    from airflow.sdk.log import redact

    connect(host="/nowhere", login=f"{SECRET}-login", password=f"{SECRET}-password")
    hook().address()
    assert redact(f"the store does not know {SECRET}-login") == "the store does not know ***"


@pytest.mark.s3
def test_a_graph_is_reached_by_the_connection_alone(
    s3_graph: Callable[[DemoSpec], str], s3_server: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = s3_graph(SPEC)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    # Without it a client that finds no credentials asks the network for a role.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    before = dict(os.environ)
    extra = {"endpoint_url": s3_server, "region_name": "us-east-1", "settings": {"small_table_bytes": 0}}
    connect(host=uri, login="test", password="test-secret-123", extra=extra)
    before["AIRFLOW_CONN_LAKE"] = os.environ["AIRFLOW_CONN_LAKE"]
    assert hook().test_connection() == (True, f"{uri} is a graph of stamp 6 with 2 tables")
    graph = hook().get_conn()
    assert graph.settings.small_table_bytes == 0
    # The rewrite is journalled by its task, through the same access.
    assert optimize_table(graph, "node:Person").fragments_added == 1
    assert dict(os.environ) == before


def test_the_test_says_what_is_there(connect: Connect, templates: Templates, tmp_path: Path) -> None:
    templates.copy(SPEC, tmp_path / "g.omni")
    connect(host=str(tmp_path / "g.omni"))
    assert hook().test_connection() == (True, f"{tmp_path}/g.omni is a graph of stamp 6 with 2 tables")
    connect(host=str(tmp_path / "none"))
    ok, why = hook().test_connection()
    assert not ok
    assert why.startswith(f"there is nothing at {tmp_path}/none; nothing was written; check the path")
    connect()
    ok, why = hook().test_connection()
    assert not ok
    assert why.startswith("the connection names no graph, so none was opened; to test it, fill in its field Target")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"extra": {"endpoint": "x"}}, "connection lake: unknown extra field endpoint"),
        ({"login": "id"}, "connection lake: an access key needs its secret"),
        ({"extra": {"settings": {"nope": 1}}}, "connection lake: settings nope: "),
        ({"extra": {"settings": "x"}}, "connection lake: settings must be a JSON object"),
    ],
)
def test_a_field_that_means_nothing_is_refused(connect: Connect, fields: dict[str, Any], sentence: str) -> None:
    connect(host="/graph", **fields)
    with pytest.raises(InvalidInput) as error:
        hook().address()
    assert str(error.value).startswith(sentence)
    assert "; the graph was not opened; under Admin, Connections, " in str(error.value)


def test_a_connection_that_does_not_exist_is_named_with_what_to_do() -> None:
    ok, said = hook("/graph").test_connection()
    assert not ok
    assert said == (
        "graph /graph: Airflow has no connection 'lake', so the graph was not opened and nothing was done; "
        "define the connection under Admin, Connections (type Omnigraph)"
    )


def test_a_secret_is_in_no_text(connect: Connect) -> None:
    connect(host="s3://lake/g", login=SECRET, password=SECRET, extra={"session_token": SECRET})
    address = hook().address()
    access = StoreAccess(variables=address.store)
    assert SECRET not in f"{address!r} {address} {access!r}"
    lance, s3fs = access.lance("s3://lake/g"), access.s3fs("s3://lake/g")
    assert lance is not None
    assert {lance[k] for k in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")} == {SECRET}
    assert {s3fs[k] for k in ("key", "secret", "token")} == {SECRET}
    assert access.lance("/local") is None
    assert access.s3fs("/local") == {}


def test_the_file_wins_over_the_connection_and_it_over_the_environment(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from omnigraph_airflow.hooks.omnigraph import OmnigraphHook

    (tmp_path / "graphs.yaml").write_text(
        "version: 1\ngraphs:\n  people: {target: /g, connection: lake, settings: {tier_fan_in: 7}}\n"
    )
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(tmp_path / "graphs.yaml"))
    monkeypatch.setenv("OMNIGRAPH_OPS_TIER_FAN_IN", "5")
    monkeypatch.setenv("OMNIGRAPH_OPS_MAX_CONCURRENT_REWRITES", "5")
    connect(host="/other", extra={"settings": {"tier_fan_in": 6, "max_concurrent_rewrites": 6}})
    address = OmnigraphHook("people").address()
    settings = Settings.from_env({**os.environ, **address.settings})
    assert (address.place, settings.tier_fan_in, settings.max_concurrent_rewrites) == ("/g", 7, 6)
    assert OmnigraphHook("/a/path").address().settings == {}
    with pytest.raises(InvalidInput, match="describes no graph 'nobody'"):
        OmnigraphHook("nobody").address()


class Submit:
    """What the provider's hook says about a master."""

    def __init__(self, *, yarn: bool = False, kubernetes: bool = False, mode: str | None = None) -> None:
        self._is_yarn, self._is_kubernetes = yarn, kubernetes
        self._connection = {"deploy_mode": mode}


@pytest.mark.parametrize(
    ("submit", "names"),
    [
        (Submit(), {"AWS_SECRET_ACCESS_KEY", "AWS_REGION", "OMNIGRAPH_OPS_EXCLUSIVE"}),
        (Submit(mode="client"), {"AWS_SECRET_ACCESS_KEY", "AWS_REGION", "OMNIGRAPH_OPS_EXCLUSIVE"}),
        (Submit(yarn=True), {"AWS_REGION", "OMNIGRAPH_OPS_EXCLUSIVE"}),
        (Submit(kubernetes=True, mode="cluster"), {"AWS_REGION", "OMNIGRAPH_OPS_EXCLUSIVE"}),
        (Submit(mode="cluster"), set()),
    ],
)
def test_a_submit_gets_a_secret_only_where_it_stays_in_an_environment(submit: Any, names: set[str]) -> None:
    from omnigraph_airflow.hooks.omnigraph import Address
    from omnigraph_airflow.operators.spark_jobs import driver_variables

    address = Address(
        place="s3://lake/g",
        store={"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu"},
        settings={"OMNIGRAPH_OPS_EXCLUSIVE": "true"},
    )
    assert set(driver_variables(address, submit)) == names


ASK_AIRFLOW = """
import json
from airflow.providers_manager import ProvidersManager
from airflow.models import Connection
manager = ProvidersManager()
print(json.dumps({
    "version": manager.providers["omnigraph-ops"].version,
    "fields": sorted(f for f in manager.connection_form_widgets if "omnigraph" in f),
    "host": manager.field_behaviours["omnigraph"]["relabeling"]["host"],
    "links": sorted(link for link in manager.extra_links_class_names if "omnigraph" in link),
    "tested": Connection(conn_id="lake", conn_type="omnigraph").test_connection(),
}))
"""


def test_airflow_knows_the_installed_package(connect: Connect, templates: Templates, tmp_path: Path) -> None:
    """Installed as far as Airflow looks: metadata with the entry points that pyproject.toml declares."""
    from omnigraph_airflow.get_provider_info import get_provider_info

    templates.copy(SPEC, tmp_path / "g.omni")
    connect(host=str(tmp_path / "g.omni"))
    paths = [installed(tmp_path / "site"), str(ROOT), str(ROOT / "plugins")]
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", ASK_AIRFLOW], env=environment, capture_output=True, text=True, check=True, timeout=900
    )
    info = get_provider_info()
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "version": info["versions"][0],
        "fields": sorted(f"extra__omnigraph__{name}" for name in info["connection-types"][0]["conn-fields"]),
        "host": "Target",
        "links": sorted(info["extra-links"]),
        "tested": [True, f"{tmp_path}/g.omni is a graph of stamp 6 with 2 tables"],
    }


def installed(folder: Path) -> str:
    """A folder that Python takes for one with this package installed. Writes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = folder / f"omnigraph_ops-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(head)
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    return str(folder)


def test_the_form_has_exactly_the_fields_that_the_hook_reads() -> None:
    from omnigraph_airflow.get_provider_info import get_provider_info
    from omnigraph_airflow.hooks.omnigraph import FIELDS

    (connection,) = get_provider_info()["connection-types"]
    assert set(connection["conn-fields"]) == FIELDS


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3://lake/a/../people.omni", "has the segment '..'"),
        ("s3://lake/a%20b", "contains '%'"),
        ("s3://key:canary-3f9a1c@lake/people.omni", "user info"),
        ("/lake/people.omni\n", "has blanks around it"),
    ],
)
@pytest.mark.parametrize("place", ["host", "param", "cluster", "destination"])
def test_an_address_that_is_two_places_is_refused_wherever_it_stands(
    connect: Connect, place: str, address: str, words: str
) -> None:
    from omnigraph_ops.outcomes.backups import newest_finished

    connect(host=address, extra={"graph_id": "people"} if place == "cluster" else {})
    if place == "destination":
        with pytest.raises(InvalidInput) as refused:
            newest_finished(address, "/lake/people.omni", StoreAccess())
        said = str(refused.value)
    else:
        ok, said = hook(address if place == "param" else None).test_connection()
        assert not ok
    assert words in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("said", "style"), [("true", "path"), ("false", None), (True, "path"), (False, None), (None, None)]
)
def test_a_text_that_says_no_is_a_no(connect: Connect, monkeypatch: pytest.MonkeyPatch, said: Any, style: Any) -> None:
    monkeypatch.delenv("AWS_S3_FORCE_PATH_STYLE", raising=False)
    connect(host="s3://lake/people.omni", extra={"path_style": said})
    options = StoreAccess(variables=hook().address().store).s3fs("s3://lake/people.omni")
    assert options.get("config_kwargs", {}).get("s3", {}).get("addressing_style") == style
