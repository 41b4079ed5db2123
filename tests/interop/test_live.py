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
from tests.interop.live import PACE, Outcome, Round, fresh_graph

pytestmark = pytest.mark.interop
ROUNDS = int(os.environ.get("OMNIGRAPH_LIVE_ROUNDS", "2"))
_ENOUGH_TO_COUNT = 20
_MOST_REFUSED = 0.05


@pytest.mark.parametrize("stamp", (3, 6))
@pytest.mark.parametrize("small_table_bytes", [10**9, 0], ids=["one", "journalled"])
def test_beside_a_live_engine_nobody_is_needed(
    tmp_path: Path, stamp: int, small_table_bytes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every other round has as many windows as there can be; the others give way to the engine, as by default."""
    oracle, paced, dense = engine(stamp), list[Outcome](), list[Outcome]()
    for seed in range(ROUNDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        fresh_graph(oracle, tmp_path / "template.omni", folder / "g.omni")
        share, outcomes = (1.0, dense) if seed % 2 else (PACE, paced)
        outcomes.append(Round(oracle, folder / "g.omni", seed, small_table_bytes, share).run())
        if not outcomes[-1].problems:
            shutil.rmtree(folder)
    with capsys.disabled():
        sys.stdout.write(f"\n  stamp {stamp}: {told(paced)}; without a pause: {told(dense)}\n")
    problems = [f"seed {o.seed}, {o.killed} killed: {p}; {o.said}" for o in paced + dense for p in o.problems]
    assert not problems, "\n".join(problems)
    assert sum(o.commits for o in dense) > 0, "nothing was maintained"
    if len(paced) >= _ENOUGH_TO_COUNT:
        assert sum(len(o.refused) for o in paced) < _MOST_REFUSED * sum(o.writes for o in paced)


def told(outcomes: Sequence[Outcome]) -> str:
    """What rounds came to, in one line."""
    refused, writes = sum(len(o.refused) for o in outcomes), sum(o.writes for o in outcomes)
    bad, commits = sum(bool(o.problems) for o in outcomes), sum(o.commits for o in outcomes)
    return f"{len(outcomes)} rounds, {bad} bad, {refused} of {writes} writes refused, {commits} commits of ours"
