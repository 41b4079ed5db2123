"""Copies of frozen cuts, made of exactly the listed files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.freezes import freeze_of_tag
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.freeze import Freeze
from omnigraph_ops.stages.freeze.files import cut_files
from omnigraph_ops.stages.freeze.roots import relocation


def copy_cut(graph: Graph, freeze: Freeze, target: Path) -> Graph:
    """The cut below another root, from its listed files and nothing else. Writes."""
    files = cut_files(graph, freeze)
    moved = {r.file: r.data for r in relocation(graph, files, str(target))}
    assert set(moved) == {f.file for f in files if f.records_root}
    for file in files:
        place = target / file.file
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.file in moved:
            place.write_bytes(moved[file.file])
        else:
            shutil.copyfile(Path(graph.uri, file.source), place)
        assert Path(graph.uri, file.source).stat().st_size == file.size
    return open_graph(str(target), Settings())


def freeze_tags(root: str | Path) -> set[str]:
    """Every tag of a freeze below a root, by its path."""
    tags = Path(root).rglob("_refs/tags/*.json")
    return {str(p.relative_to(root)) for p in tags if freeze_of_tag(p.name.removesuffix(".json")) is not None}


def make_branch_anew(graph: Graph, name: str, version: int) -> None:
    """Delete a branch of the graph manifest and make another one under its name at a version of main. Destroys."""
    # This Lance refuses to delete what a tag keeps.
    for tag in Path(graph.uri, "__manifest/_refs/tags").iterdir():
        if json.loads(tag.read_text())["branch"] == name:
            tag.unlink()
    graph.lance.delete_branch(graph.manifest(), name)
    graph.manifest().create_branch(name, version)
