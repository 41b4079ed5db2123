"""The manual DAGs: a run without confirm only looks, and a digest carries out exactly what was looked at."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lance import LanceDataset
from lance.dataset import MergeInsertBuilder

from omnigraph_ops.coordination.state import LEASE_PATH
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.errors import OutcomeUnknown, StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import MAINTENANCE_DIR
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.storage.store import Storage
from tests.support.edges import raising, when_asked
from tests.support.rows import rows_everywhere, tree_of
from tests.support.runs import Finished, Instance, context_of
from tests.support.shell import runner
from tests.support.templates import Templates
from tests.support.writers import copies, entry_of, write

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
PERSON = "node:Person"
Answer = Callable[..., list[dict[str, Any]]]
Made = Callable[..., Graph]
STAGES = {
    "omnigraph_repair": ("preview_repair", "approve_repair", "apply_repair"),
    "omnigraph_cleanup": ("plan_cleanup", "approve_cleanup", "cleanup_table"),
    "omnigraph_orphans": ("plan_orphans", "approve_orphans", "remove_orphans"),
}


def run(dags: Any, dag_id: str, graph: Graph, **params: Any) -> Finished:
    return Finished(dags[dag_id].test(run_conf={"graph": graph.uri, **params}))


@pytest.fixture
def made(templates: Templates, tmp_path: Path) -> Made:
    """Makes the graph of a test."""

    def make(**fields: Any) -> Graph:
        templates.copy(DemoSpec(**{"loads": 3, "rows": 20, "node_types": 1, **fields}), tmp_path / "graph")
        return open_graph(str(tmp_path / "graph"))

    return make


def content(graph: Graph) -> dict[str, str]:
    """Everything of the graph but our own notes."""
    return {k: v for k, v in tree_of(graph.uri).items() if not k.startswith(MAINTENANCE_DIR)}


def details(graph: Graph, event: str) -> list[str]:
    return [e.detail for e in audit_log.log_of(graph.storage, "").entries if str(e.event) == event]


def events(graph: Graph) -> list[tuple[str, str]]:
    return [(e.verb, str(e.event)) for e in audit_log.log_of(graph.storage, "").entries]


def with_orphan(graph: Graph) -> Path:
    """A data file of a write that died eight days ago. Writes."""
    path = Path(graph.table_uri(entry_of(graph, PERSON)), "data", "0" * 24 + "f" * 26 + ".lance")
    path.write_bytes(b"left behind")
    os.utime(path, (time.time() - 8 * 86400,) * 2)
    return path


@pytest.mark.parametrize("dag_id", STAGES)
def test_each_is_manual_and_asks_before_it_acts(dags: Any, dag_id: str) -> None:
    dag, (plan, approve, apply) = dags[dag_id], STAGES[dag_id]
    assert dag.schedule is None
    assert dag.get_task(approve).upstream_task_ids == {plan}
    assert approve in dag.get_task(apply).upstream_task_ids
    assert dag.get_task(apply).downstream_task_ids == {"report"}
    assert dag.params["confirm"] is False
    assert dag.max_active_runs > 1, "a question about one graph keeps no other waiting"


@pytest.mark.parametrize("dag_id", STAGES)
def test_without_confirm_it_stops_at_the_preview(dags: Any, dag_id: str, made: Made) -> None:
    graph = made(drift_tables=(PERSON,) if dag_id == "omnigraph_repair" else ())
    with_orphan(graph)
    before = content(graph)
    plan, approve, apply = STAGES[dag_id]
    finished = run(dags, dag_id, graph, **({"older_than": None} if dag_id == "omnigraph_cleanup" else {}))
    assert (finished.state, finished.of(plan), finished.of(approve)) == ("success", ["success"], ["skipped"])
    assert finished.of(apply) in ([], ["skipped"])
    assert finished.report["outcome"] == ("nothing_to_do" if dag_id == "omnigraph_cleanup" else "previewed")
    asked = "Nothing to remove." if dag_id == "omnigraph_cleanup" else "Nobody was asked. The digest of the plan is "
    assert asked in finished.report["markdown"]
    assert content(graph) == before
    assert events(graph) == []


@pytest.mark.night("all but one")
@pytest.mark.parametrize("dag_id", [*STAGES, "omnigraph_backup", "omnigraph_maintenance"])
def test_a_param_that_the_dag_does_not_have_stops_the_run(dags: Any, dag_id: str, made: Made) -> None:
    graph = made()
    before = content(graph)
    finished = run(dags, dag_id, graph, kepp=50, ttl_days=1, quiet_seconds_=0)
    assert finished.state == "failed"
    said = "this DAG has no param 'kepp', 'quiet_seconds_', 'ttl_days'; nothing was done; "
    assert any(said in failure for failure in finished.report["failed"])
    assert content(graph) == before
    assert events(graph) == []


def test_a_repair_publishes_exactly_what_was_previewed(dags: Any, made: Made) -> None:
    graph = made(drift_tables=(PERSON,), drift_kind="delete")
    looked = run(dags, "omnigraph_repair", graph, evidence="full")
    digest = looked.xcom("preview_repair")["digest"]
    assert len(json.dumps(looked.xcom("preview_repair"))) < 1000, "the plan itself is in the graph"
    done = run(dags, "omnigraph_repair", graph, confirm=True, digest=digest, force=True)
    assert (done.state, done.of("apply_repair")) == ("success", ["success"])
    assert done.decision(graph, "approve_repair").digest == digest
    assert not check(graph).drift
    assert events(graph) == [("repair", "approved"), ("repair", "started"), ("repair", "applied")]
    assert f"digest `{digest}`" in done.report["markdown"]


COMPANY = "node:Company"


def damage(graph: Graph, table_key: str) -> None:
    """Cut the newest manifest of a table short. Writes."""
    entry = entry_of(graph, table_key)
    Path(graph.table_uri(entry), "_versions", f"{2**64 - 1 - entry.version:020d}.manifest").write_bytes(b"cut")


@pytest.mark.parametrize("keep", [1, 100])
def test_a_confirmed_cleanup_fails_for_a_table_that_cannot_be_read(
    dags: Any, made: Made, capsys: pytest.CaptureFixture[str], keep: int
) -> None:
    """As in the shell, also where nothing else is to be removed; everything else goes, and a preview stays green."""
    graph = made(node_types=2)
    damage(graph, COMPANY)
    terms = {"keep": keep, "older_than": None}
    preview = run(dags, "omnigraph_cleanup", graph, **terms)
    assert (preview.state, preview.report["failed"]) == ("success", []), preview.tasks
    assert any(COMPANY in line for line in preview.report["attention"])
    done = run(dags, "omnigraph_cleanup", graph, **terms, confirm=True)
    assert (done.state, done.report["outcome"]) == ("failed", "failed"), done.tasks
    (failed,) = done.report["failed"]
    assert failed.startswith(f"{COMPANY}: the table cannot be read: ")
    (record,) = history.read_runs(graph, last=1)
    assert (record.outcome, record.errors, record.counts.failed) == (RunOutcome.FAILED, (failed,), 1)
    person = len(graph.open_head(entry_of(graph, PERSON)).versions())
    assert (set(done.of("cleanup_table")), person == 1) == ({"success" if keep == 1 else "skipped"}, keep == 1)
    assert ("1 failed" in done.report["markdown"]) is (keep == 1)
    assert runner(capsys)(f"cleanup --keep {keep} --confirm", graph.uri).code == 1


def test_a_rejected_cleanup_does_not_fail_for_a_table_that_cannot_be_read(
    dags: Any, made: Made, answer_hitl: Answer
) -> None:
    graph = made(node_types=2)
    damage(graph, COMPANY)
    answer_hitl("approve_cleanup", "Reject")
    done = run(dags, "omnigraph_cleanup", graph, keep=1, older_than=None, confirm=True, confirm_versions=0)
    assert (done.report["outcome"], done.report["failed"]) == ("unapproved", [])


def test_a_confirmed_cleanup_is_green_where_drift_keeps_a_table(dags: Any, made: Made) -> None:
    graph = made(node_types=2, drift_tables=(COMPANY,), drift_kind="delete")
    done = run(dags, "omnigraph_cleanup", graph, keep=1, older_than=None, confirm=True)
    assert (done.state, done.report["failed"]) == ("success", []), done.tasks
    assert any(f"{COMPANY}: not cleaned: uncovered HEAD drift" in line for line in done.report["attention"])


def test_a_digest_of_something_that_moved_is_refused(dags: Any, made: Made) -> None:
    graph = made(drift_tables=(PERSON,))
    digest = run(dags, "omnigraph_repair", graph).xcom("preview_repair")["digest"]
    copies("more-")(graph.open_head(entry_of(graph, PERSON)))
    pin = entry_of(graph, PERSON).version
    done = run(dags, "omnigraph_repair", graph, confirm=True, digest=digest)
    assert (done.state, done.of("apply_repair")) == ("failed", ["failed"])
    assert entry_of(graph, PERSON).version == pin
    unknown = run(dags, "omnigraph_repair", graph, confirm=True, digest="sha256:" + "0" * 64)
    assert unknown.of("preview_repair") == ["failed"]
    assert "no longer kept" in unknown.report["failed"][0]


def test_a_cleanup_by_digest_leaves_what_came_after_the_preview(dags: Any, made: Made) -> None:
    graph = made()
    looked = run(dags, "omnigraph_cleanup", graph, keep=1, older_than=None, tables=[PERSON])
    digest = looked.xcom("plan_cleanup", "plan")["digest"]
    pinned = entry_of(graph, PERSON).version
    write(graph, PERSON, copies("later-"))
    rows = rows_everywhere(graph)
    done = run(dags, "omnigraph_cleanup", graph, confirm=True, digest=digest)
    assert (done.state, done.of("cleanup_table")) == ("success", ["success"])
    kept = [v["version"] for v in graph.open_head(entry_of(graph, PERSON)).versions()]
    assert kept == [pinned, entry_of(graph, PERSON).version]
    assert len(graph.open_head(entry_of(graph, "edge:Knows")).versions()) > 1, "only the named table"
    assert rows_everywhere(graph) == rows
    assert events(graph) == [("cleanup", "approved"), ("cleanup", "started"), ("cleanup", "applied")]


def test_a_cleanup_keeps_a_table_that_was_frozen_after_the_preview(dags: Any, made: Made) -> None:
    graph = made()
    looked = run(dags, "omnigraph_cleanup", graph, keep=1, older_than=None, tables=[PERSON])
    digest = looked.xcom("plan_cleanup", "plan")["digest"]
    freeze_graph(graph, tables=(PERSON,), owner="ann")
    versions = graph.open_head(entry_of(graph, PERSON)).versions()
    done = run(dags, "omnigraph_cleanup", graph, confirm=True, digest=digest)
    assert (done.state, done.of("cleanup_table"), done.report["outcome"]) == ("success", ["success"], "frozen")
    assert f"kept: {PERSON} of " in done.report["markdown"]
    assert "is frozen by ann" in done.report["markdown"]
    assert graph.open_head(entry_of(graph, PERSON)).versions() == versions
    assert history.read_runs(graph, last=1)[0].outcome is RunOutcome.FROZEN


@pytest.mark.night("all but one")
@pytest.mark.parametrize(("dag_id", "tables"), [*((dag_id, ()) for dag_id in STAGES), ("omnigraph_orphans", (PERSON,))])
def test_a_frozen_graph_is_left_alone_and_the_run_stays_green(
    dags: Any, dag_id: str, tables: tuple[str, ...], made: Made
) -> None:
    """As a night leaves it: nothing failed, and the report names the freeze. Orphans wait for one of a table, too."""
    graph = made(drift_tables=(PERSON,) if dag_id == "omnigraph_repair" else ())
    with_orphan(graph)
    freeze_id = freeze_graph(graph, tables=tables, owner="ann", reason="the yearly backup").freeze_id
    before = content(graph)
    plan, approve, apply = STAGES[dag_id]
    done = run(dags, dag_id, graph, confirm=True)
    assert (done.state, done.of(plan), done.of(approve)) == ("success", ["skipped"], ["skipped"])
    assert done.of(apply) == ["skipped"]
    (told,) = done.report["attention"]
    assert "is frozen by ann (the yearly backup)" in told
    assert f"unfreeze {graph.uri} {freeze_id}" in told
    assert (done.report["outcome"], done.report["failed"], content(graph)) == ("frozen", [], before)


def test_an_expiry_from_the_form(dags: Any, made: Made) -> None:
    graph = made(loads=6)
    terms = {"retain_min": 1, "retain_max": 1, "expire_limit": 2}
    before = len(graph.open_head(entry_of(graph, PERSON)).versions())
    done = run(dags, "omnigraph_cleanup", graph, keep=None, older_than=None, expiry=terms, confirm=True)
    assert done.state == "success"
    assert len(graph.open_head(entry_of(graph, PERSON)).versions()) == before - 2


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"keep": None, "older_than": "59m"}, "an age of 59m takes versions that a running query may still read"),
        ({"keep": 1, "older_than": "0s"}, "give at least 1h; only the shell takes it, with --allow-young"),
    ],
)
def test_a_young_age_is_refused_in_the_form(dags: Any, made: Made, terms: dict[str, Any], words: str) -> None:
    from airflow.sdk.exceptions import AirflowFailException, ParamValidationError
    from omnigraph_airflow.operators.stages import PlanStageOperator

    graph = made(loads=3)
    before = content(graph)
    with pytest.raises(ParamValidationError, match="Invalid input for param older_than"):
        run(dags, "omnigraph_cleanup", graph, confirm=True, **terms)
    # The form of another DAG may have no such bound.
    plan = PlanStageOperator(task_id="plan_cleanup", stage="cleanup", graph=graph.uri, request=terms)
    with pytest.raises(AirflowFailException, match=words):
        plan.execute(context_of(Instance("plan_cleanup")))
    assert content(graph) == before


def test_young_orphans_go_only_where_the_form_says_so_as_in_the_shell(dags: Any, made: Made) -> None:
    graph = made()
    orphan = with_orphan(graph)
    refused = run(dags, "omnigraph_orphans", graph, older_than="2h", confirm=True)
    assert (refused.state, orphan.exists()) == ("failed", True)
    assert any("give at least 7d; or set the param allow_young" in failure for failure in refused.report["failed"])
    done = run(dags, "omnigraph_orphans", graph, older_than="2h", allow_young=True, confirm=True)
    assert (done.state, orphan.exists()) == ("success", False)


def test_orphans_go_to_quarantine_when_a_person_approves(dags: Any, made: Made, answer_hitl: Answer) -> None:
    graph = made()
    orphan = with_orphan(graph)
    rows = rows_everywhere(graph)
    asked = answer_hitl("approve_orphans", "Approve")
    done = run(dags, "omnigraph_orphans", graph, confirm=True, confirm_files=0)
    assert (done.state, done.of("remove_orphans")) == ("success", ["success"])
    assert asked[0]["subject"].startswith("Move 1 unreferenced file (about ")
    assert asked[0]["subject"].endswith(") to quarantine?")
    body = asked[0]["body"]
    assert "/dags/omnigraph_orphans/runs/" in body
    assert done.xcom("plan_orphans")["digest"] in body
    assert not orphan.exists()
    assert list(Path(graph.uri, MAINTENANCE_DIR, "quarantine").rglob(orphan.name))
    assert rows_everywhere(graph) == rows
    assert events(graph) == [("orphans", "approved"), ("orphans", "started"), ("orphans", "applied")]


BROKEN = {
    "omnigraph_repair": (MergeInsertBuilder, "execute", "", OutcomeUnknown("the store did not answer"), True),
    "omnigraph_orphans": (Storage, "create", LEASE_PATH, StorageError("the store did not answer"), False),
    "omnigraph_cleanup": (LanceDataset, "cleanup_old_versions", "", StorageError("the store did not answer"), True),
}
"""Which call of an edge fails, how, and whether anything was begun by then."""


@pytest.mark.night("all but one")
@pytest.mark.parametrize("dag_id", BROKEN)
def test_what_fails_half_way_is_in_the_audit_log(
    dags: Any, dag_id: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = made(drift_tables=(PERSON,) if dag_id == "omnigraph_repair" else ())
    with_orphan(graph)
    edge, call, about, error, begun = BROKEN[dag_id]
    when_asked(monkeypatch, edge, call, raising(error), about=about)
    terms = {"older_than": None, "keep": 1, "tables": [PERSON]} if dag_id == "omnigraph_cleanup" else {}
    dag = dags[dag_id]
    for task in dag.tasks:
        task.retries = 0
    done = run(dags, dag_id, graph, confirm=True, **terms)
    assert done.state == "failed", done.tasks
    verb = dag_id.removeprefix("omnigraph_")
    started = [(verb, "started")] if begun else []
    assert events(graph) == [(verb, "approved"), *started, (verb, "failed")]
    assert details(graph, "failed") == ["the store did not answer"]


def test_a_repair_that_lacks_its_switch_is_unapproved_everywhere(dags: Any, made: Made, answer_hitl: Answer) -> None:
    answer_hitl("approve_repair", "Approve", force=False)
    graph = made(drift_tables=(PERSON,), drift_kind="delete")
    done = run(dags, "omnigraph_repair", graph, confirm=True)
    assert done.of("apply_repair") == ["success"]
    assert events(graph) == [("repair", "approved"), ("repair", "unapproved")]
    (detail,) = details(graph, "unapproved")
    assert detail.endswith("1 refused; nothing was published")
    (record,) = history.read_runs(graph)
    assert (done.state, done.report["outcome"], record.outcome) == ("failed", "unapproved", RunOutcome.UNAPPROVED)
    said = f"repair was approved without the switch, so nothing was published of {PERSON}"
    assert (done.report["unapproved"], done.report["failed"], record.errors) == ([said], [], ())
