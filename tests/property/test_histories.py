"""Any history: after an accepted cleanup or orphans run everything that is read, tagged or held still scans,
nothing outside of the approved plan is gone, and a second run deletes nothing.

`make test` runs 60 histories of each stamp, always the same ones; `make test-property` runs 2,000, others every day.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.property.history import (
    KNOWS,
    NAMES,
    PERSON,
    Age,
    Cleanup,
    DeleteBranch,
    History,
    KilledWrite,
    LazyBranch,
    Load,
    Orphans,
    Respell,
    StrayFork,
    Tag,
    WriteBranch,
    histories,
)
from tests.property.judge import run_cleanup, run_orphans
from tests.property.world import World
from tests.support.templates import Templates

pytestmark = pytest.mark.slow

NIGHTLY = os.environ.get("OMNIGRAPH_PROPERTY_PROFILE") == "nightly"
PROFILE = settings(
    max_examples=1000 if NIGHTLY else 60,  # per stamp
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
REACHED = ("versions removed", "orphan files removed", "forks removed", "forks kept", "fork of a fork")
"""What the histories of a run must have met at least once, or they prove nothing."""


def play(templates: Templates, stamp: int, parent: Path, history: History) -> Counter[str]:
    """Carry out one history on a graph of its own and judge it on the way; what it met. Destroys only that graph."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        world = World(templates, stamp, Path(folder))
        for step in history:
            if isinstance(step, Cleanup):
                run_cleanup(world, step)
            elif isinstance(step, Orphans):
                run_orphans(world, step)
            else:
                world.take(step)
        world.check()
    return world.seen


@pytest.mark.night("all but one")
def test_any_history(templates: Templates, stamp: int, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()

    @seed(stamp + 10 * datetime.now(UTC).toordinal() * NIGHTLY)
    @PROFILE
    @given(history=histories())
    def run(history: History) -> None:
        seen.update(play(templates, stamp, tmp_path, history))

    run()
    assert [what for what in REACHED if not seen[what]] == []


LONG, SHORT = NAMES[1], NAMES[0]
WITNESSES: dict[str, History] = {
    "an orphan made from one with a longer name": (
        WriteBranch(LONG, PERSON),
        LazyBranch(SHORT, LONG),
        WriteBranch(SHORT, PERSON),
        DeleteBranch(SHORT, orphans=True),
        DeleteBranch(LONG, orphans=True),
        Cleanup(),
    ),
    "what a deleted parent name left behind goes with the fork nested in it": (
        WriteBranch(SHORT, PERSON),
        WriteBranch(LONG, PERSON),
        DeleteBranch(SHORT),
        DeleteBranch(LONG, orphans=True),
        Cleanup(),
    ),
    "an orphan that another fork was made from stays with it": (
        WriteBranch("z", PERSON),
        LazyBranch(SHORT, "z"),
        WriteBranch(SHORT, PERSON),
        Tag(PERSON, 0, SHORT),
        DeleteBranch(SHORT, orphans=True),
        DeleteBranch("z", orphans=True),
        Cleanup(),
    ),
    "where a removed fork began is left to the next plan": (
        Load(PERSON),
        StrayFork("z", PERSON),
        Load(PERSON),
        Cleanup(0),
    ),
    "old litter of a killed write beside forks": (
        Load(KNOWS),
        WriteBranch(LONG, KNOWS),
        KilledWrite(KNOWS, aged=True),
        Cleanup(),
        Age(),
        Orphans(0),
        Cleanup(),
    ),
    "a fork that was made through a link": (
        Respell("link"),
        WriteBranch("z", PERSON),
        Load(PERSON),
        Respell("home"),
        Age(),
        Cleanup(),
        Orphans(),
    ),
}


@pytest.mark.parametrize("history", WITNESSES.values(), ids=WITNESSES.keys())
def test_histories_that_once_found_something(
    templates: Templates, stamp: int, tmp_path: Path, history: History
) -> None:
    play(templates, stamp, tmp_path, history)


def test_a_table_with_a_fork_of_a_fork_is_cleaned(templates: Templates, stamp: int, tmp_path: Path) -> None:
    """The fork of a fork records two roots, both of this very table: no reason to refuse it."""
    chain = (WriteBranch("z", PERSON), LazyBranch("a", "z"), WriteBranch("a", PERSON), Load(PERSON))
    seen = play(templates, stamp, tmp_path, (*chain, Cleanup()))
    assert (seen["fork of a fork"], seen["table refused"]) == (1, 0)
