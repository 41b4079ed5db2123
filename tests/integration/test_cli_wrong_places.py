"""Verbs that are pointed at the wrong place, version or graph say so, and what was not harmed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph_ops.demo import DemoSpec, tables, write_demo_graph
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.outcomes import history
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.fences import killed_behind_its_fence
from tests.support.shell import Cli, assert_refused
from tests.support.writers import entry_of

SMALL = {"loads": 1, "rows": 5, "node_types": 1}


def test_a_backup_is_not_compared_with_a_graph_that_it_is_not_of(
    demo_graph: DemoGraph, tmp_path: Path, cli: Cli
) -> None:
    graph, place, other = demo_graph(**SMALL), tmp_path / "backups", str(tmp_path / "other")
    write_demo_graph(other, DemoSpec(stamp=3, **SMALL, seed=8))
    backup = cli("backup --json", graph.uri, str(place)).json["backup"]
    assert cli("verify", backup, "--graph", graph.uri).code == 0
    refused = cli("verify", backup, "--graph", other)
    assert_refused(refused, f"which is a backup of {graph.uri}; nothing was compared")


@pytest.mark.parametrize("words", ["check", "health", "optimize"])
def test_a_graph_that_disappeared_has_a_next_step(tmp_path: Path, cli: Cli, words: str) -> None:
    refused = cli(words, str(tmp_path / "gone"))
    for said in (f"there is nothing at {tmp_path / 'gone'}", "whether its storage is mounted", "`target`", "restore`"):
        assert_refused(refused, said)


@pytest.mark.parametrize("words", ["check", "optimize", "cleanup --keep 3"])
def test_a_file_is_no_graph(tmp_path: Path, cli: Cli, words: str) -> None:
    verb, *rest = words.split()
    (tmp_path / "file").touch()
    assert_refused(
        cli(verb, str(tmp_path / "file"), *rest),
        f"{tmp_path / 'file'} is a file; nothing was written; give the folder of a graph",
    )


def test_a_plan_is_saved_over_nothing_but_a_plan(demo_graph: DemoGraph, tmp_path: Path, cli: Cli) -> None:
    graph, mine, plan = demo_graph(**SMALL), tmp_path / "mine.txt", tmp_path / "plan.json"
    mine.write_text("mine")
    schema = Path(graph.uri, "_schema.pg").read_text()
    (tmp_path / "link").symlink_to(graph.uri)
    for place in (f"{graph.uri}/_schema.pg", f"{graph.uri}/nodes/plan.json", f"{tmp_path}/link/_schema.pg"):
        assert_refused(cli("cleanup --keep 9 --save-plan", graph.uri, place), f"is inside the graph {graph.uri}")
    assert_refused(cli("cleanup --keep 9 --save-plan", graph.uri, str(mine)), f"{mine} is there already and is not a")
    assert (mine.read_text(), Path(graph.uri, "_schema.pg").read_text()) == ("mine", schema)
    assert not Path(graph.uri, "nodes/plan.json").exists()
    plan.touch()
    for words in ("cleanup --keep 9", "cleanup --keep 8", "repair"):
        assert cli(f"{words} --save-plan", graph.uri, str(plan)).code == 0
        assert cli(words.split()[0], graph.uri, "--plan", str(plan)).code == 0
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("plan")) == ["plan.json"]


def test_a_plan_beside_a_working_directory_that_is_gone_is_refused(
    demo_graph: DemoGraph, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, here = demo_graph(**SMALL), tmp_path / "gone"
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    said = "the plan plan.json is relative, and the working directory is gone; nothing was planned; give an absolute"
    assert_refused(cli("cleanup --keep 9 --save-plan", graph.uri, "plan.json"), said)


def test_a_plan_that_cannot_be_written_leaves_the_one_before(
    demo_graph: DemoGraph, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, plan = demo_graph(**SMALL), tmp_path / "plan.json"
    assert cli("cleanup --keep 9 --save-plan", graph.uri, str(plan)).code == 0
    before = plan.read_text()
    real = os.replace

    def full(source: str, target: str) -> None:
        if target == str(plan):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    assert_refused(cli("cleanup --keep 8 --save-plan", graph.uri, str(plan)), "No space left on device")
    assert (plan.read_text(), list(tmp_path.glob("*plan*"))) == (before, [plan])


def test_a_plan_may_go_to_a_pipe(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, pipe, out = demo_graph(**SMALL), tmp_path / "pipe", tmp_path / "out"
    words = [sys.executable, "-m", "omnigraph_ops", "cleanup", graph.uri, "--keep", "9", "--quiet", "--save-plan"]
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        subprocess.run([*words, str(pipe)], check=True, stdout=subprocess.DEVNULL)
        assert b'"digest"' in reader.communicate()[0]
    with out.open("wb") as file:
        file.write(b"before\n")
        file.flush()
        subprocess.run([*words, "/dev/stdout"], check=True, stdout=file)
    assert '"digest"' in out.read_text()


def test_a_demo_graph_says_where_it_is_not_written_and_which_tables_it_has(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").touch()
    assert_refused(cli("demo-graph", str(tmp_path / "file")), f"{tmp_path / 'file'} is a file; nothing was written; ")
    assert_refused(
        cli("demo-graph", str(tmp_path / "new"), "--types", "1", "--drift", "node:Persn"),
        "has no table node:Persn; it has edge:Knows, node:Person; nothing was written",
    )
    assert not (tmp_path / "new").exists()


def test_a_demo_graph_is_not_written_into_a_graph_or_a_backup(demo_graph: DemoGraph, tmp_path: Path, cli: Cli) -> None:
    graph = demo_graph(**SMALL)
    backup = cli("backup --json", graph.uri, str(tmp_path / "backups")).json["backup"]
    for inside in (graph.uri, backup):
        assert_refused(cli("demo-graph", f"{inside}/nodes/new"), f"is inside {inside}, a graph or a backup; nothing")
        assert not Path(inside, "nodes", "new").exists()


def test_a_demo_graph_on_a_full_disk_names_what_to_delete(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError("LanceError(IO): Generic LocalFileSystem error: No space left on device (os error 28), /rust/a.rs:1")
    when_asked(monkeypatch, tables, "append", raising(full))
    place = tmp_path / "new"
    refused = cli("demo-graph", str(place))
    for said in (
        f"{place} cannot be written: ",
        "No space left on device",
        f"delete {place} before you write it again",
    ):
        assert_refused(refused, said)


def test_a_place_without_anything_has_no_list_of_backups(tmp_path: Path, cli: Cli) -> None:
    assert_refused(cli("backups", str(tmp_path / "nope")), "there is nothing at")
    (tmp_path / "file").touch()
    assert_refused(cli("backups", str(tmp_path / "file")), f"cannot list {tmp_path / 'file'}: ")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that takes no folders")
def test_a_place_that_takes_no_folders_is_told_as_one(demo_graph: DemoGraph, cli: Cli) -> None:
    assert_refused(cli("demo-graph", "/proc/none"), "/proc/none cannot be written")
    assert_refused(cli("backup", demo_graph(**SMALL).uri, "/proc/none"), "cannot be made")


def test_a_hold_names_what_is_not_there(demo_graph: DemoGraph, cli: Cli) -> None:
    graph = demo_graph(**SMALL)
    words = "hold --table node:Person --ttl 1h --reason test"
    assert_refused(
        cli(f"{words} --version 999", graph.uri), "node:Person has no version 999, or not any more; nothing was held"
    )
    assert_refused(cli(f"{words} --branch nope", graph.uri), "has no branch 'nope'; nothing was held")
    assert_refused(cli("freeze --reason test --ttl 31d", graph.uri), "at most 30 days, not 31d")


def test_check_names_who_froze_the_graph(demo_graph: DemoGraph, cli: Cli) -> None:
    graph = demo_graph(**SMALL)
    assert cli("freeze --reason audit --ttl 1h", graph.uri).code == 0
    looked = cli("check", graph.uri)
    assert looked.code == 0
    assert f"{graph.uri} is frozen by" in looked.out


@pytest.mark.slow
def test_recover_tells_that_it_lifted_a_fence(demo_graph: DemoGraph, cli: Cli) -> None:
    graph = demo_graph(**SMALL)
    killed_behind_its_fence(graph.uri)
    done = cli("recover", graph.uri)
    assert done.code == 0
    assert "fence_lifted" in done.out
    assert history.read_runs(graph)[0].outcome is RunOutcome.SUCCEEDED


def test_a_kept_plan_without_anything_to_do_comes_without_its_command(
    demo_graph: DemoGraph, tmp_path: Path, cli: Cli
) -> None:
    graph, plan = demo_graph(**SMALL), str(tmp_path / "plan.json")
    saved = cli(f"cleanup --keep 100 --save-plan {plan}", graph.uri)
    assert saved.code == 0
    assert "to carry out" not in saved.err
    another_day = "to carry out this policy another day, when it may find something: omnigraph-ops cleanup"
    assert another_day in cli("cleanup --keep 100", graph.uri).err
    assert "to carry out" not in cli("repair", graph.uri).err


def test_holds_are_listed_by_the_keys_of_their_tables(demo_graph: DemoGraph, cli: Cli) -> None:
    graph = demo_graph(**SMALL)
    assert cli("hold --table node:Person --ttl 1h --reason test", graph.uri).code == 0
    (hold,) = cli("holds --json", graph.uri).json["holds"]
    assert hold["what"] == f"node:Person version {entry_of(graph, 'node:Person').version}"


@pytest.mark.parametrize(
    ("words", "listed"),
    [("unfreeze", "holds"), ("release", "holds"), ("orphans --restore", "orphans GRAPH --quarantined")],
)
def test_what_is_no_id_is_told_with_the_verb_that_lists_them(
    demo_graph: DemoGraph, cli: Cli, words: str, listed: str
) -> None:
    refused = cli(words, demo_graph(**SMALL).uri, "nope")
    assert_refused(refused, f"'nope' is not the id of a {'quarantine' if 'orphans' in words else 'hold or freeze'}")
    assert f"`omnigraph-ops {listed}` lists them" in refused.err


def test_a_plan_of_another_stage_is_named_as_one(demo_graph: DemoGraph, tmp_path: Path, cli: Cli) -> None:
    uri, plan = demo_graph(**SMALL).uri, str(tmp_path / "plan.json")
    assert cli(f"cleanup --keep 3 --save-plan {plan}", uri).code == 0
    assert_refused(cli("orphans --confirm --plan", uri, plan), "is for `cleanup`; nothing was deleted")
    assert_refused(cli("repair --confirm --plan", uri, plan), "is for `cleanup`; nothing was published")


def test_a_list_of_no_entries_is_nothing_to_ask_for(demo_graph: DemoGraph, cli: Cli) -> None:
    refused = cli("audit --newest 0", demo_graph(**SMALL).uri)
    assert refused.code == 2
    assert "--newest: '0' is not a whole number of at least 1" in refused.err


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("unfreeze", "has no freeze {id}; nothing was changed; its freezes: none"),
        ("release", "has no hold {id}; nothing was changed; `omnigraph-ops holds` lists them"),
    ],
)
def test_an_id_of_nothing_changes_nothing(demo_graph: DemoGraph, cli: Cli, verb: str, said: str) -> None:
    unknown = "01M8K6XHWM65DJZCGW4DMT8PCJ"
    assert_refused(cli(verb, demo_graph(**SMALL).uri, unknown), said.format(id=unknown))
