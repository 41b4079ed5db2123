"""The engine writes while this tool maintains without pause, and one of the two is killed: nobody is needed afterwards.

`OMNIGRAPH_LIVE_ROUNDS` says how many rounds, of ten writes each, for each stamp and each kind of window.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.engine import engine
from tests.interop.live import WRITES, Outcome, Round, fresh_graph

pytestmark = pytest.mark.interop
ROUNDS = int(os.environ.get("OMNIGRAPH_LIVE_ROUNDS", "2"))
_ENOUGH_TO_COUNT = 20
_MOST_REFUSED = 0.05


@pytest.mark.parametrize("stamp", (3, 6))
@pytest.mark.parametrize("small_table_bytes", [10**9, 0], ids=["one", "journalled"])
def test_beside_a_live_engine_nobody_is_needed(
    tmp_path: Path, stamp: int, small_table_bytes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    oracle, outcomes = engine(stamp), list[Outcome]()
    for seed in range(ROUNDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        fresh_graph(oracle, tmp_path / "template.omni", folder / "g.omni")
        outcomes.append(Round(oracle, folder / "g.omni", seed, small_table_bytes).run())
        with capsys.disabled():
            sys.stdout.write(f"\n  stamp {stamp}, {small_table_bytes or 'journalled'}: {_sum(outcomes)}")
        if not outcomes[-1].problems:
            shutil.rmtree(folder)
    assert [f"seed {o.seed}, {o.killed} killed: {p}; {o.said}" for o in outcomes for p in o.problems] == []
    refused, writes = sum(len(o.refused) for o in outcomes), sum(o.writes for o in outcomes)
    assert writes >= (WRITES - 1) * ROUNDS
    if ROUNDS >= _ENOUGH_TO_COUNT:
        assert refused < _MOST_REFUSED * writes, [line for o in outcomes for line in o.refused]


def _sum(outcomes: Sequence[Outcome]) -> str:
    refused, writes = sum(len(o.refused) for o in outcomes), sum(o.writes for o in outcomes)
    bad = sum(bool(o.problems) for o in outcomes)
    windows = sum(o.windows for o in outcomes)
    return f"{len(outcomes)} rounds, {bad} bad, {refused} of {writes} writes refused, {windows} windows"
