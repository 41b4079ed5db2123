"""Names of files that are not whole yet."""

from __future__ import annotations

import os

import pytest

from omnigraph_ops.storage.half_written import half_written_of, is_half_written, stem_of, temporary_beside


@pytest.mark.parametrize("suffix", [".part", ".tmp"])
@pytest.mark.parametrize("name", ["x.lance", "x" * 255, "\u00e4" * 127, "_" + "\u00e4" * 127])
def test_a_name_beside_a_file_is_told_from_others_and_never_too_long(name: str, suffix: str) -> None:
    path = f"/graph/data/{name}"
    beside = temporary_beside(path, suffix)
    assert beside != temporary_beside(path, suffix)
    assert os.path.dirname(beside) == "/graph/data"
    assert len(os.fsencode(os.path.basename(beside))) <= 255
    assert is_half_written(beside)
    assert half_written_of(beside) == stem_of(path)
    assert path.startswith(stem_of(path))


def test_any_other_name_is_of_a_whole_file() -> None:
    assert stem_of("nodes/x.lance") == "nodes/x.lance"
    assert not is_half_written("nodes/x.lance")
    assert half_written_of("nodes/x.lance") is None
