"""Names, paths and ids of a graph."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.graph.layout import (
    Part,
    any_version_of,
    dataset_of,
    encode_ulid,
    fnv1a32,
    fnv1a64,
    is_plain,
    is_root_file,
    is_ulid,
    lance_file,
    manifest_file_name,
    new_ulid,
    now_us,
    version_of_manifest_file,
    version_path,
)

MILLIS, RANDOM = st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1)


def test_known_values() -> None:
    assert encode_ulid(0, 0) == "0" * 26
    assert encode_ulid(2**48 - 1, 2**80 - 1) == "7" + "Z" * 25
    # The example of the ULID specification.
    assert encode_ulid(1_469_918_176_385, 0)[:10] == "01ARYZ6S41"


@given(MILLIS, RANDOM, MILLIS, RANDOM)
def test_order_is_that_of_time_then_randomness(m1: int, r1: int, m2: int, r2: int) -> None:
    assert ((m1, r1) < (m2, r2)) == (encode_ulid(m1, r1) < encode_ulid(m2, r2))
    assert is_ulid(encode_ulid(m1, r1))


def test_fresh_ones_differ_and_carry_the_time_and_the_order_in_which_they_were_made() -> None:
    at = now_us()
    made = [new_ulid(at) for _ in range(100)]
    assert len(set(made)) == 100
    assert made == sorted(made)
    assert {text[:10] for text in made} == {encode_ulid(at // 1000, 0)[:10]}


def test_a_forked_process_makes_others() -> None:
    at = now_us()
    new_ulid(at)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_ulid(at).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 26).decode() != new_ulid(at)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    "text", ["", "0" * 25, "0" * 27, "8" + "0" * 25, "0" * 25 + "I", "0" * 25 + "a", "0" * 26 + "\n"]
)
def test_refused(text: str) -> None:
    assert not is_ulid(text)


@pytest.mark.parametrize(("text", "digest"), [("", "cbf29ce484222325"), ("a", "af63dc4c8601ec8c")])
def test_fnv1a64_of_the_specification(text: str, digest: str) -> None:
    assert fnv1a64(text) == digest


@pytest.mark.parametrize(("text", "digest"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)])
def test_fnv1a32_of_the_specification(text: str, digest: int) -> None:
    assert fnv1a32(text) == digest


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_manifest_names_come_back_and_sort_newest_first(left: int, right: int) -> None:
    assert version_of_manifest_file(manifest_file_name(left)) == left
    assert (left < right) == (manifest_file_name(left) > manifest_file_name(right))


def test_version_7_as_the_engine_spells_it() -> None:
    assert manifest_file_name(7) == "18446744073709551608.manifest"


@pytest.mark.parametrize("name", ["latest_version_hint.json", "7.manifest", "x18446744073709551608.manifest", ""])
def test_other_files_are_no_versions(name: str) -> None:
    assert version_of_manifest_file(name) is None


def test_a_branch_lives_in_its_tree() -> None:
    assert version_path("nodes/1", 7, None) == "nodes/1/_versions/18446744073709551608.manifest"
    branch = version_path("nodes/1", 7, "review/hires")
    assert branch == "nodes/1/tree/review/hires/_versions/18446744073709551608.manifest"


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("7.manifest", 7),
        ("18446744073709551608.manifest", 7),
        ("d18446744073709551608.manifest", None),
        ("7.manifest.tmp", None),
        ("latest_version_hint.json", None),
    ],
)
def test_both_namings_of_lance(name: str, version: int | None) -> None:
    assert any_version_of(name) == version


TABLE = "nodes/0123456789abcdef"
UUID = "e38efcac-ca68-4e47-b648-15d6cd5a9983"


@pytest.mark.parametrize(
    ("tail", "part"),
    [
        ("_versions/18446744073709551614.manifest", Part.MANIFEST),
        ("_versions/7.manifest", Part.MANIFEST),
        ("_versions/d7.manifest", Part.MANIFEST),
        ("_versions/latest_version_hint.json", Part.HINT),
        ("_versions/latest_version_hint.json#1", Part.TEMPORARY),
        ("_versions/.tmp_7.manifest_9c100374-3298-4537-afc6-f5ee7913666d", Part.TEMPORARY),
        ("data/.tmpX1y2Z3", Part.TEMPORARY),
        ("data/abc.lance#12", Part.TEMPORARY),
        ("_versions/7.manifest.tmp.bdd01253f5464cb1a07f772225265d18", Part.TEMPORARY),
        ("data/abc.lance.tmp.bdd01253f5464cb1a07f772225265d18", Part.TEMPORARY),
        ("_refs/tags/v1.json.tmp.bdd01253f5464cb1a07f772225265d18", Part.TEMPORARY),
        ("_refs/branches/a%2Fb.json.tmp.bdd01253f5464cb1a07f772225265d18", Part.TEMPORARY),
        ("_versions/18446744073709551614.manifest.bdd01253f5464cb1a07f772225265d18.tmp", Part.TEMPORARY),
        ("_transactions/3-x.txn.bdd01253f5464cb1a07f772225265d18.tmp", Part.TEMPORARY),
        ("data/abc.lance.bdd01253f5464cb1a07f772225265d18.part", Part.TEMPORARY),
        ("_refs/tags/v1.json.tmp.bdd01253f5464cb1a07f772225265d18.json", Part.REF),
        ("data/abc.lance", Part.DATA),
        ("data/abc/0101.blob", Part.BLOB),
        ("_deletions/0-3-44.arrow", Part.DELETION),
        ("_deletions/0-3-44.bin", Part.DELETION),
        ("_transactions/3-x.txn", Part.TRANSACTION),
        (f"_indices/{UUID}/index.idx", Part.INDEX),
        (f"_indices/{UUID}/a/b", Part.INDEX),
        ("_refs/branches/a%2Fb.json", Part.REF),
        ("_refs/tags/v1.json", Part.REF),
    ],
)
@pytest.mark.parametrize("branch", [None, "b", "review/hires-1", "ü.x", "शाखा", "Ⓐb"])
def test_what_lance_writes_is_known(tail: str, part: Part, branch: str | None) -> None:
    folder = TABLE if branch is None else f"{TABLE}/tree/{branch}"
    file = lance_file(f"{folder}/{tail}", ())
    if branch is not None and part is Part.REF:
        assert file is None
        return
    assert file is not None
    assert (file.part, file.tail, file.branch, file.chain) == (part, tail, branch, folder)


@pytest.mark.parametrize(
    "path",
    [
        TABLE,
        f"{TABLE}/x",
        f"{TABLE}/data/x.parquet",
        f"{TABLE}/data/a/b/c.blob",
        f"{TABLE}/_indices/{UUID}",
        f"{TABLE}/_indices/other/page.lance",
        f"{TABLE}/_versions/7.manifest-{UUID}",
        f"{TABLE}/tree/data/x.lance",
        f"{TABLE}/tree/bad name/data/x.lance",
        f"{TABLE}/tree/%C3%BC/data/x.lance",
        f"{TABLE}/../{TABLE}/data/x.lance",
        f"{TABLE}//data/x.lance",
        f"{TABLE}/data/../data/x.lance",
        "nodes/other/data/x.lance",
        "data/x.lance",
        "",
    ],
)
def test_everything_else_is_unknown(path: str) -> None:
    assert lance_file(path, ()) is None


def test_a_path_that_two_branches_explain_belongs_to_the_live_one() -> None:
    path = f"{TABLE}/tree/x/_indices/{UUID}/data/y.lance"
    assert [getattr(lance_file(path, live), "branch", None) for live in ((), {f"x/_indices/{UUID}"})] == [
        "x",
        f"x/_indices/{UUID}",
    ]


@pytest.mark.parametrize(
    ("path", "dataset"),
    [
        ("__manifest/data/x.lance", "__manifest"),
        ("_graph_commits.lance/data/x.lance", "_graph_commits.lance"),
        (f"{TABLE}-00000000000000aa/data/x", f"{TABLE}-00000000000000aa"),
        ("edges/0123456789abcdef", "edges/0123456789abcdef"),
        ("edges/0123456789ABCDEF/data/x", None),
        ("edges/", None),
        ("other/0123456789abcdef/data/x", None),
        ("__maintenance/lease-00000000000000000007.json", None),
    ],
)
def test_datasets_are_where_engines_put_them(path: str, dataset: str | None) -> None:
    assert dataset_of(path) == dataset


def test_root_files_and_plain_paths() -> None:
    known = ("_schema.pg", "_schema.ir.json.staging", "__init_claim.json", "__create_if_absent_probe_" + "0" * 26)
    assert all(is_root_file(name) for name in known)
    assert not is_root_file("notes.txt")
    assert [is_plain(p) for p in ("a/b", "/a", "a/", "a/../b", "./a", "a\\b")] == [True, *[False] * 5]
