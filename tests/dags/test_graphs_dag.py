"""A DAG per graph of the graphs file: what it has of its entry, and a whole night of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.registry import BY_NAME, tasks_by_stage
from tests.support.questions import when_kept
from tests.support.runs import Finished
from tests.support.templates import Templates

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
ROOT = Path(__file__).resolve().parents[2]
NOTED = "tests.support.notifier.Noted"
PREFIX = "omnigraph_maintenance__"
BY_HAND = {
    *("omnigraph_maintenance", "omnigraph_repair", "omnigraph_cleanup", "omnigraph_orphans"),
    *("omnigraph_backup", "omnigraph_row_retention"),
}
ROWS = "row_retention"
CONFIRMED = {"repair", "cleanup", "orphans", ROWS}
DRIFTED = "node:Company"
FULL = f"""
version: 1
defaults: {{owner: platform, tags: [prod], pool: maintenance, task_timeout: 6h}}
graphs:
  people:
    target: s3://lake/people.omni
    timezone: Europe/Berlin
    schedule: "30 22 * * *"
    triggered_by: ["s3://lake/loads/people"]
    retention: {{keep: 3, older_than: 2d}}
    optimize: {{policy: tiered, spark_threshold: 1GiB}}
    budget: {{max_bytes: 20GiB}}
    window: {{between: "22:00-06:00", quiet_for: 10m}}
    approvals:
      approvers: [ana, ben]
      answer_within: 8h
      remind_after: 2h
      cleanup: {{max_versions: 5, max_bytes: 1GiB}}
      notify: [{{notifier: {NOTED}, with: {{file: x}}}}]
    alerts:
      on_failure: [{{notifier: {NOTED}, with: {{file: x}}}}]
      late: {{after: 6h, notify: [{{notifier: {NOTED}, with: {{file: x}}}}]}}
  plain:
    target: /mnt/lance
    schedule: null
    optimize: {{executor: in_process}}
    retention: {{expiry: {{retain_min: 2, time_retained: 2h}}}}
