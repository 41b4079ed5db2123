"""What the UI and the reference say about the manual DAG of a stage. Knows no Airflow."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from omnigraph_ops.stages.stage import AnyPlanned, Effect

_EFFECTS = {Effect.DESTROYS: "**destroys**"}


def stage_text(stage: AnyPlanned) -> str:
    """The page about the DAG, as Markdown. Pure."""
    tasks, what = stage.tasks, stage.summary.partition(". ")[0].removesuffix(".")
    if stage.measure:
        alone = "what is within the bounds of the form is done, and a larger plan waits"
    else:
        alone = f"{stage.routine}, and any other plan waits" if stage.routine else "the run waits"
    text = f"""# {what}

| Task | What it does | Effect |
|---|---|---|
| `check_recovery` | finishes what a crashed optimize left, or stops | publishes what was written |
| `{tasks.plan}` | {_first_sentence(stage.plan)} | reads |
| `{tasks.approve}` | a run without **Confirm** stops here | |
| `{tasks.apply}` | {_first_sentence(stage.apply)} | {_EFFECTS.get(stage.effect, stage.effect.value)} |
| `report` | what happened; red when anything failed | reads |

Trigger it once to look: the plan is in the log of `{tasks.plan}`, with its digest. Trigger it again with **Confirm**
and that digest to carry out exactly what you saw. With **Confirm** alone, {alone} for an approval under
*Required Actions*.
"""
    return f"{text}\n{stage.about}\n" if stage.about else text


def _first_sentence(of: Callable[..., Any]) -> str:
    """What the docstring of a step says that it does. Pure."""
    sentence = (inspect.getdoc(of) or "").partition(". ")[0]
    return sentence[:1].lower() + sentence[1:]
