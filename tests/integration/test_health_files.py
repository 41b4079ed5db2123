"""`health --files` names every published version that nobody can read whole, and nothing else."""

from __future__ import annotations

import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import COMMITS_DIR, version_path
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.models.health import VersionGap
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.rows import tree_of
from tests.support.shell import Cli
from tests.support.writers import delete_first, entry_of, write

PERSON = "node:Person"
SMALL = {"node_types": 1, "loads": 2, "rows": 8}


def gaps_of(graph: Graph, *tables: str) -> tuple[VersionGap, ...]:
    """What `--files` finds. Reads."""
    found = health(graph, tables=tables, files=True).gaps
    assert found is not None
    return found


def written_branch(graph: Graph) -> tuple[str, TableEntry]:
    """A graph branch with a table of its own. Reads."""
    for branch in graph.branches():
        for entry in graph.state(branch).entries:
            if entry.branch is not None:
                return branch, entry
    raise AssertionError("no branch was written to")


def one_of(folder: Path, pattern: str) -> Path:
    """The first file, by name. Reads."""
    return min(path for path in folder.glob(pattern) if path.is_file())


def test_a_whole_graph_has_none_and_nobody_looks_unasked(demo_graph: DemoGraph, stamp: int, cli: Cli) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, blobs=True, written_branches=1, lazy_branches=1)
    tree = tree_of(graph.uri)
    assert gaps_of(graph) == ()
    assert health(graph).gaps is None
    shown = cli("health --files", graph.uri)
    assert (shown.code, "file of their published versions is there" in " ".join(shown.out.split())) == (0, True)
    assert "is there" not in cli("health", graph.uri).out
    assert tree_of(graph.uri) == tree


def test_a_file_that_a_branch_alone_reads(demo_graph: DemoGraph, stamp: int, cli: Cli) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    branch, entry = written_branch(graph)
    lost = one_of(Path(graph.uri, entry.path, "tree", entry.branch or ""), "data/*.lance")
    lost.unlink()
    (gap,) = gaps_of(graph)
    assert (gap.table_key, gap.branches, gap.version) == (entry.table_key, (branch,), entry.version)
    assert gap.lacks == f"1 file gone or cut short, {lost.relative_to(graph.uri)} for one"
    shown = cli("health --files", graph.uri)
    assert shown.code == 1
    assert lost.name in shown.out
    assert "nothing was changed; restore the graph from a backup" in " ".join(shown.err.split())
    assert cli("health", graph.uri).code == 0


def test_a_file_that_main_and_branches_read(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1, lazy_branches=1)
    oldest = graph.open_pinned(entry_of(graph, PERSON, "lazy-1")).get_fragments()[0].data_files()[0].path
    Path(graph.table_uri(entry_of(graph, PERSON)), "data", oldest).unlink()
    found = [gap for gap in gaps_of(graph) if gap.table_key == PERSON]
    readers = {branch: graph.state(branch).get(PERSON) for branch in (None, *graph.branches())}
    assert {name for gap in found for name in gap.branches} == {branch or "main" for branch in readers}
    assert {gap.version for gap in found} == {entry.version for entry in readers.values() if entry is not None}
    assert gaps_of(graph, "edge:Knows") == ()


@pytest.mark.parametrize(
    ("pattern", "lacks"),
    [
        ("_deletions/*", "1 file gone or cut short, "),
        ("_versions/*.manifest", "its manifest is gone"),
        ("_indices/*/*", "the index "),
    ],
)
def test_each_kind_of_file(demo_graph: DemoGraph, stamp: int, pattern: str, lacks: str) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    optimize_all(graph)
    write(graph, PERSON, delete_first(1))
    entry = entry_of(graph, PERSON)
    folder = Path(graph.table_uri(entry))
    used = {part.uuid for index in graph.open_head(entry).describe_indices() for part in index.segments}
    doomed = [p for p in sorted(folder.glob(pattern)) if p.parent.parent.name != "_indices" or p.parent.name in used]
    doomed[0].unlink()
    (gap,) = gaps_of(graph, PERSON)
    assert (gap.branches, gap.version) == (("main",), entry.version)
    assert lacks in gap.lacks