"""
Parse = Callable[[str], Any]


@pytest.fixture
def parse(airflow_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parse:
    """The DAGs and import errors of a deployment with this graphs file."""
    from airflow.dag_processing.dagbag import DagBag

    def bag(text: str) -> Any:
        (tmp_path / "graphs.yaml").write_text(text)
        monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(tmp_path / "graphs.yaml"))
        return DagBag(str(ROOT / "dags"))

    return bag


def test_without_a_file_there_are_the_same_dags_as_ever(dags: Any) -> None:
    assert set(dags) == BY_HAND
    assert not {"examples", "pattern"} & dags["omnigraph_repair"].params.get_param("graph").schema.keys()


def test_a_form_says_that_nothing_in_it_takes_the_place_of_approvers(parse: Parse) -> None:
    """As no param of a run that somebody triggers does: `tests/dags/test_approvers.py`."""
    dags = parse(FULL).dags

    def advance(name: str) -> dict[str, str]:
        params = dags[PREFIX + name].params
        schemas = {key: params.get_param(key).schema for key in params}
        return {key: of["description_md"] for key, of in schemas.items() if of.get("section") == "Approve in advance"}

    asked, free = advance("people"), advance("plain")
    assert asked.keys() == free.keys() > {"confirm_repair", "confirm_cleanup", "standing_approval"}
    assert all(
        text.startswith("Without effect in a run that you trigger: this graph has appr") for text in asked.values()
    )
    assert free["confirm_cleanup"].startswith("Remove without asking, up to the bounds below.")


def test_the_variable_names_the_file_too(airflow_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph_airflow.graphs import graphs_file

    assert graphs_file() is None
    monkeypatch.setenv("AIRFLOW_VAR_OMNIGRAPH_GRAPHS_FILE", "/etc/graphs.yaml")
    assert graphs_file() == "/etc/graphs.yaml"
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", "/other.yaml")
    assert graphs_file() == "/other.yaml"


def test_every_entry_has_its_dag(parse: Parse) -> None:
    bag = parse(FULL)
    assert not bag.import_errors
    assert set(bag.dags) == {*BY_HAND, PREFIX + "people", PREFIX + "plain"}
    dag = bag.dags[PREFIX + "people"]
    assert dag.fileloc == str(ROOT / "dags" / "omnigraph_graphs.py")
    assert {"omnigraph", "maintenance", "people", "prod"} == dag.tags
    assert dag.catchup is False
    assert dag.max_active_runs == 1
    assert dag.dagrun_timeout == timedelta(hours=8 + 3 + 24)
    night = set(bag.dags["omnigraph_maintenance"].task_ids)
    assert set(dag.task_ids) == night
    for task in dag.tasks:
        retries = 8 if task.task_id == "check_recovery" else 2
        assert (task.owner, task.pool, task.retries) == ("platform", "maintenance", retries)
        waits_for_a_person = task.task_id.startswith("approve_")
        assert task.execution_timeout == (None if waits_for_a_person else timedelta(hours=6)), task.task_id


def test_the_form_starts_from_the_entry_and_the_graph_is_fixed(parse: Parse) -> None:
    dags = parse(FULL).dags
    params = dags[PREFIX + "people"].params.dump()
    assert params["graph"] == "people"
    assert (
        params.items()
        >= {
            "keep": 3,
            "older_than": "2d",
            "expiry": None,
            "policy": "tiered",
            "spark_threshold": 1024**3,
            "max_bytes": "20GiB",
            "quiet_seconds": 600,
            "standing_approval": {"max_versions": 5, "max_bytes": 1024**3},
        }.items()
    )
    plain = dags[PREFIX + "plain"].params.dump()
    expiry = {"retain_min": 2, "retain_max": None, "time_retained": "2h", "expire_limit": 10}
    assert (plain["keep"], plain["older_than"], plain["expiry"]) == (None, None, expiry)
    assert plain["spark_threshold"] == 2**62
    # Assigned after the tasks, so Airflow did not check them when it made the DAG.
    for dag in dags.values():
        dag.params.validate()


def test_the_clock_the_loads_and_the_deadlines(parse: Parse) -> None:
    dags = parse(FULL).dags
    people, plain = dags[PREFIX + "people"], dags[PREFIX + "plain"]
    assert type(people.timetable).__name__ == "AssetOrTimeSchedule"
    assert people.timetable.timetable.timezone == "Europe/Berlin"
    assert [ref.uri for ref in people.timetable.asset_condition.objects] == ["s3://lake/loads/people"]
    assert plain.timetable.can_be_scheduled is False
    assert {d.name: d.interval for d in people.deadline} == {
        "late": timedelta(hours=6),
        "approval reminder": timedelta(hours=2),
    }
    assert not plain.deadline
    for gate in ("approve_repair", "approve_cleanup"):
        asked = people.get_task(gate)
        assert asked.assigned_users == [{"id": "ana", "name": "ana"}, {"id": "ben", "name": "ben"}]
        assert asked.answer_within == timedelta(hours=8)
        assert [told.notifier for told in asked.notifiers] == [NOTED]
        assert plain.get_task(gate).assigned_users is None


@pytest.mark.parametrize("uri", ["s3://lake/loads/people/", "lake://loads", "s3://lake/loads?b=2&a=1", "loaded"])
def test_a_load_starts_the_night_however_its_asset_is_spelled(parse: Parse, uri: str) -> None:
    from airflow.sdk import Asset

    dag = parse(FULL.replace("s3://lake/loads/people", uri)).dags[PREFIX + "people"]
    assert [ref.uri for ref in dag.timetable.asset_condition.objects] == [Asset(uri).uri]


def test_a_load_that_no_dag_can_declare_costs_no_graph_its_night(parse: Parse) -> None:
    bag = parse(FULL.replace("s3://lake/loads/people", "airflow://reserved"))
    assert not bag.import_errors
    assert PREFIX + "people" in bag.dags


def test_a_fault_is_an_import_error_with_its_line_and_costs_no_other_graph_its_night(parse: Parse) -> None:
    bag = parse(FULL + "  broken:\n    target: s3://lake/b\n    keep: 3\n")
    ((file, error),) = bag.import_errors.items()
    assert file.endswith("omnigraph_graphs_check.py")
    line = FULL.count("\n") + 3
    assert f"graphs.yaml:{line}: graphs.broken.keep: unknown key" in error
    assert set(bag.dags) == {*BY_HAND, PREFIX + "people", PREFIX + "plain"}


@pytest.mark.parametrize(
    ("notifier", "why"),
    [
        ("{notifier: nope.Nope}", "No module named 'nope'"),
        ("{notifier: tests.support.notifier.Nope}", "has no attribute 'Nope'"),
        (f"{{notifier: {NOTED}, with: {{too: secret}}}}", "missing a required argument: 'file'"),
        (f"{{notifier: {NOTED}, with: {{file: x, nope: secret}}}}", "got an unexpected keyword argument 'nope'"),
    ],
)
def test_a_notifier_that_nobody_can_call_is_told_before_the_night_that_needs_it(
    parse: Parse, notifier: str, why: str
) -> None:
    wrong = f"alerts: {{on_failure: [{notifier}], late: {{after: 1h, notify: [{notifier}]}}}}"
    bag = parse(f"{FULL}  broken: {{target: s3://lake/b, {wrong}}}\n  again: {{target: s3://lake/c, {wrong}}}\n")
    ((file, error),) = bag.import_errors.items()
    assert file.endswith("omnigraph_graphs_check.py")
    (line,) = [line for line in error.splitlines() if "cannot be called" in line]
    assert "graphs.yaml: graphs.broken: the notifier " in line and line.endswith(why)
    assert "secret" not in error
    # The graph has its night all the same: its maintenance needs no notifier.
    assert PREFIX + "broken" in bag.dags


def test_a_schedule_that_never_comes_is_a_fault_like_any_other(parse: Parse) -> None:
    bag = parse(FULL + "  broken:\n    target: s3://lake/b\n    schedule: '0 0 31 2 *'\n")
    ((file, error),) = bag.import_errors.items()
    assert file.endswith("omnigraph_graphs_check.py")
    assert f"graphs.yaml:{FULL.count(chr(10)) + 3}: graphs.broken.schedule: '0 0 31 2 *' never comes" in error
    assert set(bag.dags) == {*BY_HAND, PREFIX + "people", PREFIX + "plain"}


def test_a_worker_builds_the_dag_of_its_task_only(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", PREFIX + "plain")
    others = {"omnigraph_maintenance", "omnigraph_backup"}
    assert set(parse(FULL).dags) == {*others, PREFIX + "plain"}
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "omnigraph_cleanup")
    assert set(parse(FULL).dags) == {*others, "omnigraph_cleanup"}


@pytest.mark.parametrize("text", ["version: 1\ngraphs: [", "version: 2\n"])
def test_a_broken_file_leaves_the_dags_of_the_deployment(parse: Parse, text: str) -> None:
    bag = parse(text)
    assert len(bag.import_errors) == 1
    assert set(bag.dags) == BY_HAND


def test_the_serialised_dag_is_small_and_the_same_every_time(parse: Parse) -> None:
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.serialized_objects import DagSerialization

    first, second = (DagSerialization.to_dict(parse(FULL).dags[PREFIX + "people"]) for _ in range(2))
    assert SerializedDagModel.hash(first) == SerializedDagModel.hash(second)
    # The params once, not once per task.
    assert len(json.dumps(first)) < 40_000


def test_parsing_every_dag_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "graphs.yaml").write_text(FULL)
    script = (
        "import importlib, pkgutil, runpy, sys\nfrom pathlib import Path\n"
        "def loaded(*names):\n"
        "    return sorted(set(names) & set(sys.modules))\n"
        f"for path in sorted(Path({str(ROOT / 'dags')!r}).glob('*.py')):\n"
        "    runpy.run_path(str(path))\n"
        "print(loaded('lance', 'pyspark', 'pyarrow', 'pandas', 'numpy', 's3fs', 'boto3'))\n"
        "import omnigraph_airflow\n"
        "for m in pkgutil.walk_packages(omnigraph_airflow.__path__, 'omnigraph_airflow.'):\n"
        # The page is loaded by the API server alone, at its first request (test_parts.py).
        "    if not m.name.startswith('omnigraph_airflow.page.'):\n"
        "        importlib.import_module(m.name)\n"
        "print(loaded('lance', 'pyspark', 'pyarrow', 'pandas'))\n"
    )
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMNIGRAPH_GRAPHS_FILE": str(tmp_path / "graphs.yaml"),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=900
    )
    assert done.stdout.splitlines()[-2:] == ["[]", "[]"]


def test_a_load_starts_a_run_whatever_its_asset_is_called(parse: Parse) -> None:
    from airflow.assets.manager import asset_manager
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.models.asset import AssetDagRunQueue
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.sdk import DAG, Asset, BaseOperator
    from airflow.serialization.definitions.assets import SerializedAsset
    from airflow.utils.session import create_session
    from sqlalchemy import select

    bag = parse(FULL)
    with DAG("load", schedule=None) as load:
        BaseOperator(task_id="load", outlets=[Asset(name="loads of people", uri="s3://lake/loads/people")])
    load.fileloc = str(ROOT / "dags" / "load.py")
    bag.dags["load"] = load
    with create_session() as session:
        session.merge(DagBundleModel(name="dags-folder"))
    sync_bag_to_db(bag, "dags-folder", None)
    with create_session() as session:
        loaded = SerializedAsset(name="loads of people", uri="s3://lake/loads/people", group="", extra={}, watchers=[])
        session.get_one(DagModel, PREFIX + "people").is_paused = False
        asset_manager.register_asset_change(asset=loaded, session=session)
        session.flush()
        assert set(session.scalars(select(AssetDagRunQueue.target_dag_id))) == {PREFIX + "people"}


def file_for(tmp_path: Path, lines: str = "") -> str:
    """A file with the graph at `tmp_path/graph`, whose nights ask nobody."""
    return f"""
