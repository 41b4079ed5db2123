"""The engine finds in a graph that is maintained what it finds in one that is not, whatever the history."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest

from tests.interop.engine import engine
from tests.interop.twins import RandomTwins, TwinFailed, Twins

pytestmark = pytest.mark.interop
SEEDS = int(os.environ.get("OMNIGRAPH_TWIN_SEEDS", "2"))
STEPS = 16


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", [Twins, RandomTwins], ids=["people", "any-schema"])
@pytest.mark.parametrize("stamp", [3, 6])
def test_a_maintained_graph_answers_as_its_twin(tmp_path: Path, stamp: int, kind: type[Twins], seed: int) -> None:
    twins = kind(oracle=engine(stamp), folder=tmp_path, draw=random.Random(seed))
    with contextlib.suppress(TwinFailed):  # what was compared by then was equal
        for _ in range(STEPS):
            twins.step()
        twins.settle()
    assert any(line.startswith("maintained") for line in twins.said)
