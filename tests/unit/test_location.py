"""One spelling per graph, and no table outside of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.errors import InvalidInput, NotAGraph
from omnigraph_ops.graph.location import GraphLocation, checked_table_path, locate


@pytest.mark.parametrize("text", ["/data/g.omni", "/data/g.omni/", "/data//x/../g.omni", "file:///data/g.omni"])
def test_local_spellings_meet(text: str) -> None:
    place = locate(text)
    assert (place.root, place.is_local) == ("/data/g.omni", True)
    assert place.uri("nodes/1") == "/data/g.omni/nodes/1"


def test_file_uris_are_decoded() -> None:
    assert locate("file:///my%20data/g").root == "/my data/g"


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("g.omni").root == str(tmp_path / "g.omni")


def test_s3_keeps_its_key() -> None:
    place = locate("s3://bucket/a/g.omni/")
    assert (place.root, place.is_local) == ("s3://bucket/a/g.omni", False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://host:8080", "server address"),
        ("HTTPS://host/g", "server address"),
        ("gs://bucket/g", "unsupported scheme 'gs'"),
        ("", "no graph addressed"),
        ("   ", "no graph addressed"),
    ],
)
def test_other_addresses_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        locate(text)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "nodes/../x",
        "nodes/..",
        "../nodes/x",
        "nodes",
        "nodes/",
        "nodes/a/b",
        "other/x",
        "nodes/./x",
        "nodes/a\\b",
        "",
    ],
)
def test_a_table_outside_of_the_graph_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(NotAGraph):
        checked_table_path(GraphLocation(given="g", root=str(tmp_path)), path)


@pytest.mark.parametrize("linked", ["nodes/x", "nodes"])
def test_a_linked_table_is_refused(tmp_path: Path, linked: str) -> None:
    graph, outside = tmp_path / "g", tmp_path / "outside" / "x"
    outside.mkdir(parents=True)
    link = graph / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(outside if linked.endswith("x") else outside.parent)
    with pytest.raises(NotAGraph, match="link"):
        checked_table_path(GraphLocation(given="g", root=str(graph)), "nodes/x")


def test_a_graph_behind_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real" / "nodes" / "x").mkdir(parents=True)
    (tmp_path / "g").symlink_to(tmp_path / "real")
    assert checked_table_path(GraphLocation(given="g", root=str(tmp_path / "g")), "nodes/x") == "nodes/x"
