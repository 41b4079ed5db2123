"""What failed in a run, a sentence each: of its tasks, and of single tables and files. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph_airflow.run_facts import Failure, RunFacts
from omnigraph_ops.stages.registry import BY_NAME

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
    sentences = [f.message for f in facts.failures]
    named += [f"{what}: {why}" for what, why in _of_stages(facts) if not any(why in said for said in sentences)]
    told = {f.table_key for f in facts.failures}
    tables = facts.optimize.tables if facts.optimize else ()
    return (*named, *(f"optimize {s.table_key}: {s.error}" for s in tables if s.error and s.table_key not in told))


def _of_stages(facts: RunFacts) -> Iterator[tuple[str, str]]:
    """What the stages say that failed: what, and why. Pure."""
    for stage in BY_NAME.values():
        if stage.name in facts.reports:
            yield from stage.failures(facts.reports[stage.name])
        elif (outcome := facts.outcome_of(stage)) is not None:
            yield from ((table.table_key, table.error) for table in outcome.tables if table.error is not None)


def _sentence(failure: Failure) -> str:
    where = f"{failure.task_id} {failure.table_key}" if failure.table_key else failure.task_id
    return f"{where}: {failure.message}"
