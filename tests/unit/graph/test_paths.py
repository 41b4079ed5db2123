"""What a path is: every name an engine writes is known, everything else is unknown."""

from __future__ import annotations

import pytest

from omnigraph_ops.graph.paths import Part, dataset_of, is_plain, is_root_file, lance_file

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
@pytest.mark.parametrize("branch", [None, "b", "review/hires-1", "ü.x"])
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
