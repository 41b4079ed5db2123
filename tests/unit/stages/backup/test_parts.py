"""Parts of a copy: all of the plan, bounded, and added up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.errors import CorruptGraph, OpsError, StorageError
from omnigraph_ops.models.backup import CopyDone, Tally
from omnigraph_ops.models.freeze import CutFile, CutFileKind
from omnigraph_ops.stages.backup import parts
from omnigraph_ops.stages.backup.parts import failed_part, joined, parts_of
from omnigraph_ops.stages.backup.transfer import CopyPlan

SIZES = st.lists(st.integers(0, 3 * 256 * 1024 * 1024), max_size=40)


def files(kind: str, sizes: list[int]) -> tuple[CutFile, ...]:
    return tuple(
        CutFile(file=f"{kind}/{n}", source=f"{kind}/{n}", size=size, kind=CutFileKind.DATA)
        for n, size in enumerate(sizes)
    )


@given(copy=SIZES, link=SIZES, unproven=SIZES)
def test_every_file_is_in_one_part_and_parts_are_bounded(copy: list[int], link: list[int], unproven: list[int]) -> None:
    plan = CopyPlan(
        copy=files("copy", copy), link=files("link", link), keep=(), unproven=files("old", unproven), remove=()
    )
    made = list(parts_of(plan))
    for kind in ("copy", "link", "unproven"):
        found = [f.file for part in made for f in getattr(part, kind)]
        assert sorted(found) == sorted(f.file for f in getattr(plan, kind))
    for part in made:
        sizes = [f.size for f in (*part.copy, *part.link, *part.unproven)]
        assert 0 < len(sizes) <= parts._PART_FILES
        assert len(sizes) == 1 or sum(sizes) <= parts._PART_BYTES


def done(number: int, **more: object) -> CopyDone:
    some = Tally(files=number, bytes=number * 10)
    return replace(CopyDone(copied=some, linked=some, kept=some), **more)  # type: ignore[arg-type]


def test_parts_add_up_and_the_first_failure_stays() -> None:
    assert joined(done(1, unlinked=("a",)), done(2, unlinked=("b",))) == done(3, unlinked=("a", "b"))
    failed = joined(joined(done(1), done(1, error="x", retryable=False)), done(1, error="y"))
    assert (failed.error, failed.retryable) == ("x", False)


@pytest.mark.parametrize(
    ("error", "retryable"), [(StorageError("away"), True), (CorruptGraph("gone"), False), (OpsError("over"), False)]
)
def test_only_what_may_succeed_later_is_repeated(error: OpsError, retryable: bool) -> None:
    assert (failed_part(error).error, failed_part(error).retryable) == (str(error), retryable)
