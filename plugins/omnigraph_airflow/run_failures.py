"""What failed in a run, a sentence each: of its tasks, and of single tables and files. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph_airflow.run_facts import Failure, RunFacts
from omnigraph_ops.stages.registry import planned

_BAD_STATES = ("failed", "upstream_failed")


def failed(facts: RunFacts) -> tuple[str, ...]:
    """Everything that failed, what is about one table first. Pure."""
    return (*_tables(facts), *failed_tasks(facts))


def failed_tasks(facts: RunFacts) -> tuple[str, ...]:
    """What failed and is about no single table or file. Pure."""
    named = [_sentence(f) for f in facts.failures if f.table_key is None]
    # A task that died without leaving a sentence (killed, lost worker) still makes the run red.
    silent = [task for task, state in facts.states.items() if state == "failed"]
    known = {f.instance for f in facts.failures}
    named += [f"{task}: failed, see its log" for task in silent if task not in known]
    if not (named or _tables(facts)) and any(state in _BAD_STATES for state in facts.states.values()):
        named.append("a task before this one did not finish")
    return tuple(named)


def _tables(facts: RunFacts) -> tuple[str, ...]:
    named = [_sentence(f) for f in facts.failures if f.table_key is not None]
    named += _of_stages(facts)
    told = {f.table_key for f in facts.failures}
    for outcome in facts.outcomes:
        broken = [t for t in outcome.tables if t.error and t.table_key not in told]
        named += [f"{outcome.stage} {t.table_key}: {t.error}" for t in broken]
        named += [f"{outcome.stage}: {failure}" for failure in outcome.failures]
    tables = facts.optimize.tables if facts.optimize else ()
    return (*named, *(f"optimize {s.table_key}: {s.error}" for s in tables if s.error and s.table_key not in told))


def _of_stages(facts: RunFacts) -> Iterator[str]:
    """What failed by the reports of stages, where no task has said it. Pure."""
    said = [f"{f.table_key}: {f.message}" for f in facts.failures]
    for name, report in facts.reports.items():
        yield from (line for line in planned(name).failures(report) if not any(line in one for one in said))


def _sentence(failure: Failure) -> str:
    where = f"{failure.task_id} {failure.table_key}" if failure.table_key else failure.task_id
    return f"{where}: {failure.message}"
