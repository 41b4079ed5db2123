"""Whatever ends a run, and whenever: what history and audit log say of it is what became of the graph."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.history import RunOutcome, RunRecord
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.outcomes.audit_log import ENDS, AuditEvent
from omnigraph_ops.outcomes.run_journal import open_journals
from omnigraph_ops.outcomes.runs import settle
from omnigraph_ops.stages.optimize.run import optimize_table
from tests.crash.harness_state import QUICK
from tests.support.killed_runs import KINDS, Ended, Kill, run_command
from tests.support.kills import BEFORE, kill_at
from tests.support.orphans import age, plant
from tests.support.record_truth import COMPARED, Seen, differ
from tests.support.rows import rows_everywhere

pytestmark = pytest.mark.crash
KILLS = int(os.environ.get("OMNIGRAPH_RECORD_KILLS", "12"))
"""Over all verbs and both stamps."""
PERSON = "node:Person"
SPEC = DemoSpec(node_types=1, loads=3, rows=12, deletes=2, updates=3)


def _nothing(_graph: Graph) -> None:
    pass


def _left_over(graph: Graph) -> None:
    plant(graph)
    age(graph.uri)


def _armed(graph: Graph) -> None:
    kill_at(graph, lambda g: optimize_table(g, PERSON), "merge_insert", BEFORE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A verb, and a graph on which it has something to do."""

    words: tuple[str, ...]
    drifted: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    prepare: Callable[[Graph], None] = _nothing


CASES = {
    "optimize": Case(words=("optimize",)),
    "optimize in rounds": Case(words=("optimize",), environment=(("OMNIGRAPH_OPS_SMALL_TABLE_BYTES", "0"),)),
    "cleanup": Case(words=("cleanup", "--keep", "1", "--confirm")),
    "orphans": Case(words=("orphans", "--older-than", "7d", "--confirm"), prepare=_left_over),
    "repair": Case(words=("repair", "--confirm", "--force"), drifted=(PERSON, "edge:Knows")),
    "recover": Case(words=("recover",), prepare=_armed),
}


@pytest.mark.night("combinations")
@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("name", CASES)
def test_a_record_agrees_with_the_graph(tmp_path: Path, name: str, stamp: int) -> None:
    root, pristine, case = tmp_path / "graph", tmp_path / "pristine", CASES[name]
    write_demo_graph(str(root), replace(SPEC, stamp=stamp, drift_tables=case.drifted))
    case.prepare(open_graph(str(root), QUICK))
    shutil.copytree(root, pristine)
    before, rows = Seen.of(open_graph(str(root), QUICK)), rows_everywhere(open_graph(str(root), QUICK))
    chance = random.Random(f"{name} {stamp} {KILLS}")
    words = (case.words[0], str(root), *case.words[1:], "--json")
    run = partial(run_command, words, root, tmp_path / "run", environment=dict(case.environment))
    whole = run()
    assert whole.code == 0, whole.err
    assert whole.moments > 2
    problems = judge(root, before, case.words[0], whole)
    for _ in range(-(-KILLS // (2 * len(CASES)))):
        shutil.rmtree(root)
        shutil.copytree(pristine, root)
        kill = Kill(
            moment=chance.randrange(whole.moments),
            signals=chance.choice(KINDS),
            delay=chance.choice((0.0, 0.0, chance.uniform(0.0, 0.05))),
            gap=chance.uniform(0.002, 0.1),
        )
        ended = run(kill=kill)
        problems += [f"{kill}: {problem}" for problem in judge(root, before, case.words[0], ended)]
        if len(kill.signals) == 1:
            problems += [f"{kill}: {problem}" for problem in _exit_code(root, ended)]
        assert rows_everywhere(open_graph(str(root), QUICK)) == rows
    assert not problems, "\n".join(problems)


def judge(root: Path, before: Seen, verb: str, ended: Ended) -> list[str]:
    """Settle, then compare the record with the graph; what disagrees, in words. Writes."""
    graph = open_graph(str(root), QUICK)
    settle(graph)
    after = Seen.of(graph)
    problems = [f"exit code {ended.code}"] if ended.code not in {0, 130, 143, -9} else []
    problems += ["a traceback: " + ended.err] if "Traceback" in ended.err else []
    problems += ["a journal is left"] if open_journals(graph.storage) or settle(graph) else []
    runs = history.read_runs(graph)
    if len(runs) > 1:
        return [*problems, f"{len(runs)} records"]
    run = history.read_run(graph, runs[0].run_id) if runs else None
    changed = (before.heads, before.pins, before.versions) != (after.heads, after.pins, after.versions)
    if run is None:
        lost = changed or set(before.files) - set(after.files)
        return [*problems, "the graph changed and there is no record"] if lost else problems
    problems += [p for p in COMPARED[verb](run, before, after) if p]
    return problems + _audit(graph, run, verb, destroyed=changed or bool(set(before.files) - set(after.files)))


def _exit_code(root: Path, ended: Ended) -> list[str]:
    """One signal leads to the exit code of the outcome; whoever sends more leaves the recording to the next command."""
    runs = history.read_runs(open_graph(str(root), QUICK))
    wrong = [r.outcome for r in runs if ended.code >= 0 and (ended.code > 128) is not (r.outcome == "interrupted")]
    return [f"exit code {ended.code} of a run that {outcome}" for outcome in wrong]


def _audit(graph: Graph, run: RunRecord, verb: str, *, destroyed: bool) -> list[str]:
    """Everything that needs a plan has one entry of its start and one of its end, if it did anything."""
    events = [e.event for e in audit_log.log_of(graph.storage, "").entries if e.run == run.run_id]
    if verb in {"optimize", "recover"}:
        return [differ("audit", events, [])] if events else []
    good = len(events) == 2 and events[0] is AuditEvent.STARTED and events[1] in ENDS
    if (destroyed or events) and not good:
        return [f"audit log: {events}"]
    interrupted = AuditEvent.INTERRUPTED in events
    return ["audit and history differ"] if events and interrupted is not (run.outcome is RunOutcome.INTERRUPTED) else []