def test_a_file_that_only_old_versions_name_is_none(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    before = set(Path(graph.table_uri(entry_of(graph, PERSON)), "data").iterdir())
    optimize_all(graph)
    for path in before:
        path.unlink()
    assert gaps_of(graph) == ()


def test_a_branch_whose_files_are_gone_hides_no_other(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=2)
    branch, entry = written_branch(graph)
    shutil.rmtree(Path(graph.uri, entry.path, "tree", entry.branch or ""))
    assert [(gap.branches, gap.lacks) for gap in gaps_of(graph)] == [((branch,), "its manifest is gone")]


def test_what_comes_and_goes_between_two_looks_is_none(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = demo_graph(**SMALL)
    lost = one_of(Path(graph.table_uri(entry_of(graph, PERSON))), "data/*.lance")
    content, folder = lost.read_bytes(), str(lost.parent.relative_to(graph.uri))
    lost.unlink()
    looks = []
    translated = Storage.translated

    def later(storage: Storage, what: str, path: str) -> AbstractContextManager[None]:
        if path == folder:
            looks.append(path)
            if len(looks) == 2:
                lost.write_bytes(content)
        return translated(storage, what, path)

    monkeypatch.setattr(Storage, "translated", later)
    assert gaps_of(graph, PERSON) == ()
    assert len(looks) == 2


def test_a_branch_that_cannot_be_read_is_one(demo_graph: DemoGraph, stamp: int, cli: Cli) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=2)
    branch, _ = written_branch(graph)
    shutil.rmtree(Path(graph.uri, "__manifest", "tree", branch, "_versions"))
    (gap,) = gaps_of(open_graph(graph.uri))
    assert (gap.table_key, gap.branches, gap.version) == ("__manifest", (branch,), None)
    assert "the branch cannot be read: " in gap.lacks
    shown = cli("health --files", graph.uri)
    assert (shown.code, "published versions is there" in shown.out) == (1, False)


def test_what_is_published_meanwhile_hides_no_loss(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, translated, looks = demo_graph(**SMALL), Storage.translated, list[str]()
    lost = one_of(Path(graph.table_uri(entry_of(graph, PERSON))), "data/*.lance")
    folder = str(lost.parent.relative_to(graph.uri))
    lost.unlink()

    def later(storage: Storage, what: str, path: str) -> AbstractContextManager[None]:
        if path == folder:
            looks.append(path)
            other = open_graph(graph.uri)
            entry = entry_of(other, PERSON)
            other.open_head(entry).update_config({"look": str(len(looks))})
            publish(other, (table_update(other, entry, other.open_head(entry)),), actor=None)
        return translated(storage, what, path)

    monkeypatch.setattr(Storage, "translated", later)
    (gap,) = gaps_of(graph, PERSON)
    assert lost.name in gap.lacks


@pytest.mark.parametrize("left", [0, 100])
def test_a_file_that_was_cut_short_is_one(demo_graph: DemoGraph, left: int) -> None:
    graph = demo_graph(**SMALL)
    os.truncate(one_of(Path(graph.table_uri(entry_of(graph, PERSON))), "data/*.lance"), left)
    assert [gap.table_key for gap in gaps_of(graph)] == [PERSON]


def test_a_damaged_manifest_is_told_of_its_own_branch_and_hides_no_other(
    demo_graph: DemoGraph, stamp: int, cli: Cli
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    branch, entry = written_branch(graph)
    Path(graph.uri, version_path(entry.path, entry.version, entry.branch)).write_bytes(b"damaged")
    newest = graph.open_pinned(entry_of(graph, entry.table_key)).get_fragments()[-1].data_files()[0].path
    Path(graph.table_uri(entry_of(graph, entry.table_key)), "data", newest).unlink()
    found = {gap.branches: gap.is_unknown for gap in gaps_of(graph, entry.table_key)}
    assert found == {(branch,): True, ("main",): False}
    said = " ".join(cli("health --files", graph.uri).err.split())
    assert "files of published versions are gone" in said
    assert "could not be looked at, so files of them may be gone; run `omnigraph-ops check`" in said


def test_the_branches_of_plain_datasets_are_looked_at(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "a.lance"))
    branch = dataset.create_branch("dev")
    lance.write_dataset(pa.table({"a": [2]}), branch, mode="append")
    graph = open_graph(str(tmp_path))
    assert gaps_of(graph) == ()
    one_of(tmp_path / "a.lance" / "tree" / "dev", "data/*.lance").unlink()
    assert [gap.branches for gap in gaps_of(graph)] == [("dev",)]


def test_a_branch_of_a_plain_dataset_that_cannot_be_opened_hides_no_other(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "a.lance"))
    for name in ("lost", "whole"):
        lance.write_dataset(pa.table({"a": [2]}), dataset.create_branch(name), mode="append")
    shutil.rmtree(tmp_path / "a.lance" / "tree" / "lost")
    (gap,) = gaps_of(open_graph(str(tmp_path)))
    assert (gap.branches, gap.version) == (("lost",), None)
    assert "the branch cannot be read: " in gap.lacks


def test_the_commits_of_a_graph_that_has_them_in_datasets_of_their_own(demo_graph: DemoGraph) -> None:
    graph = demo_graph(stamp=3, **SMALL, written_branches=1)
    oldest = graph.lance.open(graph.storage.uri(COMMITS_DIR)).get_fragments()[0].data_files()[0].path
    Path(graph.uri, COMMITS_DIR, "data", oldest).unlink()
    found = {gap.branches: (gap.table_key, gap.is_rebuildable) for gap in gaps_of(graph)}
    assert found == {("main",): ("_graph_commits", False), (graph.branches()[0],): ("_graph_commits", False)}
    assert gaps_of(graph, PERSON) == ()


def test_main_of_a_plain_dataset_is_named_once(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "a.lance"))
    one_of(tmp_path / "a.lance", "data/*.lance").unlink()
    (gap,) = gaps_of(open_graph(str(tmp_path)))
    assert gap.branches == ("main",)
