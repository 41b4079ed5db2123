"""Byte counts for a person."""

from __future__ import annotations

import pytest

from omnigraph_ops.quantities import human_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (2**20, "1.0 MiB")),
        *((5 * 1024**4, "5.0 TiB"), (2**52, "4096.0 TiB")),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert human_bytes(count) == text
