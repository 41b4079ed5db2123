"""The command line takes the same words everywhere."""

from __future__ import annotations

import pytest

from omnigraph_ops.cli.parser import build_parser


@pytest.mark.parametrize("verb", ["optimize", "cleanup", "orphans", "freeze"])
@pytest.mark.parametrize("option", ["--fence", "--keep-writers-away"])
def test_the_fence_has_two_names(verb: str, option: str) -> None:
    assert build_parser().parse_args([verb, "GRAPH", option]).fence is True
    assert build_parser().parse_args([verb, "GRAPH"]).fence is False
