"""Row expiry through the real engine, ended at random: record, audit log and graph agree on which rows are gone."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.history import RunOutcome, RunRecord
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.outcomes.audit_log import ENDS, AuditEvent
from omnigraph_ops.outcomes.run_journal import open_journals
from omnigraph_ops.outcomes.runs import settle
from omnigraph_ops.stages.recovery.recover import recover
from tests.crash.harness_state import QUICK
from tests.interop.engine import engine
from tests.support.events import AFTER, AT, EVENT, SCHEMA, events, utc_now
from tests.support.killed_runs import KINDS, Ended, Kill, run_command

pytestmark = pytest.mark.interop
KILLS = int(os.environ.get("OMNIGRAPH_RECORD_KILLS", "12"))
"""Over both stamps."""
_COUNT, _KEPT = 16, 10
_TOLD = re.compile(r"(\d+) rows and (\d+) edges deleted")
_LONGEST_COMMAND_SECONDS = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a reader of main sees."""

    events: frozenset[str]
    at: frozenset[str]
    after: frozenset[str]

    @staticmethod
    def of(graph: Graph) -> Seen:
        """The names of events, and the events at which edges begin. Reads."""
        return Seen(
            events=_column(graph, EVENT, "name"), at=_column(graph, AT, "src"), after=_column(graph, AFTER, "src")
        )


def _column(graph: Graph, table_key: str, column: str) -> frozenset[str]:
    entry = graph.state().get(table_key)
    assert entry is not None
    return frozenset(graph.open_pinned(entry).to_table(columns=[column]).column(column).to_pylist())


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_record_agrees_with_the_rows_that_are_left(tmp_path: Path, stamp: int) -> None:
    subject, root, pristine = engine(stamp), tmp_path / "graph.omni", tmp_path / "pristine"
    subject.init(root, SCHEMA)
    subject.load(root, events(_COUNT, now=utc_now()))
    shutil.copytree(root, pristine)
    before = Seen.of(open_graph(str(root), QUICK))
    words = ("expire-rows", str(root), "--table", EVENT, "--property", "happened_at", "--older-than", "10d")
    words += ("--max-share", "1", "--confirm", "--json", "--engine", subject.binary)
    whole = run_command(words, root, tmp_path / "run")
    assert whole.code == 0, whole.err
    problems, _ = judge(root, before, whole)
    chance, gone = random.Random(f"{stamp} {KILLS}"), list[int]()
    for _ in range(-(-KILLS // 2)):
        shutil.rmtree(root)
        shutil.copytree(pristine, root)
        kill = Kill(
            moment=chance.randrange(whole.moments),
            signals=chance.choice(KINDS),
            delay=chance.choice((0.0, chance.uniform(0.0, 0.05), chance.uniform(0.0, _LONGEST_COMMAND_SECONDS))),
            gap=chance.uniform(0.002, 0.1),
        )
        ended = run_command(words, root, tmp_path / "run", kill=kill)
        found, rows = judge(root, before, ended)
        found += _exit_code(root, ended) if len(kill.signals) == 1 else []
        problems += [f"{kill}: {problem}" for problem in found]
        gone.append(rows)
    assert not problems, "\n".join(problems)
    assert KILLS < 60 or {0, _COUNT - _KEPT} <= set(gone), "kills before and after the merge"


def judge(root: Path, before: Seen, ended: Ended) -> tuple[list[str], int]:
    """Settle and recover, then compare the record with what a reader sees; problems, and how many rows went. Writes."""
    problems = [f"exit code {ended.code}"] if ended.code not in {0, 130, 143, -9} else []
    problems += ["a traceback: " + ended.err] if "Traceback" in ended.err else []
    graph = open_graph(str(root), QUICK)
    settle(graph)
    settled = Seen.of(graph)
    time.sleep(_LONGEST_COMMAND_SECONDS)  # an engine that outlived the run would have merged by then
    recover(graph, grace_seconds=0)
    after = Seen.of(open_graph(str(root), QUICK))
    problems += ["rows went after the run was recorded"] if settled != after else []
    problems += ["a journal is left"] if open_journals(graph.storage) else []
    gone, edges = len(before.events - after.events), _edges(before) - _edges(after)
    problems += [f"{gone} rows are gone"] if gone not in {0, _COUNT - _KEPT} else []
    problems += [f"edges without their nodes: {after}"] if not after.at | after.after <= after.events else []
    runs = history.read_runs(graph)
    run = history.read_run(graph, runs[0].run_id) if runs else None
    if run is None or len(runs) > 1:
        return problems + ([f"{len(runs)} records of {gone} rows"] if gone or runs else []), gone
    said = any("expire-rows" in t.stages for t in run.tables)
    problems += [f"the record says so: {said}, {gone} rows are gone"] if said is not bool(gone) else []
    return problems + _audit(graph, run, gone, edges), gone


def _audit(graph: Graph, run: RunRecord, gone: int, edges: int) -> list[str]:
    entries = [e for e in audit_log.log_of(graph.storage, "").entries if e.run == run.run_id]
    if not entries:
        return ["no entry of the audit log"] if gone else []
    if [e.event for e in entries[:-1]] != [AuditEvent.STARTED] or entries[-1].event not in ENDS:
        return [f"audit log: {[e.event for e in entries]}"]
    found = _TOLD.search(entries[-1].detail)
    told = (int(found[1]), int(found[2])) if found else (0, 0)
    interrupted = entries[-1].event is AuditEvent.INTERRUPTED
    return [
        *([f"audit log: {entries[-1].detail!r} of {gone} rows and {edges} edges"] if told != (gone, edges) else []),
        *(["audit and history differ"] if interrupted is not (run.outcome is RunOutcome.INTERRUPTED) else []),
    ]


def _edges(seen: Seen) -> int:
    """Every event has at most one edge of each kind."""
    return len(seen.at) + len(seen.after)


def _exit_code(root: Path, ended: Ended) -> list[str]:
    """One signal leads to the exit code of the outcome."""
    runs = history.read_runs(open_graph(str(root), QUICK))
    wrong = [r.outcome for r in runs if ended.code >= 0 and (ended.code > 128) is not (r.outcome == "interrupted")]
    return [f"exit code {ended.code} of a run that {outcome}" for outcome in wrong]
