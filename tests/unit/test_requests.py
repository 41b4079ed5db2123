"""Requests as another process is told of them."""

from __future__ import annotations

import pytest

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.requests import build, from_words
from omnigraph_ops.stages.optimize.stage import OptimizeRequest


def test_what_is_said_is_what_is_understood() -> None:
    asked = build(OptimizeRequest, {"max_bytes": "1GiB", "deadline": "4h", "policy": "tiered", "tables": ["node:A"]})
    assert from_words(OptimizeRequest, asked.said) == asked
    assert from_words(OptimizeRequest, OptimizeRequest().said) == OptimizeRequest()


@pytest.mark.parametrize("words", ["{", "[]", '{"x": 1}', '{"cutoff": 0}'])
def test_words_that_are_no_request_are_one_sentence(words: str) -> None:
    with pytest.raises(InvalidInput):
        from_words(OptimizeRequest, words)
