"""Plain Lance at the shell: what the verbs say, and what they refuse to take for a dataset."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.cli import main
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.errors import NotAGraph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import RESTORING_PATH
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from tests.conftest import DemoGraph
from tests.support import plain
from tests.support.rows import tree_of
from tests.support.shell import Cli, assert_refused
from tests.support.templates import Templates


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plain.indexed(tmp_path / "db" / "items.lance", stable=False)
    plain.indexed(tmp_path / "db" / "users.lance", stable=True)
    return tmp_path / "db"


@pytest.mark.slow
def test_a_night_at_the_shell(cli: Cli, folder: Path) -> None:
    root = str(folder)
    assert "plain Lance, clean" in cli("check", root).out
    assert cli("check --json", root).json["stamp"] == 0
    assert {t["table_key"] for t in cli("health --json", root).json["tables"]} == {"table:items", "table:users"}
    planned = cli("plan --json --table table:users", root).json
    assert (planned["stamp"], planned["graph_version"]) == (0, 0)
    assert [t["decision"] for t in planned["tables"]] == ["optimize"]
    assert cli("optimize --json --defer-index-remap --table table:items", root).json["tables"][0]["committed"]
    assert "frags 7 → 1" in cli("optimize", root).out
    preview = cli("cleanup --keep 1 --json", root)
    assert preview.code == 0
    (folder / "plan.json").write_text(json.dumps(preview.json))
    applied = cli("cleanup --json --confirm --plan", root, str(folder / "plan.json"))
    assert (applied.code, applied.json["versions_removed"] > 20) == (0, True)
    (folder / "plan.json").unlink()
    assert "2 entries" in cli("audit", root).out
    assert "0 files" in cli("orphans", root).out
    assert "  No drift              table:items, table:users\n" in cli("repair", root).out
    assert "0 findings, now clean" in cli("recover", root).out
    assert "no schema-apply lock" in cli("unlock", root).out


def test_what_needs_a_graph_is_refused_with_the_reason(cli: Cli, folder: Path) -> None:
    before = tree_of(folder)
    assert_refused(cli("optimize --fence", str(folder)), "without a graph manifest there is nothing to fence")
    stable = cli("optimize --defer-index-remap", str(folder / "users.lance"))
    assert stable.code == 1
    assert "its row ids are stable" in stable.out
    assert_refused(cli("plan --table table:none", str(folder)), "it has table:items, table:users")
    queued = cli("optimize --queue --defer-index-remap", str(folder))
    assert_refused(queued, "OMNIGRAPH_OPS_DEFER_INDEX_REMAP", code=2)
    assert tree_of(folder) == before


def test_a_graph_refuses_to_defer(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(loads=2, rows=8, node_types=1)
    before = {e.table_key: e.version for e in graph.state().entries}
    refused = cli("optimize --defer-index-remap", graph.uri)
    assert refused.code == 1
    assert "its row ids are stable" in refused.out
    assert {e.table_key: e.version for e in graph.state().entries} == before


@pytest.fixture
def whole_graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(loads=2, rows=8, node_types=1)


def test_a_table_of_a_graph_is_not_maintained_alone(whole_graph: Graph, tmp_path: Path) -> None:
    entries = whole_graph.state().entries
    for path in (*(e.path for e in entries), "__manifest"):
        with pytest.raises(NotAGraph, match="is a part of the graph"):
            open_graph(f"{whole_graph.uri}/{path}")
        link = tmp_path / "elsewhere" / f"{path.replace('/', '-')}.lance"
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(Path(whole_graph.uri, path))
        with pytest.raises(NotAGraph, match="is a part of the graph"):
            open_graph(str(link))


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_graph_that_lost_its_manifest_is_no_database(templates: Templates, tmp_path: Path, stamp: int) -> None:
    root = tmp_path / "graph"
    templates.copy(DemoSpec(stamp=stamp, loads=2, rows=8, node_types=1), root)
    shutil.rmtree(root / "__manifest")
    with pytest.raises(NotAGraph, match="other files of a graph are there: bring a backup back"):
        open_graph(str(root))
    lance.write_dataset(pa.table({"a": [1]}), str(root / "items.lance"))
    for target in (root, root / "items.lance", next((root / "nodes").iterdir())):
        with pytest.raises(NotAGraph):
            open_graph(str(target))


def test_the_catalog_of_a_lance_namespace_is_no_graph_of_the_first_generation(folder: Path) -> None:
    lance.write_dataset(pa.table({"object_id": ["users"]}), str(folder / "__manifest"))
    before = tree_of(folder)
    with pytest.raises(NotAGraph, match="was not written by Omnigraph"):
        open_graph(str(folder))
    assert tree_of(folder) == before


def test_a_branch_of_a_dataset_is_not_a_dataset(folder: Path) -> None:
    dataset = lance.dataset(str(folder / "users.lance"))
    dataset.create_branch("team/work", 3)
    with pytest.raises(NotAGraph, match=r"is a branch of the dataset .*users\.lance"):
        open_graph(str(folder / "users.lance" / "tree" / "team" / "work"))


@pytest.mark.parametrize("content", ["nothing", "a file", "an empty dataset folder", "a dataset of another name"])
def test_what_is_neither_is_refused_as_before(tmp_path: Path, content: str) -> None:
    root = tmp_path / "place"
    root.mkdir()
    if content == "a file":
        (root / "items.lance").write_text("not a folder")
    elif content == "an empty dataset folder":
        (root / "items.lance" / "_versions").mkdir(parents=True)
    elif content == "a dataset of another name":
        lance.write_dataset(pa.table({"a": [1]}), str(root / "items"))
    before = tree_of(root)
    with pytest.raises(NotAGraph, match=r"is not an Omnigraph graph: it has no readable __manifest.* check the path"):
        open_graph(str(root))
    assert tree_of(root) == before


def test_a_dataset_that_would_be_left_out_as_a_link_is_named(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.lance"
    plain.indexed(elsewhere, stable=True)
    (folder / "dangling.lance").symlink_to(tmp_path / "nothing")
    assert [e.table_key for e in open_graph(str(folder)).state().entries] == ["table:items", "table:users"]
    (folder / "linked.lance").symlink_to(elsewhere)
    with pytest.raises(NotAGraph, match=rf"linked.lance is a link to the dataset {elsewhere}, which .* leave out"):
        open_graph(str(folder))
    (only_links := tmp_path / "links").mkdir()
    (only_links / "linked.lance").symlink_to(elsewhere)
    with pytest.raises(NotAGraph, match="is a link to the dataset"):
        open_graph(str(only_links))
    assert open_graph(f"{folder}/items.lance").addressed == ("table:items",)


def test_a_link_to_a_dataset_is_not_maintained(cli: Cli, folder: Path, tmp_path: Path) -> None:
    items, link = folder / "items.lance", tmp_path / "elsewhere" / "items.lance"
    link.parent.mkdir()
    link.symlink_to(items)
    before = tree_of(tmp_path)
    for verb in ("check", "optimize", "cleanup --keep 1 --confirm", "backup"):
        ran = cli(verb, str(link), *([str(tmp_path / "backups")] if verb == "backup" else []))
        assert ran.code == 1
        assert f"is a link to the dataset {items}; nothing was written; give that one" in ran.err
    assert tree_of(tmp_path) == before
    (tmp_path / "linked").symlink_to(folder)
    assert cli("check", f"{tmp_path}/linked/items.lance").code == 0, "what is beside the dataset is seen"


@pytest.mark.parametrize("target", ["", "items.lance"])
def test_a_clone_behind_a_link_keeps_what_it_reads(folder: Path, tmp_path: Path, target: str) -> None:
    lance.dataset(f"{folder}/items.lance").shallow_clone(str(tmp_path / "clone.lance"), 3)
    (folder / "clone").symlink_to(tmp_path / "clone.lance")
    graph = open_graph(str(folder / target))
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    (refused,) = [table.refused for table in plan.tables if table.table_key == "table:items"]
    assert "clone reads files of it" in str(refused)


def test_no_part_of_an_unfinished_restore_is_maintained(folder: Path) -> None:
    (folder / RESTORING_PATH).parent.mkdir(exist_ok=True)
    (folder / RESTORING_PATH).write_text("{}")
    for target in (folder, folder / "items.lance"):
        with pytest.raises(NotAGraph, match=rf"the restore to {folder} has not ended"):
            open_graph(str(target))


@pytest.mark.parametrize("verb", ["cleanup --keep 1", "orphans"])
def test_the_command_that_a_preview_prints_is_about_the_dataset_that_was_asked_for(
    cli: Cli, folder: Path, verb: str
) -> None:
    for name in ("items", "users"):
        stray = folder / f"{name}.lance" / "data" / "stray.lance"
        stray.touch()
        os.utime(stray, (0, 0))
    other = tree_of(folder / "users.lance")
    shown = cli(verb, str(folder / "items.lance")).err
    printed = next(line for line in shown.splitlines() if line.startswith("to carry out "))
    words = shlex.split(printed.split(": ", 1)[1])
    assert words[:3] == ["omnigraph-ops", verb.split(maxsplit=1)[0], str(folder / "items.lance")]
    before = tree_of(folder / "items.lance")
    assert main(words[1:]) == 0
    assert tree_of(folder / "items.lance") != before
    assert tree_of(folder / "users.lance") == other


@pytest.mark.slow
def test_a_freeze_of_one_dataset_is_about_that_one(cli: Cli, folder: Path, tmp_path: Path) -> None:
    items, root = str(folder / "items.lance"), str(folder)
    frozen = cli("freeze --json", items).json["freeze_id"]
    (listed,) = cli("holds --json", root).json["holds"]
    assert listed["what"] == "table:items"
    assert_refused(cli(f"backup --freeze {frozen}", root, str(tmp_path / "b")), "is about table:items only")
    assert cli("optimize", str(folder / "users.lance")).code == 0
    assert "table:items  skipped (frozen" in cli("optimize", items).out
    assert cli(f"backup --freeze {frozen}", items, str(tmp_path / "b")).code == 0
    whole = cli("freeze --json", root).json["freeze_id"]
    assert_refused(cli(f"backup --freeze {whole}", items, str(tmp_path / "b")), "is about all there is")
    assert cli(f"backup --freeze {whole}", root, str(tmp_path / "b")).code == 0
