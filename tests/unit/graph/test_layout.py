"""Names on disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.graph.layout import (
    any_version_of,
    fnv1a32,
    fnv1a64,
    manifest_file_name,
    version_of_manifest_file,
    version_path,
)


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
