"""The orphans verb: preview, gates, plans as files, inventories, the audit log, the body of an approval."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination import sealed
from omnigraph_ops.errors import StalePlan, StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes.runs import RecordedRun
from omnigraph_ops.stages.orphans import apply
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.orphans.stage import Orphans
from omnigraph_ops.storage.inventory import walk
from omnigraph_ops.views import markdown
from omnigraph_ops.views.view import plain_text
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.engine_graphs import NAMES, RELEASES, unpacked
from tests.support.leases import take_over
from tests.support.orphans import KNOWS, PERSON, age, drop, plant, put
from tests.support.rows import rows_everywhere, tree_of
from tests.support.shell import Cli, assert_refused
from tests.support.writers import entry_of

SMALL = {"loads": 2, "rows": 6, "node_types": 1}


def body_of(plan: OrphansPlan, **more: str) -> str:
    stage = Orphans()
    return markdown.body(stage.view(plan), stage.question(plan), digest=plan.digest, **more)


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    made = demo_graph(**SMALL)
    plant(made)
    return made


def test_without_confirm_it_prints_the_plan_and_deletes_nothing(graph: Graph, cli: Cli) -> None:
    before = tree_of(graph.uri)
    shown = cli("orphans", graph.uri)
    assert (shown.code, "8 files" in shown.out, "rerun with --confirm" in shown.err) == (0, True, True)
    assert "listed " in shown.err
    assert "listed " not in cli("orphans --quiet", graph.uri).err
    plan = serde.from_json(OrphansPlan, cli("orphans --json", graph.uri).out)
    assert len(plan.files) == 8
    assert tree_of(graph.uri) == before


def test_confirm_deletes_reports_and_records(graph: Graph, cli: Cli) -> None:
    done = cli("orphans --older-than 7d --confirm --json", graph.uri)
    assert (done.code, done.json["files_removed"], done.json["failed"]) == (0, 8, [])
    assert "deleting: 8 of 8 files" in done.err
    entries = [(e.verb, e.event, e.digest) for e in audit_log.log_of(graph.storage, "").entries]
    assert entries == [("orphans", event, done.json["digest"]) for event in ("started", "applied")]
    again = cli("orphans --older-than 7d --confirm --json", graph.uri)
    assert (again.code, again.json["files_removed"]) == (0, 0)
    assert len(audit_log.log_of(graph.storage, "").entries) == 2


@pytest.mark.parametrize("fate", [(), ("--quarantine",)])
def test_where_nothing_goes_it_is_not_called_deleted(graph: Graph, cli: Cli, fate: tuple[str, ...]) -> None:
    assert cli("orphans", graph.uri, "--older-than", "7d", "--confirm").code == 0
    again = cli("orphans", graph.uri, "--older-than", "7d", "--confirm", *fate)
    assert (again.code, again.out.splitlines()[0]) == (0, f"orphans {graph.uri} — nothing removed")


def test_a_plan_file_is_applied_and_nothing_else(graph: Graph, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(cli("orphans --json", graph.uri).out)
    later = put(graph, f"{entry_of(graph, PERSON).path}/data/later.lance")
    shown = cli("orphans --json --plan", graph.uri, str(file))
    assert (shown.code, serde.from_json(OrphansPlan, shown.out)) == (
        0,
        serde.from_json(OrphansPlan, file.read_bytes()),
    )
    assert cli("orphans --json --confirm --plan", graph.uri, str(file)).json["files_removed"] == 8
    assert graph.storage.exists(later)
    altered = json.loads(file.read_text()) | {"files": []}
    file.write_text(json.dumps(altered))
    assert_refused(cli("orphans --confirm --plan", graph.uri, str(file)), "was altered")
    assert_refused(cli("orphans --plan", graph.uri, str(file)), "was altered")
    assert_refused(cli("orphans --plan", graph.uri, str(tmp_path / "none")), "cannot read the plan")
    for own in ("--older-than 8d", "--quarantine", "--listing x"):
        assert_refused(cli(f"orphans {own} --plan", graph.uri, str(file)), "carries its own policy", code=2)


@pytest.mark.parametrize("quarantine", [True, False])
def test_the_plan_says_whether_files_can_be_brought_back(
    graph: Graph, cli: Cli, tmp_path: Path, quarantine: bool
) -> None:
    words = "moved to quarantine" if quarantine else "deleted for good"
    preview = cli(f"orphans{' --quarantine' if quarantine else ''} --save-plan {tmp_path / 'plan'}", graph.uri)
    assert f"(older than 7 days, to be {words})" in preview.out
    body = body_of(serde.from_json(OrphansPlan, (tmp_path / "plan").read_bytes()))
    assert f"to be {words}." in body
    assert f"exactly these files are {words}" in body
    done = cli("orphans --confirm --json --plan", graph.uri, str(tmp_path / "plan"))
    assert (done.json["files_removed"], done.json["quarantine_id"] is not None) == (8, quarantine)
    *_, entry = audit_log.log_of(graph.storage, "").entries
    assert words in entry.detail


def test_the_answer_is_bound_to_quarantine_or_delete(graph: Graph, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    kept = cli("orphans --quarantine --json", graph.uri).json
    before = tree_of(graph.uri)
    file.write_text(json.dumps(kept | {"quarantine": False}))
    assert_refused(cli("orphans --confirm --plan", graph.uri, str(file)), "was altered after it was made")
    del kept["quarantine"]
    file.write_text(json.dumps(kept))
    refused = cli("orphans --confirm --plan", graph.uri, str(file))
    assert_refused(refused, "is not one of this release: not a valid OrphansPlan: quarantine")
    assert tree_of(graph.uri) == before
    graph.storage.write(sealed.plan_path(kept["digest"]), json.dumps(kept).encode())
    with pytest.raises(StalePlan, match=r"or from another release .*quarantine.*nothing was done; plan again"):
        sealed.load(graph.storage, OrphansPlan, kept["digest"])


def test_a_shorter_age_needs_a_switch_and_then_the_word_that_nobody_writes(
    graph: Graph, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = put(graph, f"{entry_of(graph, PERSON).path}/data/young.lance", days=0.1)
    assert_refused(cli("orphans --older-than 1h --yes", graph.uri), "pass --allow-young")
    assert young in cli("orphans --older-than 1h --allow-young --json", graph.uri).out
    for words in ("", " --fence"):
        refused = cli(f"orphans --older-than 59m --allow-young --confirm{words}", graph.uri)
        assert_refused(refused, "OMNIGRAPH_OPS_EXCLUSIVE=true")
    monkeypatch.setenv("OMNIGRAPH_OPS_EXCLUSIVE", "true")
    newest = put(graph, f"{entry_of(graph, PERSON).path}/data/newest.lance", days=0.01)
    done = cli("orphans --older-than 60s --allow-young --confirm --json", graph.uri)
    assert (done.code, done.json["files_removed"]) == (0, 10)
    assert not graph.storage.exists(newest)
    assert graph.lance_branches() == ()
    assert_refused(cli("orphans --older-than week", graph.uri), "duration", code=2)


@pytest.mark.slow
def test_quarantine_from_the_shell(graph: Graph, cli: Cli) -> None:
    moved = cli("orphans --older-than 7d --confirm --quarantine --json", graph.uri).json
    assert moved["files_removed"] == 8
    name = moved["quarantine_id"]
    assert name in cli("orphans --quarantined", graph.uri).out
    before = tree_of(graph.uri)
    assert "holds 8 files" in cli("orphans --purge", graph.uri, name).out
    assert tree_of(graph.uri) == before
    assert cli("orphans --json --restore", graph.uri, name).json["files"] == 8
    second = cli("orphans --older-than 7d --confirm --quarantine --json", graph.uri).json["quarantine_id"]
    assert cli("orphans --confirm --json --purge", graph.uri, second).json["files"] == 8
    assert cli("orphans --json --quarantined", graph.uri).json["quarantines"] == []
    assert_refused(cli("orphans --restore", graph.uri, second), "no quarantine")
    assert_refused(cli("orphans --confirm --quarantined", graph.uri), "no --confirm", code=2)
    for other in ("--older-than 8d", "--allow-young", "--spark local[1]"):
        assert_refused(cli(f"orphans {other} --quarantined", graph.uri), "stand alone", code=2)


def test_what_cannot_be_deleted_makes_exit_code_1(graph: Graph, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as failing:
        denied = raising(PermissionError(errno.EACCES, "Permission denied"))
        when_asked(failing, os, "unlink", denied, about="^(?!.*__maintenance)", times=None)
        done = cli("orphans --older-than 7d --confirm --json --quiet", graph.uri)
    assert done.code == 1
    assert "8 files could not be removed" in done.err
    assert len(done.json["failed"]) == 8


def test_an_inventory_file_is_used_and_its_gaps_are_named(graph: Graph, cli: Cli, tmp_path: Path) -> None:
    stored = [s for s in walk(graph.storage) if not s.is_folder]
    lines = [f"{s.path},{s.size},{s.modified_at}" for s in stored]
    file = tmp_path / "inventory.csv"
    file.write_text("\n".join(["path,size,last_modified", *lines, "/elsewhere/x,1,0"]))
    plan = serde.from_json(OrphansPlan, cli("orphans --json --listing", graph.uri, str(file)).out)
    assert plan.files == plan_orphans(graph).files
    assert (plan.foreign_rows, plan.missing_rows, plan.listing) == (1, 0, str(file))
    gone, *_ = (f.path for f in plan.files)
    os.unlink(Path(graph.uri, gone))
    partial = [line for line in lines if ".manifest" not in line]
    file.write_text("\n".join(["path,size,last_modified", *partial]))
    shown = cli("orphans --listing", graph.uri, str(file))
    assert "7 files" in shown.out
    assert f"the inventory is incomplete: {len(lines) - len(partial)} referenced files missing" in shown.out
    done = cli("orphans --older-than 7d --confirm --json --listing", graph.uri, str(file))
    assert (done.json["files_removed"], done.json["spared"]) == (7, [])
    assert re.search(r"listed \d+ files of this graph in the inventory", done.err)
    assert "the inventory is incomplete: " in done.err
    file.write_text("path,size,last_modified\nx,many,0\n")
    assert_refused(cli("orphans --listing", graph.uri, str(file)), "line 2")


def test_an_incomplete_inventory_never_halves_a_dropped_dataset(graph: Graph, tmp_path: Path, cli: Cli) -> None:
    path = drop(graph, KNOWS)
    age(graph.uri)
    stored = [s for s in walk(graph.storage) if not s.is_folder and not s.path.endswith(".txn")]
    file = tmp_path / "inventory.jsonl"
    file.write_text("\n".join(json.dumps({"path": s.path, "size": s.size, "last_modified": 0}) for s in stored))
    done = cli("orphans --older-than 7d --confirm --json --listing", graph.uri, str(file))
    assert done.code == 0
    assert {f["path"].startswith(path) for f in done.json["spared"]} == {True}
    assert all("is not in the inventory of the plan" in f["reason"] for f in done.json["spared"])
    assert graph.lance.open(f"{graph.uri}/{path}").to_table().num_rows


def test_a_dropped_dataset_that_changed_since_the_inventory_stays(graph: Graph, tmp_path: Path) -> None:
    path, strays = drop(graph, KNOWS), {f.path for f in plan_orphans(graph).files}
    age(graph.uri)
    stored = [s for s in walk(graph.storage) if not s.is_folder]
    file = tmp_path / "inventory.jsonl"
    file.write_text("\n".join(json.dumps({"path": s.path, "size": s.size, "last_modified": 0}) for s in stored))
    os.utime(next(Path(graph.uri, path, "data").iterdir()))
    plan = plan_orphans(graph, listing=file)
    assert [(g.path, g.kept) for g in plan.groups] == [(path, "it changed since the inventory was taken")]
    assert {f.path for f in plan.files} == strays


def test_the_body_of_an_approval_is_short_and_only_text(graph: Graph) -> None:
    drop(graph, KNOWS)
    for number in range(40):
        put(graph, f"nodes/{number:016x}/data/x.lance")
        put(graph, f"[evil]({number})|<b>.txt")
    age(graph.uri)
    plan = plan_orphans(graph)
    body = body_of(plan, answer_by="Monday", full_plan="[the plan](https://example.org)")
    assert f": {len(plan.files)} files (about " in body.splitlines()[0]
    assert "10 more, listed in [the plan]" in body
    assert "<b>" not in re.sub(r"`[^`]*`", "", body).replace("\\<b", "")
    assert plan.digest in body
    assert "by Monday" in body
    assert "goes with its history" in body
    put(graph, "\x1b[2Jcleared\nname")
    assert "\x1b" not in plain_text(Orphans().view(plan_orphans(graph)))


@pytest.mark.slow
@pytest.mark.night("combinations")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", NAMES)
def test_graphs_of_the_real_engines_have_no_unknown_file_and_no_orphan(release: str, name: str, tmp_path: Path) -> None:
    with unpacked(release, name, tmp_path) as root:
        age(root)
        graph = open_graph(str(root))
        plan = plan_orphans(graph)
        assert (plan.files, plan.unknown, plan.skipped, plan.groups) == ((), (), (), ())
        leftovers = plant(graph, folder=graph.state().entries[0].path)
        rows = rows_everywhere(graph)
        assert {f.path for f in plan_orphans(graph).files} == set(leftovers)
        assert rows_everywhere(graph) == rows


@pytest.mark.parametrize("reads", [True, False])
def test_what_was_deleted_before_an_error_is_told(
    graph: Graph, cli: Cli, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    def lost(*_: object) -> None:
        raise StorageError("the store is gone")

    def another_run() -> None:
        if not reads:
            monkeypatch.setattr(RecordedRun, "tell_the_rest", lost)
        take_over(graph.storage)

    when_asked(monkeypatch, os, "unlink", another_run, about="^(?!.*__maintenance)", skip=5, after=True)
    monkeypatch.setattr(apply, "BULK", 3)
    done = cli("orphans --older-than 7d --confirm --quiet", graph.uri)
    assert_refused(done, "was taken over by another run")
    assert re.search(r"^before it failed: 6 files and \d+ bytes deleted for good", done.err, re.MULTILINE), done.err
