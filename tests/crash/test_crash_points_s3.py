"""The kills of `test_crash_points.py` on a store, where every effect is a request.

Every kill would take minutes, so a fixed sample runs; `make test-crash` runs them all.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.crash.harness_kills import sample
from tests.crash.harness_s3 import build_s3_stage
from tests.crash.harness_scenarios import S3_SCENARIOS

pytestmark = [pytest.mark.crash, pytest.mark.s3]
_BY_NAME = {s.name: s for s in S3_SCENARIOS}
_EVERY = 23


@pytest.mark.night("all but one")
@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("name", sorted(_BY_NAME))
@pytest.mark.usefixtures("s3")
def test_a_kill_on_a_store_is_finished_by_the_next_run(
    tmp_path: Path, name: str, stamp: int, capsys: pytest.CaptureFixture[str]
) -> None:
    built = build_s3_stage(tmp_path, _BY_NAME[name], stamp)
    kills = built.kills()
    chosen = sample(kills, first=0 if stamp == 3 else _EVERY // 3, every=_EVERY)
    assert chosen
    problems = [p for kill in chosen for p in built.survives(kill)]
    with capsys.disabled():
        sys.stdout.write(f"\n  {name}, stamp {stamp} on s3: {len(chosen)} of {len(kills)} crash points\n")
    assert not problems, "\n".join(problems)