version: 1
graphs:
  people:
    target: {tmp_path}/graph
    schedule: null
    window: {{quiet_for: 0s}}
    retention: {{keep: 2}}
    approvals: {{cleanup: {{max_versions: 1000, max_bytes: 1TiB}}, repair: verified_maintenance}}
{lines}"""


@pytest.fixture
def graph(tmp_path: Path, templates: Templates) -> Path:
    spec = DemoSpec(loads=4, rows=40, node_types=2, drift_tables=(DRIFTED,), drift_kind="compaction")
    templates.copy(spec, tmp_path / "graph")
    return tmp_path / "graph"


def asset_events(run_id: str, name: str) -> list[dict[str, Any]]:
    """What every event of an asset says that came from a run."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        events = session.scalars(query.where(AssetModel.name == name, AssetEvent.source_run_id == run_id))
        return [dict(event.extra) for event in events]


def test_a_night_of_one_graph_under_standing_approvals(
    parse: Parse, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_airflow.operators import ask

    from omnigraph_ops.graph import open_graph

    # `dag.test()` knows runs of people only, who have no standing approval of a repair.
    monkeypatch.setattr(ask, "run_type", lambda _context: "scheduled")
    dag = parse(file_for(tmp_path)).dags[PREFIX + "people"]
    run = dag.test()
    night = Finished(run)
    assert night.state == "success", night.tasks
    assert night.of("apply_repair") == ["success"]
    assert set(night.of("cleanup_table")) == {"success"}
    (said,) = asset_events(run.run_id, "omnigraph://people")
    assert said["manifest_version"] == open_graph(str(graph)).state().manifest_version
    assert said["outcome"] == night.report["outcome"]
    assert min(said[k] for k in ("tables", "tables_optimized", "fragments_removed", "versions_removed")) > 0


def test_a_person_may_still_say_otherwise_for_one_run(
    parse: Parse, graph: Path, tmp_path: Path, answer_hitl: Callable[..., Any]
) -> None:
    answer_hitl("approve_repair", "Approve")
    answer_hitl("approve_cleanup", "Reject")
    heard = tmp_path / "heard"
    text = file_for(tmp_path).replace(
        "approvals: {", f"approvals: {{notify: [{{notifier: {NOTED}, with: {{file: {heard}}}}}], "
    )
    dag = parse(text).dags[PREFIX + "people"]
    night = Finished(dag.test(run_conf={"standing_approval": None, "quiet_seconds": 0}))
    assert (night.state, night.report["outcome"]) == ("failed", "unapproved"), night.tasks
    assert set(night.of("cleanup_table")) == {"skipped"}
    assert heard.read_text() == f"{PREFIX}people\n" * 2, (
        "the repair, too, is asked about in a run that a person started"
    )


def test_airflow_refuses_a_run_that_names_another_graph(parse: Parse, api: Any, tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.merge(DagBundleModel(name="dags-folder"))
    sync_bag_to_db(parse(file_for(tmp_path)), "dags-folder", None)

    def trigger(**conf: Any) -> Any:
        return api.post(f"/api/v2/dags/{PREFIX}people/dagRuns", json={"logical_date": None, "conf": conf})

    refused = trigger(graph="/another")
    assert (refused.status_code, "Invalid input for param graph: 'people' was expected" in refused.text) == (400, True)
    for conf in ({}, {"graph": "people"}):
        taken = trigger(**conf)
        assert taken.is_success, taken.text
        api.delete(f"/api/v2/dags/{PREFIX}people/dagRuns/{taken.json()['dag_run_id']}").raise_for_status()


def test_a_connection_that_does_not_exist_ends_the_night_at_once_and_is_in_its_report(
    parse: Parse, graph: Path, tmp_path: Path
) -> None:
    dag = parse(file_for(tmp_path, "    connection: nolake\n")).dags[PREFIX + "people"]
    run = dag.test()
    night = Finished(run)
    tries = {t.task_id: t.try_number for t in run.get_task_instances() if t.state == "failed"}
    assert set(tries.values()) == {1}, tries
    sentence = (
        "graph people: Airflow has no connection 'nolake', so the graph was not opened and nothing was done; define "
        "the connection under Admin, Connections (type Omnigraph), or mend `connection` of graphs.people in the graphs "
        "file"
    )
    assert night.report["graph"] == "people"
    assert f"wait_for_quiet_graph, summarize, plan_cleanup: {sentence}" in night.report["failed"]


def test_trouble_is_told_by_the_dag_processor(parse: Parse, tmp_path: Path) -> None:
    """As it runs the callback of a failed run; `dag.test()` hands notifiers a DAG that cannot render."""
    import structlog
    from airflow.callbacks.callback_requests import DagCallbackRequest
    from airflow.dag_processing.processor import _execute_dag_callbacks

    heard = tmp_path / "heard"
    arguments = f"{{file: {heard}, message: '{{{{ dag.dag_id }}}} {{{{ reason }}}}'}}"
    bag = parse(file_for(tmp_path, f"    alerts: {{on_failure: [{{notifier: {NOTED}, with: {arguments}}}]}}\n"))
    request = DagCallbackRequest(
        filepath="omnigraph_graphs.py",
        bundle_name="dags-folder",
        bundle_version=None,
        dag_id=PREFIX + "people",
        run_id="run",
        is_failure_callback=True,
        msg="task_failure",
    )
    _execute_dag_callbacks(bag, request, structlog.get_logger())
    assert heard.read_text() == f"{PREFIX}people task_failure\n"


def test_a_manual_dag_takes_the_name(parse: Parse, graph: Path, tmp_path: Path) -> None:
    dags = parse(file_for(tmp_path)).dags
    dag = dags["omnigraph_repair"]
    shown = dag.params.get_param("graph").schema
    assert shown["examples"] == ["people"]
    assert f"- `people`: `{graph}`; its nights: keep the newest" in shown["description_md"]
    run = Finished(dag.test(run_conf={"graph": "people"}))
    assert run.state == "success", run.tasks
    assert run.of("preview_repair") == ["success"]
    assert run.report["graph"] == str(graph)


@pytest.mark.parametrize("dag_id", sorted(BY_HAND - {"omnigraph_maintenance"}))
def test_the_params_of_a_run_stay_valid_when_its_graph_is_renamed(parse: Parse, dag_id: str, tmp_path: Path) -> None:
    """Airflow validates them at the start of every task, against the DAG as it is then."""
    from airflow.sdk.definitions.param import process_params
    from airflow.sdk.exceptions import ParamValidationError

    conf = {"graph": "people", **({"destination": "/b"} if dag_id == "omnigraph_backup" else {})}
    for text in (file_for(tmp_path), file_for(tmp_path).replace("people:", "folks:")):
        dag = parse(text).dags[dag_id]
        for task in dag.tasks:
            assert process_params(dag, task, conf, suppress_exception=False)["graph"] == "people"
    with pytest.raises(ParamValidationError):
        process_params(dag, task, {**conf, "graph": "/a/path"}, suppress_exception=False)


def test_a_name_that_the_file_does_not_have_is_refused_by_the_first_task(
    parse: Parse, graph: Path, tmp_path: Path
) -> None:
    run = Finished(parse(file_for(tmp_path)).dags["omnigraph_repair"].test(run_conf={"graph": "poeple"}))
    assert run.state == "failed"
    assert run.of("check_recovery") == ["failed"]
    assert run.of("apply_repair") == ["upstream_failed"]
    (told,) = run.report["failed"]
    assert told.startswith(f"check_recovery: {tmp_path}/graphs.yaml describes no graph 'poeple', so it was not opened")
    assert told.endswith("did you mean 'people'?")
    assert "## Repair\nNot reached." in run.report["markdown"]


def test_a_run_whose_entry_is_renamed_while_it_waits_removes_nothing_and_reports_it(
    parse: Parse, graph: Path, tmp_path: Path, answer_hitl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_graph(str(graph))

    def renamed(_consent: str) -> None:
        (tmp_path / "graphs.yaml").write_text(file_for(tmp_path).replace("people:", "folks:"))

    when_kept(monkeypatch, opened.storage, "approve_cleanup", renamed)
    answer_hitl("approve_cleanup", "Approve")
    dag = parse(file_for(tmp_path)).dags["omnigraph_cleanup"]
    before = [len(opened.open_head(entry).versions()) for entry in opened.state().entries]
    conf = {"graph": "people", "confirm": True, "confirm_versions": 0, "keep": 1, "older_than": None}
    run = Finished(dag.test(run_conf=conf))
    assert (run.state, run.report["outcome"]) == ("failed", "failed"), run.tasks
    assert (run.of("approve_cleanup"), set(run.of("cleanup_table"))) == (["failed"], {"upstream_failed"})
    gone = f"{tmp_path}/graphs.yaml describes no graph 'people', so it was not opened"
    assert {line.split(": ")[0] for line in run.report["failed"] if gone in line} == {"approve_cleanup", "report"}
    assert [len(opened.open_head(entry).versions()) for entry in opened.state().entries] == before


def test_a_deadline_tells_through_airflows_own_runner(tmp_path: Path) -> None:
    import structlog
    from airflow.sdk.execution_time.callback_supervisor import execute_callback
    from omnigraph_airflow.notify import deadline_callback

    from omnigraph_ops.config.graph_entries import Notifier

    heard = tmp_path / "heard"
    told = Notifier.model_validate(
        {"notifier": NOTED, "with": {"file": str(heard), "message": "{{ dag_run.dag_id }} is late"}}
    )
    lost = [Notifier.model_validate({"notifier": name}) for name in ("nowhere.Nobody", "sys.exit")]
    callback = deadline_callback([*lost, told])
    kwargs = {**callback.kwargs, "context": {"dag_run": {"dag_id": "people"}, "deadline": {}}}
    assert execute_callback(callback.path, kwargs, Path(), None, structlog.get_logger()) == (True, None)
    assert heard.read_text() == "people is late\n"


@pytest.mark.parametrize(
    ("hours", "hour", "inside"),
    [
        ((22, 6), 23, True),
        ((22, 6), 5, True),
        ((22, 6), 6, False),
        ((22, 6), 12, False),
        ((9, 17), 9, True),
        ((9, 17), 17, False),
    ],
)
def test_hours_may_reach_over_midnight(hours: tuple[int, int], hour: int, *, inside: bool) -> None:
    from omnigraph_airflow.sensors.quiet_graph import Hours

    window = Hours(start=time(hours[0]), end=time(hours[1]))
    assert window.hold(datetime(2026, 1, 1, hour, tzinfo=UTC)) is inside


def test_hours_are_those_of_the_time_zone() -> None:
    from omnigraph_airflow.sensors.quiet_graph import Hours

    window = Hours(start=time(22), end=time(23), timezone="Asia/Tokyo")
    assert window.hold(datetime(2026, 1, 1, 13, 30, tzinfo=UTC))
    assert not window.hold(datetime(2026, 1, 1, 22, 30, tzinfo=UTC))


def test_only_a_run_by_hand_begins_outside_of_the_hours(graph: Path) -> None:
    from omnigraph_airflow.sensors.quiet_graph import Hours, QuietGraphSensor

    now = datetime.now(UTC)
    later = Hours(start=(now + timedelta(hours=2)).time(), end=(now + timedelta(hours=3)).time())
    sensor = QuietGraphSensor(task_id="wait", graph=str(graph), quiet_seconds=0, hours=later)

    class Run:
        def __init__(self, kind: str) -> None:
            self.run_type = kind

    assert sensor.poke({"dag_run": Run("manual")})  # type: ignore[typeddict-item]
    assert not sensor.poke({"dag_run": Run("scheduled")})  # type: ignore[typeddict-item]


def test_links_lead_to_the_graph_and_to_the_question() -> None:
    from airflow.models.taskinstancekey import TaskInstanceKey
    from omnigraph_airflow.links import ApprovalLink, GraphPageLink
    from omnigraph_airflow.operators.stages import PlanStageOperator

    key = TaskInstanceKey("omnigraph_maintenance__people", "preview_repair", "manual__2026-01-01T00:00:00+00:00")
    named = PlanStageOperator(task_id="preview_repair", stage="repair", graph="people")
    other = PlanStageOperator(task_id="preview_repair", stage="repair", graph="s3://lake/people")
    assert GraphPageLink().get_link(named, ti_key=key) == "/omnigraph-maintenance/graphs/people"
    assert GraphPageLink().get_link(other, ti_key=key) == "/omnigraph-maintenance/"
    asked = ApprovalLink().get_link(named, ti_key=key)
    assert asked == (
        "/dags/omnigraph_maintenance__people/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
        "/tasks/approve_repair/required_actions"
    )
    silent = TaskInstanceKey("omnigraph_maintenance__people", "check_recovery", "run")
    assert ApprovalLink().get_link(named, ti_key=silent) == ""


def test_every_stage_is_listed_with_its_tasks_and_they_lead_to_its_question(dags: Any) -> None:
    from airflow.models.taskinstancekey import TaskInstanceKey

    tasks = {task.task_id: task for dag in dags.values() for task in dag.tasks}
    asking = {stage.tasks.approve for stage in BY_NAME.values()}
    assert {name for name in tasks if name.startswith("approve_")} == asking
    assert {of.plan for of in tasks_by_stage().values()} <= set(tasks)
    for stage in BY_NAME.values():
        for name in (stage.tasks.plan, stage.tasks.apply):
            key = TaskInstanceKey("dag", name, "run")
            (link,) = (link for link in tasks[name].operator_extra_links if link.name == "Approval")
            assert link.get_link(tasks[name], ti_key=key).endswith(f"/tasks/{stage.tasks.approve}/required_actions")


def test_the_forms_say_what_confirming_alone_approves(dags: Any) -> None:
    forms = {name: dags[f"omnigraph_{name}"].params.get_param("confirm").schema["description_md"] for name in CONFIRMED}
    bounded = {name for name, text in forms.items() if "what is within the bounds below is done" in text}
    assert bounded == {"cleanup", "orphans"}
    for name, most in {"cleanup": ("confirm_versions", 1000), "orphans": ("confirm_files", 10_000)}.items():
        shown = dags[f"omnigraph_{name}"].params
        assert (shown[most[0]], shown["confirm_size"]) == (most[1], "10GiB")
    assert "verified maintenance is published" in forms["repair"]
    assert "the run waits for an approval" in forms[ROWS]
