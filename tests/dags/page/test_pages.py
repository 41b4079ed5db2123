"""What the pages show, and what they never show."""

from __future__ import annotations

import asyncio
import html
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance
import pytest
from omnigraph_airflow import PAGES

from omnigraph_ops.config.graph_entries import nightly_dag_id
from omnigraph_ops.coordination import sealed
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.models.rows import EdgeRows, RowPolicy, RowRetentionPlan, TableRowPlan
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.registry import BY_NAME
from omnigraph_ops.stages.repair.run import preview_repair
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.history import record, table
from tests.support.page import DIGEST, Client, Tags, get
from tests.support.plain import rows
from tests.support.tables import PERSON
from tests.support.writers import entry_of

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]

HOSTILE = ("<script>alert(1)", '"><img src=x onerror=alert(2)>', "'\u202egnp.exe")
SECRET = "canary-0f4e2d"


def test_hostile_names_are_only_text(client: Callable[..., Client], graphs_file: Any, tmp_path: Path) -> None:
    for name in HOSTILE:
        lance.write_dataset(rows(0, 10), str(tmp_path / "folder" / f"{name}.lance"))
    graph = open_graph(str(tmp_path / "folder"))
    from omnigraph_ops.outcomes.history import append

    run_id = "dag/<b>'\"&/../run"
    hostile = record(run_id, tables=tuple(table(k, reason=k, error=k) for k in HOSTILE), errors=HOSTILE)
    append(graph, hostile)
    graphs_file(folder=str(tmp_path / "folder"))
    admin = client()
    pages = [get(admin, "/"), get(admin, "/graphs/folder")]
    links = [
        attrs["href"]
        for tag, attrs in Tags(pages[1]).found
        if tag == "a" and re.search(r"/table\?key=|/runs/", attrs.get("href") or "")
    ]
    assert len(links) >= len(HOSTILE) + 1
    pages += [get(admin, str(link).removeprefix(PAGES)) for link in links]
    for page in pages:
        for tag, attrs in Tags(page).found:
            assert tag not in {"img", "iframe", "object", "form"}
            assert tag != "script" or attrs.get("src") == f"{PAGES}/static/page.js"
            assert not any(name.startswith("on") or name == "style" for name in attrs)
    shown = html.unescape(pages[1])
    for name in HOSTILE:
        assert f"<bdi>table:{name}</bdi>" in shown, re.findall("<bdi>.*?</bdi>", shown)


