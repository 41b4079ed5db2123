"""One spelling per graph, and no table outside of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.errors import InvalidInput, NotAGraph
from omnigraph_ops.graph.plain import _is_at
from omnigraph_ops.storage.location import checked_table_path, graph_root, locate
from omnigraph_ops.storage.store import Storage


@pytest.mark.parametrize(
    "text",
    [
        *("/data/g.omni", "/data/g.omni/", "/data/g.omni//", "//data/g.omni", "/data//x/../g.omni", "/data/./g.omni"),
        *("file:///data/g.omni", "file:////data/g.omni/", "file:///data/x/%2e%2e/g%2Eomni"),
    ],
)
def test_local_spellings_meet(text: str) -> None:
    place = locate(text)
    assert (place.root, place.is_local) == ("/data/g.omni", True)
    assert Storage(place.root).uri("nodes/1") == "/data/g.omni/nodes/1"


def test_file_uris_are_decoded() -> None:
    assert locate("file:///my%20data/g").root == "/my data/g"


@pytest.mark.parametrize("text", ["g.omni", "./g.omni/", "../here/g.omni", "sub/../g.omni"])
def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert locate(text).root == str(tmp_path / "here" / "g.omni")


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InvalidInput, match="the working directory is gone"):
        locate("g.omni")


@pytest.mark.parametrize("name", ["a%20b", "a b", "a#b", "a?b", "a[b]*", "a:b", "é", "a\\b", "~"])
def test_a_local_name_stays_as_it_is(name: str) -> None:
    assert locate(f"/data/{name}/g").root == f"/data/{name}/g", "Lance takes local paths literally"


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("s3://bucket/a/g.omni/", "s3://bucket/a/g.omni"),
        ("s3://bucket/a/g.omni///", "s3://bucket/a/g.omni"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://My_bucket.1/a b/[x]*@{y}", "s3://My_bucket.1/a b/[x]*@{y}"),
    ],
)
def test_s3_keeps_its_key(text: str, root: str) -> None:
    place = locate(text)
    assert (place.root, place.is_local) == (root, False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://host:8080", "server address"),
        ("HTTPS://host/g", "server address"),
        ("gs://bucket/g", "unsupported scheme 'gs'"),
        ("", "no graph addressed"),
        ("   ", "no graph addressed"),
        (" /data/g", "has blanks around it"),
        ("/data/g\n", "has blanks around it"),
        ("/data/g /", "has blanks around it"),
        ("s3://bucket/g\u00a0/", "has blanks around it"),
        ("/data/\x00g", "contains the character '.x00'"),
        ("s3://bucket/a\nb", "contains the character '.n'"),
        ("s3://bucket/\x85b", "contains the character '.x85'"),
        ("/data/\udcff", "contains the character '.udcff'"),
        ("file:///data/a%00b", "contains the character '.x00'"),
        ("s3://bucket/a//b", "has an empty segment"),
        ("s3://bucket//b", "has an empty segment"),
        ("s3://bucket/a/./b", "has the segment '.'"),
        ("s3://bucket/a/../b", r"has the segment '\.\.'"),
        ("s3://bucket/..", r"has the segment '\.\.'"),
        ("s3://bucket/a%20b", "contains '%'"),
        ("s3://bucket/a?versionId=1", r"contains '\?'"),
        ("s3://bucket/a#b", "contains '#'"),
        ("s3:///key", "names no bucket"),
        ("s3://", "names no bucket"),
        ("s3://.bucket/key", "names no bucket"),
        ("s3://bucket:9000/key", "user info or a port"),
        ("s3://arn:aws:s3:eu-1:1:accesspoint/x", "user info or a port"),
        ("S3://bucket/key", "in capitals"),
        ("s3:/bucket/key", "lacks the two slashes"),
        ("file:/data/g", "lacks the two slashes"),
        ("file://data/g.omni", "names a host"),
        ("file:///data/g?x", r"contains '\?'"),
        ("file:///data/g#x", "contains '#'"),
        ("file:///data/a%2", "not encoded"),
        ("file:///data/%ff", "not encoded"),
        ("file:///C:/data/g", "path of Windows"),
        ("C:\\data\\g", "path of Windows"),
        ("c:/data/g", "path of Windows"),
        ("\\\\server\\g", "path of Windows"),
        ("/", "top of the file system"),
        ("/data/..", "top of the file system"),
    ],
)
def test_other_addresses_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        locate(text)


@pytest.mark.parametrize(
    "text",
    [
        *("s3://AKIA:ab/cd@bucket/key", "s3://AKIA:abcd@bucket/key", "https://me:abcd@host/g", "gs://me:ab/cd@b/g"),
        *("s3://AKIA:abcd@bucket/key ", "s3://AKIA:abcd@bucket/k\ty", "file://me:abcd@host/g", "S3://AKIA:abcd@b/g"),
    ],
)
def test_a_secret_in_an_address_is_in_no_message(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        locate(text)
    assert not [part for part in ("abcd", "ab/", "cd") if part in str(refused.value)]


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a b", "a%20b", "a?b", "1a"])
def test_the_id_of_a_graph_is_one_segment(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not the id of a graph"):
        graph_root("s3://bucket/c", name)


@pytest.mark.parametrize(
    ("base", "reads"),
    [
        ("s3://bucket/g/items.lance", True),
        ("s3://bucket/g/items.lance/tree/dev", True),
        ("s3://bucket/g/items.lance/data", True),
        ("s3://bucket/g/items.lance.old", False),
        ("s3://bucket/g/other.lance", False),
        ("s3://bucket/x/../g/items.lance", True),
        ("s3://bucket/g/ite%6Ds.lance", True),
        ("gs://bucket/g/items.lance", False),
        ("/g/items.lance", False),
    ],
)
def test_a_clone_that_spells_its_source_oddly_counts_as_a_reader(base: str, reads: bool) -> None:
    assert _is_at(base, "s3://bucket/g/items.lance") is reads


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
        checked_table_path(str(tmp_path), path)


@pytest.mark.parametrize("linked", ["nodes/x", "nodes"])
def test_a_linked_table_is_refused(tmp_path: Path, linked: str) -> None:
    graph, outside = tmp_path / "g", tmp_path / "outside" / "x"
    outside.mkdir(parents=True)
    link = graph / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(outside if linked.endswith("x") else outside.parent)
    with pytest.raises(NotAGraph, match="link"):
        checked_table_path(str(graph), "nodes/x")


def test_a_graph_behind_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real" / "nodes" / "x").mkdir(parents=True)
    (tmp_path / "g").symlink_to(tmp_path / "real")
    assert checked_table_path(str(tmp_path / "g"), "nodes/x") == "nodes/x"
