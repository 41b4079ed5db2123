"""Claim: beside our optimize in a loop an engine refuses fewer of its writes than beside its own, and under 5 %.

Rounds of ten writes, one command of the engine after the other, beside ours, beside the engine's own optimize, and
beside nobody. Printed: the share of refused writes of each, and the rounds that ended with something for a person.

    OMNIGRAPH_BIN_STAMP6=/path/to/omnigraph PYTHONPATH=. python bench/bench_refused_writes.py [ROUNDS]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.interop.engine import BINARIES, Engine
from tests.interop.live import Outcome, Round, fresh_graph


def measure(oracle: Engine, folder: Path, maintainer: str, rounds: int) -> list[Outcome]:
    """Rounds beside one maintainer, the same writes for each."""
    outcomes = []
    for seed in range(rounds):
        place = folder / maintainer / str(seed)
        place.mkdir(parents=True)
        fresh_graph(oracle, folder / "template.omni", place / "g.omni")
        outcomes.append(Round(oracle, place / "g.omni", seed, 10**9, maintainer=maintainer, kill=False).run())
    return outcomes


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for stamp, variable in BINARIES.items():
        if not os.environ.get(variable):
            print(f"stamp {stamp}: {variable} names no engine binary; skipped")
            continue
        with tempfile.TemporaryDirectory() as folder:
            for maintainer in ("ours", "engine", "nobody"):
                outcomes = measure(Engine(binary=os.environ[variable], stamp=stamp), Path(folder), maintainer, rounds)
                refused, writes = sum(len(o.refused) for o in outcomes), sum(o.writes for o in outcomes)
                bad = sum(bool(o.problems) for o in outcomes)
                print(
                    f"stamp {stamp} beside {maintainer:>6}: {refused / writes:6.1%} of {writes} writes refused, "
                    f"{bad} of {rounds} rounds left something for a person"
                )


if __name__ == "__main__":
    main()