def test_a_graph_that_cannot_be_opened_says_why_and_holds_up_no_other(
    client: Callable[..., Client],
    graphs_file: Any,
    demo_graph: DemoGraph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from omnigraph_airflow.page import pages as overview

    sound, slow = demo_graph(loads=1), demo_graph(loads=1, name="slow")
    graphs_file(sound=sound.uri, gone=str(tmp_path / "gone"), slow=slow.uri)
    release = threading.Event()
    when_asked(monkeypatch, LanceGateway, "open", lambda: release.wait(60), about="/slow/", times=None)
    monkeypatch.setattr(overview, "OVERVIEW_SECONDS", 0.5)
    admin = client()
    # A page that waits too little for the others too is asked again, as a person would.
    page = next(page for page in (get(admin, "/") for _ in range(120)) if "no report yet" in page)
    release.set()
    assert f"there is nothing at {tmp_path}/gone" in page
    assert "still being read" in page
    assert "no report yet" in page, "the other could be read"
    assert page.index("gone") < page.index("sound"), "worst first"


def test_errors_show_neither_secrets_nor_tracebacks(
    client: Callable[..., Client],
    graphs_file: Any,
    demo_graph: DemoGraph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    connection = {"conn_type": "omnigraph", "login": "AKIA", "password": SECRET}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    graphs_file(people=demo_graph(loads=1).uri)
    path = tmp_path / "graphs.yaml"
    path.write_text(path.read_text().replace('{"target"', '{"connection": "lake", "target"'))
    denied = raising(StorageError(f"GET s3://lake?X-Amz-Signature=abc with {SECRET}: denied"))
    when_asked(monkeypatch, LanceGateway, "open", denied, times=None)
    for address in ("/", "/graphs/people", "/graphs/people/table?key=x"):
        page = client().get(PAGES + address).text
        assert "denied" in page or "no such table" in page
        assert SECRET not in page and "abc" not in page
    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", lambda *_, **__: 1 / 0)
    page = get(client(), "/", 500)
    assert "ZeroDivisionError" in page and "Traceback" not in page and "test_page" not in page


def test_a_connection_that_does_not_exist_is_named_on_the_pages(
    client: Callable[..., Client], graphs_file: Any, tmp_path: Path
) -> None:
    graphs_file(people=str(tmp_path / "people"))
    path = tmp_path / "graphs.yaml"
    path.write_text(path.read_text().replace('{"target"', '{"connection": "nolake", "target"'))
    for address in ("/", "/graphs/people"):
        page = html.unescape(get(client(), address))
        assert "Airflow has no connection 'nolake'" in page, page
        assert "AirflowNotFoundException" not in page


def test_a_graph_page_shows_drift_protection_holds_and_reports(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph
) -> None:
    from omnigraph_ops.coordination.holds import HeldVersion, HoldKind, place_hold
    from omnigraph_ops.outcomes.history import append

    graph = demo_graph(loads=2, lazy_branches=1, drift_tables=("node:Person",), drift_kind="delete")
    entry = graph.state().entries[0]
    held = HeldVersion(table_path=entry.path, version=entry.version)
    place_hold(graph.storage, (held,), kind=HoldKind.FREEZE, reason="backup", ttl_seconds=3600)
    append(graph, record("cli/host:1/x"))
    graphs_file(people=graph.uri)
    page = get(client(), "/graphs/people")
    for text in (
        "drifted",
        "published on main",
        "reads it",
        "freeze hold",
        "backup",
        "Lance HEAD",
        "run time",
    ):
        assert text.lower() in page.lower(), text
    assert "One run so far." in page
    report = get(client(), "/graphs/people/runs/cli%2Fhost:1%2Fx")
    assert "look at node:B" in report and "rejected" in report


def test_a_table_that_cannot_be_read_says_why_once(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph
) -> None:
    graph = demo_graph(node_types=1, loads=2, rows=5)
    newest = min(Path(graph.table_uri(entry_of(graph, PERSON)), "_versions").glob("*.manifest"))
    newest.write_bytes(b"cut")
    graphs_file(people=graph.uri)
    page = get(client(), "/graphs/people")
    assert page.count("cannot open ") == 1


def test_a_frozen_night_is_not_shown_as_one_with_nothing_to_do(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph
) -> None:
    from omnigraph_ops.outcomes.history import append

    graph = demo_graph(loads=1, node_types=1)
    append(graph, record("cli/host:1/x", outcome=RunOutcome.FROZEN))
    graphs_file(people=graph.uri)
    admin = client()
    page = next(page for page in (get(admin, "/") for _ in range(120)) if "still being read" not in page)
    (tile,) = re.findall(r'tile-number">1</span>\s*<span class="state state-([a-z_]+)"', page)
    assert tile == "frozen"
    assert 'state-frozen"' in get(admin, "/graphs/people")


def test_the_page_of_a_table_shows_its_vector_indexes(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph
) -> None:
    graphs_file(people=demo_graph(loads=2).uri)
    documents, people = (get(client(), f"/graphs/people/table?key=node:{name}") for name in ("Doc", "Person"))
    assert "Vector indexes" in documents and "embedding_idx" in documents and "1 recommended" in documents
    assert "Vector indexes" not in people


def test_a_kept_plan_is_shown_in_full(client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph) -> None:
    graph = demo_graph(loads=2, drift_tables=("node:Person",), drift_kind="delete")
    preview = preview_repair(graph)
    sealed.store(graph.storage, preview)
    graphs_file(people=graph.uri)
    page = get(client(), f"/graphs/people/plans/repair/{preview.digest}")
    assert preview.digest in page and "suspicious" in page and "Delete" in page
    assert "no longer kept" in get(client(), f"/graphs/people/plans/repair/{DIGEST}", 404)
    assert "keeps a plan" in get(client(), f"/graphs/people/plans/secrets/{DIGEST}", 404)
    assert "keeps a plan" in get(client(), f"/graphs/people/plans/optimize/{DIGEST}", 404)
    assert "not the digest" in get(client(), "/graphs/people/plans/repair/passwd", 404)


@pytest.mark.parametrize(("quarantine", "words"), [(True, "Moves to quarantine"), (False, "Deletes for good")])
def test_a_plan_of_orphans_says_whether_files_can_be_brought_back(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph, quarantine: bool, words: str
) -> None:
    graph = demo_graph(loads=1)
    plan = plan_orphans(graph, quarantine=quarantine)
    sealed.store(graph.storage, plan)
    graphs_file(people=graph.uri)
    assert words in get(client(), f"/graphs/people/plans/orphans/{plan.digest}")


@pytest.mark.parametrize("stage", BY_NAME)
def test_every_stage_that_asks_has_pages_of_its_plans(
    stage: str, client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph
) -> None:
    graphs_file(people=demo_graph(loads=1).uri)
    assert "no longer kept" in get(client(), f"/graphs/people/plans/{stage}/{DIGEST}", 404)


def test_a_plan_of_row_retention_with_hostile_names_is_only_text(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph
) -> None:
    graph = demo_graph(loads=1)
    plan = hostile_row_plan(graph.uri)
    sealed.store(graph.storage, plan)
    graphs_file(people=graph.uri)
    page = get(client(), f"/graphs/people/plans/expire-rows/{plan.digest}")
    for tag, attrs in Tags(page).found:
        assert tag not in {"img", "iframe", "object", "form"}
        assert tag != "script" or attrs.get("src") == f"{PAGES}/static/page.js"
        assert not any(name.startswith("on") or name == "style" for name in attrs)
    shown = html.unescape(page)
    evil, worse, worst = HOSTILE
    for text in (
        *("1,200 rows and 7 of their edges", evil, worst, plan.digest),
        *(f"table:{evil}", "1,200", "30.0%", f"{worse} older than 90 days", "2023-11-14 22:13:20 UTC", "1,300"),
        *(f"edge:{worst}", f"key {worse}"),
        *(f"table:{worse}", f"refused: {worst}"),
    ):
        assert text in shown, text
    assert "left alone" not in shown, "the sample of a refused table"


def test_an_open_question_about_rows_shows_its_plan(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_airflow.page import listing

    graph = demo_graph(loads=1)
    plan = hostile_row_plan(graph.uri)
    sealed.store(graph.storage, plan)
    asked = listing.OpenQuestion(
        dag_id="omnigraph_row_retention",
        run_id="manual__1",
        task_id="approve_row_retention",
        subject="Delete?",
        asked_at=datetime.now(UTC),
        answer_by=None,
        may_answer=(),
        digest=plan.digest,
        graph=f"file://{graph.uri}",
    )
    monkeypatch.setattr(listing, "open_questions", lambda dag_ids: (asked,))
    graphs_file(people=graph.uri)
    page = get(client(), "/graphs/people")
    assert "What it would do" in page and "1,200 rows and 7 of their edges" in page
    links = {str(attrs.get("href")).removeprefix(PAGES) for tag, attrs in Tags(page).found if tag == "a"}
    (link,) = (link for link in links if "/plans/" in link)
    get(client(), link)
    assert "1 waiting" in get(client(), "/")


def hostile_row_plan(uri: str) -> RowRetentionPlan:
    """One table that loses rows and one that is refused, every name hostile."""
    evil, worse, worst = HOSTILE
    policy = RowPolicy(table_key=f"table:{evil}", property=worse, older_than_secs=90 * 86_400)
    going = TableRowPlan(
        policy=policy,
        table_key=policy.table_key,
        cut=1,
        cut_at_us=1_700_000_000_000_000,
        manifest_version=3,
        rows=4000,
        expired=1200,
        max_rows=1300,
        sample=(f"key {worse}",),
        edges=(EdgeRows(table_key=f"edge:{worst}", rows=7),),
    )
    refused = replace(going, table_key=f"table:{worse}", refused=worst, sample=("left alone",))
    return sealed.seal(
        RowRetentionPlan(
            uri=uri,
            stamp=6,
            branch=worst,
            planned_at_us=now_us(),
            expires_at_us=now_us() + 10**9,
            max_share=0.5,
            tables=(going, refused),
            digest="",
        )
    )


def test_a_long_list_of_tables_is_cut_and_can_be_had_whole(
    client: Callable[..., Client], graphs_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_airflow.page import app

    for name in "abcd":
        lance.write_dataset(rows(0, 5), str(tmp_path / "folder" / f"{name}.lance"))
    graphs_file(folder=str(tmp_path / "folder"))
    monkeypatch.setattr(app, "MOST_TABLES", 3)
    page = get(client(), "/graphs/folder")
    assert "The worst 3 of 4" in page and page.count("/table?key=") == 3
    assert get(client(), "/graphs/folder?tables=all").count("/table?key=") == 4


def test_without_a_file_the_graph_of_the_deployment_has_its_page(
    client: Callable[..., Client], demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMNIGRAPH_GRAPHS_FILE", raising=False)
    monkeypatch.setenv("OMNIGRAPH_GRAPH", demo_graph(loads=1, name="people.omni").uri)
    assert "people.omni" in get(client(), "/")
    assert "node:Person" in get(client(), "/graphs/deployment")


def test_faults_of_the_file_are_told(
    client: Callable[..., Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graphs.yaml"
    path.write_text("version: 1\ngraphs:\n  people: {target: /x, tipo: 1}\n")
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(path))
    assert f"{path}:3" in get(client(), "/")


def test_the_page_is_made_once_with_its_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph_airflow.page import app
    from omnigraph_airflow.plugin import LazyApp

    made, served = list[str](), list[Any]()

    async def page(scope: Any, _receive: Any, _send: Any) -> None:
        served.append(scope)

    monkeypatch.setattr(app, "create_page", lambda: made.append("page") or page)
    lazy: Any = LazyApp()
    for number in range(2):
        asyncio.run(lazy({"request": number}, None, None))
    assert (made, served) == (["page"], [{"request": 0}, {"request": 1}])


def test_loading_the_plugin_imports_nothing_of_the_page() -> None:
    code = (
        "import airflow.plugins_manager, sys; before = set(sys.modules); import omnigraph_airflow.plugin as p; "
        "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "assert new <= {'omnigraph_airflow'}, new; "
        "assert p.OmnigraphPlugin.external_views[0]['destination'] == 'nav'; "
        "assert p.OmnigraphPlugin.fastapi_apps[0]['url_prefix'] == '/omnigraph-maintenance'"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]


def test_a_page_without_a_question_says_that_a_run_at_work_may_still_ask(
    client: Callable[..., Client], graphs_file: Any, demo_graph: DemoGraph
) -> None:
    """Somebody looked at such a page for minutes: it does not refresh itself."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType

    graphs_file(asking=demo_graph().uri)
    before = get(client(), "/graphs/asking")
    with create_session() as session:
        run = DagRun(dag_id=nightly_dag_id("asking"), run_id="r", run_type=DagRunType.MANUAL, state="running")
        session.add(run)
    after = get(client(), "/graphs/asking")
    assert "Nothing waits for an answer.</p>" in before
    assert "A run is at work and may still ask: reload this page to see." in after
