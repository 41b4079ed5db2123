"""A repair preview is sealed: what is applied is what was shown, by the digest, in time, on that graph."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import sealed
from omnigraph_ops.errors import StalePlan
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.models.repair import EvidenceTier, RepairAction, RepairPreview
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.outcomes.history import read_runs
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.conftest import DemoGraph
from tests.support.rows import tree_of
from tests.support.shell import Cli, assert_refused
from tests.support.writers import copies, delete_first, drift, entry_of, write

SMALL = {"loads": 3, "rows": 20}
PERSON, DOC = "node:Person", "node:Doc"


def audit(graph: Graph) -> list[tuple[AuditEvent, str, str]]:
    return [(e.event, e.verb, e.digest) for e in audit_log.log_of(graph.storage, "").entries]


@pytest.mark.slow
def test_a_saved_preview_is_applied_as_it_was_shown(
    cli: Cli, demo_graph: DemoGraph, stamp: int, tmp_path: Path
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON, DOC))
    file, tree = tmp_path / "plan.json", tree_of(graph.uri)
    shown = cli("repair --evidence full --json --save-plan", graph.uri, str(file))
    assert (shown.code, tree_of(graph.uri)) == (0, tree)
    preview = serde.from_json(RepairPreview, file.read_bytes())
    assert preview.digest == shown.json["digest"]
    assert {t["table_key"]: (t["evidence"] or {}).get("tier") for t in shown.json["tables"]}[PERSON] == "full"
    again = cli("repair --plan", graph.uri, str(file))
    assert (again.code, tree_of(graph.uri)) == (0, tree)
    assert "content equal" in again.out
    applied = cli("repair --confirm --json --plan", graph.uri, str(file))
    assert applied.code == 0
    healed = [t["table_key"] for t in applied.json["tables"] if t["action"] == RepairAction.HEALED]
    assert (healed, applied.json["digest"]) == ([DOC, PERSON], preview.digest)
    assert audit(graph) == [(event, "repair", preview.digest) for event in (AuditEvent.STARTED, AuditEvent.APPLIED)]
    again = cli("repair --confirm --plan", graph.uri, str(file))
    assert (again.code, f"Already published  {DOC}, {PERSON}" in again.out) == (0, True)
    assert len(audit(graph)) == 2, "where nothing happened there is no entry"


@pytest.mark.slow
def test_an_altered_preview_is_refused(cli: Cli, demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL, drift_tables=(PERSON,), drift_kind="delete")
    file = tmp_path / "plan.json"
    cli("repair --save-plan", graph.uri, str(file))
    text, tree = file.read_text(), tree_of(graph.uri)
    for old, new in (("suspicious", "verified_maintenance"), ('"content_equal": false', '"content_equal": true')):
        assert old in text
        file.write_text(text.replace(old, new))
        assert_refused(cli("repair --confirm --plan", graph.uri, str(file)), "was altered")
    file.write_text("{}")
    assert_refused(cli("repair --confirm --plan", graph.uri, str(file)), "not a valid RepairPreview")
    assert_refused(cli("repair --confirm --plan", graph.uri, str(tmp_path / "none")), "cannot read the plan")
    assert tree_of(graph.uri) == tree


@pytest.mark.slow
def test_a_preview_of_another_graph_is_refused(cli: Cli, demo_graph: DemoGraph, tmp_path: Path) -> None:
    one = demo_graph(**SMALL, drift_tables=(PERSON,))
    two = demo_graph(**SMALL, drift_tables=(PERSON,), name="two.omni")
    file, tree = tmp_path / "plan.json", tree_of(two.uri)
    cli("repair --save-plan", one.uri, str(file))
    assert_refused(cli("repair --confirm --plan", two.uri, str(file)), f"is for {one.uri}")
    with pytest.raises(StalePlan, match="is for"):
        apply_repair(two, preview_repair(one))
    assert tree_of(two.uri) == tree


def test_a_preview_expires(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=(PERSON,), settings=Settings(plan_ttl_seconds=60))
    preview, entry = preview_repair(graph), entry_of(graph, PERSON)
    assert preview.expires_at_us - preview.planned_at_us == 60_000_000
    old = sealed.seal(replace(preview, expires_at_us=preview.planned_at_us - 3_600_000_000))
    with pytest.raises(StalePlan, match=r"expired 1 h ago"):
        apply_repair(graph, old)
    assert entry_of(graph, PERSON) == entry


@pytest.mark.slow
def test_what_changed_since_is_named(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON,))
    preview = preview_repair(graph)
    pin = entry_of(graph, PERSON).version
    drift(graph, PERSON, delete_first())
    with pytest.raises(StalePlan) as refused:
        apply_repair(graph, preview, force=True)
    assert (
        f"({PERSON}: approved {pin} → {pin + 2} verified_maintenance [ReserveFragments, Rewrite], "
        f"now {pin} → {pin + 3} suspicious [ReserveFragments, Rewrite, Delete])"
    ) in str(refused.value)


def test_a_table_that_drifted_since_was_not_approved(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=(PERSON,))
    preview, narrow = preview_repair(graph), preview_repair(graph, tables=(PERSON,))
    drift(graph, DOC, copies("extra-"))
    with pytest.raises(StalePlan, match=f"{DOC}: approved .* no_drift, now .* suspicious"):
        apply_repair(graph, preview)
    assert narrow.tables == (PERSON,)
    assert apply_repair(graph, narrow).manifest_version is not None


def test_others_may_write_while_a_person_reads_the_preview(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON,))
    preview = preview_repair(graph)
    write(graph, DOC, copies("extra-"))
    documents = entry_of(graph, DOC)
    assert apply_repair(open_graph(graph.uri), preview).manifest_version is not None
    assert entry_of(graph, PERSON).version == graph.open_head(entry_of(graph, PERSON)).version
    assert entry_of(graph, DOC) == documents


def test_many_differences_are_cut_short(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    preview = preview_repair(graph)
    for row in preview.rows[:5]:
        drift(graph, row.table_key, lambda dataset: dataset.delete("false"))
    with pytest.raises(StalePlan, match="and 2 more tables"):
        apply_repair(graph, preview)


def test_better_evidence_is_no_other_drift(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON,))
    preview = preview_repair(graph, evidence=EvidenceTier.FULL)
    graph.storage.write("__maintenance/anything.json", b"{}")
    assert apply_repair(open_graph(graph.uri), preview).digest == preview.digest


@pytest.mark.slow
def test_a_refusal_is_recorded_with_what_it_was_about(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=(PERSON,), drift_kind="delete")
    assert cli("repair --confirm", graph.uri).code == 1
    (entry,) = audit_log.log_of(graph.storage, "").entries
    assert (entry.event, entry.actor) == (AuditEvent.UNAPPROVED, audit_log.shell_actor())
    assert entry.detail == "5 no_op, 1 refused; nothing was published"
    (run,) = read_runs(graph)
    assert (run.outcome, run.errors) == (RunOutcome.UNAPPROVED, ())
    assert cli("repair --confirm --force", graph.uri).code == 0
    forced = audit_log.log_of(graph.storage, "").entries[-1]
    assert (forced.event, forced.detail.partition(";")[0]) == (AuditEvent.APPLIED, "1 forced, 5 no_op")


def test_what_was_published_comes_with_its_evidence(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=(PERSON,))
    rows = {t["table_key"]: t for t in cli("repair --confirm --evidence full --json", graph.uri).json["tables"]}
    assert (rows[PERSON]["action"], rows[PERSON]["evidence"]["content_equal"]) == ("healed", True)
    assert rows[DOC]["evidence"] is None


def test_a_clean_graph_leaves_no_entry(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    assert cli("repair --confirm", graph.uri).code == 0
    assert audit_log.log_of(graph.storage, "").entries == ()


@pytest.mark.parametrize(
    "flags",
    [
        "--plan p --table node:Doc",
        "--plan p --evidence full",
        "--plan p --save-plan q",
        "--save-plan q --confirm",
        "--evidence everything",
        "--force",
    ],
)
def test_flags_that_do_not_go_together_are_refused(cli: Cli, demo_graph: DemoGraph, flags: str) -> None:
    graph = demo_graph(**SMALL)
    tree = tree_of(graph.uri)
    outcome = cli(f"repair {flags}", graph.uri)
    assert (outcome.code, outcome.out, "Traceback" in outcome.err) == (2, "", False)
    assert tree_of(graph.uri) == tree


def test_the_preview_shows_its_evidence_and_cost(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=(PERSON,), drift_kind="delete")
    preview = cli("repair --evidence sample --table", graph.uri, PERSON)
    lines = preview.out.splitlines()
    assert ["Only", "looked", "at", PERSON] in [line.split() for line in lines]
    (row,) = (line.split() for line in lines if line.startswith(f"  {PERSON} "))
    assert row[4:8] == ["leave,", "unless", "forced", "suspicious"]
    text = "\n".join(lines)
    for words in (
        "  - evidence (sample): content differs: the number of rows differs",
        "  - rows 60 → 59 (0 added, 1 removed, 0 changed); fragments 3 → 3, 2 identical",
        "  - if published: Readers of main lose 1 row.",
        "removed  id: ",
        "cost: counts about 0 B, sample read ",
        "If nothing is published\n  - Readers of main keep the published version.",
    ):
        assert words in text
    assert preview.err.endswith(f"omnigraph-ops repair {graph.uri} --table {PERSON} --evidence sample --confirm\n")


def test_a_plan_file_is_json_that_other_tools_can_read(cli: Cli, demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL, drift_tables=(PERSON,))
    file = tmp_path / "plan.json"
    assert cli("repair --table node:Person --save-plan", graph.uri, str(file)).code == 0
    plan = json.loads(file.read_text())
    assert (plan["tables"], plan["uri"], plan["digest"][:7]) == ([PERSON], graph.uri, "sha256:")
    assert_refused(cli("repair --save-plan", graph.uri, str(tmp_path / "no" / "folder")), "cannot write the plan")
