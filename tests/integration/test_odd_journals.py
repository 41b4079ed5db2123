"""A journal that cannot be recorded stays for a person; the runs beside it are recorded, and work goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.coordination.state import RUNS_DIR
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes import history
from omnigraph_ops.outcomes.results import Snapshot
from omnigraph_ops.outcomes.runs import RecordedRun
from tests.conftest import DemoGraph
from tests.support.history import header
from tests.support.leases import bury_runs
from tests.support.shell import Cli
from tests.support.writers import entry_of

SMALL = {"loads": 3, "rows": 12, "node_types": 1}
PERSON = "node:Person"


def dead_run(graph: Graph, run_id: str) -> Path:
    """Leave the journal of a run that was killed in a cleanup; its folder. Writes."""
    runs = Path(graph.uri, RUNS_DIR)
    before = set(runs.glob("*"))
    unit = Unit(name="1", stage="cleanup", table_key=PERSON, table_path=entry_of(graph, PERSON).path, versions=(1,))
    RecordedRun(graph, header(run_id), Snapshot()).begins(unit)
    bury_runs(graph.storage)
    (folder,) = set(runs.glob("*")) - before
    return folder


def changed(name: str, *path: str, to: Any) -> Callable[[Path], None]:
    """What sets one value in one file of a journal. Writes."""

    def change(folder: Path) -> None:
        document = at = json.loads((folder / name).read_text())
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to
        (folder / name).write_text(json.dumps(document))

    return change


def _damaged_intent(folder: Path) -> None:
    (folder / "intent.json").write_text("{")


def _folder_for_intent(folder: Path) -> None:
    (folder / "intent.json").unlink()
    (folder / "intent.json").mkdir()


def _link_loop_for_intent(folder: Path) -> None:
    (folder / "intent.json").unlink()
    (folder / "intent.json").symlink_to("intent.json")


def _link_loop_for_unit(folder: Path) -> None:
    (folder / "000001.json").symlink_to("000001.json")


ODD = {
    "stage": (changed("000000.json", "unit", "stage", to="defragment"), "does not know the stage 'defragment'"),
    "time": (changed("intent.json", "header", "started_at_us", to=10**30), "OverflowError"),
    "version": (changed("intent.json", "versions", to={PERSON: 10**30}), "OverflowError"),
    "damaged": (_damaged_intent, "not a valid RunIntent"),
    "folder": (_folder_for_intent, "Is a directory"),
    "link loop": (_link_loop_for_intent, "symbolic links"),
    "link loop for a unit": (_link_loop_for_unit, "symbolic links"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "why"), ODD.values(), ids=ODD)
def test_an_odd_journal_stays_and_holds_up_nothing(
    cli: Cli, demo_graph: DemoGraph, spoil: Callable[[Path], None], why: str
) -> None:
    graph = demo_graph(**SMALL)
    odd, sound = dead_run(graph, "cli/odd"), dead_run(graph, "cli/sound")
    spoil(odd)
    for command in ("audit", "history", "cleanup --keep 3 --confirm"):
        done = cli(command, graph.uri)
        warnings = [line for line in done.err.splitlines() if line.startswith("warning: ")]
        assert (done.code, len(warnings)) == (0, 1), done.err
        assert warnings[0].startswith(f"warning: the run of the journal {RUNS_DIR}/{odd.name} could not be recorded: ")
        assert why in warnings[0]
        assert "the journal stays and stops no work" in warnings[0]
    assert (odd.is_dir(), sound.is_dir()) == (True, False)
    outcomes = {run.run_id: run.outcome for run in history.read_runs(graph)}
    assert outcomes.pop("cli/sound") is RunOutcome.INTERRUPTED
    assert set(outcomes.values()) == {RunOutcome.SUCCEEDED}, "the cleanup is recorded"


@pytest.mark.parametrize("pid", [10**30, 0, -1])
def test_a_number_that_is_no_process_is_that_of_a_dead_one(cli: Cli, demo_graph: DemoGraph, pid: int) -> None:
    graph = demo_graph(**SMALL)
    folder = dead_run(graph, "cli/dead")
    changed("intent.json", "pid", to=pid)(folder)
    changed("intent.json", "process_started", to="")(folder)
    assert cli("history", graph.uri).code == 0
    assert (folder.is_dir(), history.read_runs(graph)[0].run_id) == (False, "cli/dead")


def _file(runs: Path) -> None:
    runs.write_text("notes")


def _link_loop(runs: Path) -> None:
    runs.symlink_to(runs.name)


def _link_to_nothing(runs: Path) -> None:
    runs.symlink_to("nowhere/at/all")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_file, "is a file where a folder belongs"),
        (os.mkfifo, "is a file where a folder belongs"),
        (_link_loop, "symbolic links"),
        (_link_to_nothing, "a link that leads nowhere"),
    ],
)
def test_whatever_stands_where_journals_belong_stops_no_command(
    cli: Cli, demo_graph: DemoGraph, spoil: Callable[[Path], None], why: str
) -> None:
    graph = demo_graph(**SMALL)
    runs = Path(graph.uri, RUNS_DIR)
    runs.parent.mkdir(exist_ok=True)
    spoil(runs)
    for command in ("history", "audit", "optimize", "cleanup --keep 3 --confirm", "history"):
        done = cli(command, graph.uri)
        warnings = [line for line in done.err.splitlines() if line.startswith("warning: ")]
        assert (done.code, len(warnings)) == (0, 1), done.err
        assert warnings[0].startswith("warning: interrupted runs cannot be recorded: ")
        assert why in warnings[0]
        assert "no work is stopped" in warnings[0]
    outcomes = [(run.header.verb, run.outcome) for run in history.read_runs(graph)]
    assert outcomes == [("cleanup", RunOutcome.SUCCEEDED), ("optimize", RunOutcome.SUCCEEDED)]
    assert runs.is_symlink() or not runs.is_dir(), "it stays for whoever put it there"
