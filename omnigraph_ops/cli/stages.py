"""The verb of every stage: those that nobody has to approve, those that plan first, and what a verb does beside it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import rich_click as click

from omnigraph_ops.cli.call import Call, Instead, fence_of, fence_seconds, require_consent, verb
from omnigraph_ops.cli.options import (
    CONFIRM,
    PATH,
    YES,
    fence,
    flag,
    given,
    request_of,
    request_options,
    spark,
    together,
    undecided,
    words_of,
)
from omnigraph_ops.cli.plan_files import plan_in_file, refuse_place, write_plan
from omnigraph_ops.cli.queue import QUEUE, queued
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import sealed
from omnigraph_ops.errors import ApprovalMissing, OpsError, UsageError
from omnigraph_ops.progress import Stopped
from omnigraph_ops.quantities import duration
from omnigraph_ops.requests import fields_of
from omnigraph_ops.stages.orphans.stage import quarantine_view, quarantines_view
from omnigraph_ops.stages.registry import PLANNED, UNASKED
from omnigraph_ops.stages.stage import AnyPlanned, AnyRun, Effect, Submit

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

QUARANTINE_OPTIONS = together(
    click.option("--quarantined", is_flag=True, help="List what was moved aside.", panel="Quarantine"),
    click.option("--restore", metavar="ID", help="Bring a quarantine back.", panel="Quarantine"),
    click.option("--purge", metavar="ID", help="With --confirm: delete what a quarantine holds.", panel="Quarantine"),
)
_ACTIONS = ("quarantined", "restore", "purge")


def declare_unasked(stage: AnyRun, *more: Callable[[Any], Any], instead: Instead | None = None) -> None:
    """Declare the verb of a stage.

    Args:
        more: options of `instead`.
    """
    options = [*request_options(stage.request), *more]
    options += [YES] if stage.does else []
    options += [fence(stage.fence_help)] if stage.fence_help else []
    options += [spark(stage.spark_help)] if stage.spark_help else []
    panel = stage.panel or ("Look" if stage.effect is Effect.READS else "Maintenance")

    @verb(stage.name, stage.summary, *options, panel=panel, examples=stage.examples)
    def run(call: Call) -> int:
        if stage.fence_help:
            fence_seconds(call)
        done = None if instead is None else instead(call)
        return _run_unasked(call, stage) if done is None else done


def _run_unasked(call: Call, stage: AnyRun) -> int:
    """Do it and print the report; the effect of the stage."""
    for field in fields_of(stage.request):
        if field.option.argument and call.swap(field.name) is None:
            raise UsageError(f"{stage.name} takes a graph and a {field.name}; {stage.unharmed}")
    _check_spark(call, stage)
    request = request_of(stage.request, call.options)
    call.writes = stage.recorded and stage.effect is not Effect.READS
    call.only_reads = stage.effect is Effect.READS
    if stage.does:
        require_consent(call, call.target, does=stage.does, untouched=stage.unharmed)
    try:
        with fence_of(call, call.open(stage.settings(request, Settings.from_env()))) as graph:
            report = stage.run(graph, request, call.progress, submit_of(call))
            call.emit(report, stage.view(report))
    except Stopped:
        return 1  # the record has how far it came, and the command ends as one that was interrupted
    if problem := stage.problem(report):
        raise OpsError(problem)
    return stage.exit_code(report)


def _check_spark(call: Call, stage: AnyRun | AnyPlanned) -> None:
    """Refuse what a driver cannot do. Pure."""
    if call.options.get("spark") is not None and call.options.get("fence"):
        # The driver is another process, which the fence refuses like any writer.
        raise UsageError(f"--spark and --fence exclude each other; {stage.unharmed}")


def submit_of(call: Call) -> Submit | None:
    """What submits to the Spark that the options name; None where they name none. Pure."""
    master = call.options.get("spark")
    if master is None:
        return None
    from omnigraph_ops.spark.submit import Submitter

    return Submitter(master=master, progress=call.progress)


def declare_planned(stage: AnyPlanned, *more: Callable[[Any], Any], instead: Instead | None = None) -> None:
    """Declare the verb of a stage.

    Args:
        more: options of `instead`.
    """

    @verb(stage.name, stage.summary, *_options(stage), *more, panel="Maintenance", examples=stage.examples)
    def run(call: Call) -> int:
        done = None if instead is None else instead(call)
        return _run_planned(call, stage) if done is None else done


def _options(stage: AnyPlanned) -> list[Callable[[Any], Any]]:
    options = request_options(stage.request)
    if stage.age:
        options.append(flag("allow-young", f"Let an age be less than {stage.age}."))
    if stage.uses_engine:
        options.append(
            click.option(
                "--engine", type=PATH, metavar="PATH", help="The engine's binary (default: OMNIGRAPH_OPS_ENGINE)."
            )
        )
    keepers = "a preview or a DAG" if stage.keeps_previews else "a DAG"
    options += [
        click.option("--confirm", is_flag=True, help="Carry out the plan.", panel=CONFIRM),
        YES,
        click.option(
            "--save-plan",
            type=PATH,
            metavar="FILE",
            help="Write the sealed plan of a preview to a file.",
            panel=CONFIRM,
        ),
        click.option(
            "--plan",
            type=PATH,
            metavar="FILE|DIGEST",
            help=f"Take only the plan of this file, or of this digest that {keepers} kept; --confirm carries it out.",
            panel=CONFIRM,
        ),
    ]
    if stage.switch is not None:
        options.append(click.option("--force", is_flag=True, help=stage.switch.help, panel=CONFIRM))
    if stage.fence_help:
        options.append(fence(stage.fence_help))
    if stage.spark_help:
        options.append(spark(stage.spark_help))
    return options


def _run_planned(call: Call, stage: AnyPlanned) -> int:
    said = call.options
    _check_options(call, stage)
    fence_seconds(call)
    if said["save_plan"] is not None:
        refuse_place(said["save_plan"])
    approved = plan_in_file(said["plan"], stage)
    request = None if said["plan"] is not None else request_of(stage.request, said)
    if said["confirm"] and request is not None:
        _check_terms(call, stage)
    terms = approved if approved is not None else request
    if terms is not None:
        _judge(call, stage, terms)
    target = call.target
    call.writes = bool(said["confirm"])
    call.only_reads = not (said["confirm"] or said.get("fence"))
    if said["confirm"] or said.get("fence"):
        require_consent(call, target, does=stage.does, untouched=stage.unharmed)
    if not said["confirm"] and stage.effect is Effect.DESTROYS:
        what = "" if terms is None else stage.terms(terms)
        about = f"Policy for {target}: {what}" if what else f"Target: {target}"
        call.tell(f"{stage.name} is destructive — rerun with --confirm. {about}")
    with fence_of(call, call.open(_settings(call))) as graph:
        if said["confirm"] and stage.effect is Effect.DESTROYS:
            _lift_dead_fence(call, graph)
        plan = _plan(call, stage, graph, approved, request)
        if said["confirm"]:
            return _apply(call, stage, graph, plan)
        return _show(call, stage, graph, plan, request)


def _lift_dead_fence(call: Call, graph: Graph) -> None:
    """As `optimize` does; a repair needs no right to delete a lock. Destroys only that lock."""
    from omnigraph_ops.coordination.fence import drop_stale_fence

    if drop_stale_fence(graph):
        call.progress("lifted the fence of a run that was killed")


def _judge(call: Call, stage: AnyPlanned, terms: Any) -> None:
    """Refuse an age that has to be asked for, of a request or of a plan; then give the warnings. Writes to stderr."""
    if not call.options.get("allow_young") and (why := stage.too_young(terms)):
        raise ApprovalMissing(f"{why}, or pass --allow-young")
    for warning in stage.warnings(terms):
        call.tell(f"warning: {warning}")


def _settings(call: Call) -> Settings | None:
    """The settings of the environment, with the engine that the options name. Reads the environment."""
    engine = call.options.get("engine")
    if engine is None:
        return None
    return Settings.from_env().model_copy(update={"engine": engine})


_PREVIEW_AGAIN = (
    "a preview of the shell is kept only with --save-plan FILE: preview again with it, then pass the file to --plan"
)


def _plan(call: Call, stage: AnyPlanned, graph: Graph, approved: Any, request: Any) -> Any:
    """The plan to show or to carry out: of the file, of the digest, or a fresh one. Reads."""
    if call.options["confirm"]:
        stage.check_ready(graph)
    if request is not None:
        return stage.plan(graph, request, call.progress, submit_of(call))
    plan = approved
    if plan is None:
        again = "preview again" if stage.keeps_previews else _PREVIEW_AGAIN
        plan = sealed.load(graph.storage, stage.plan_type, call.options["plan"], again=again)
        _judge(call, stage, plan)
    sealed.verify(plan, uri=graph.uri, consequence=stage.unharmed)
    return plan


def _apply(call: Call, stage: AnyPlanned, graph: Graph, plan: Any) -> int:
    """Carry out the plan and print what came of it; the effect of the stage."""
    force = bool(call.options.get("force"))
    call.recorder.note(plan)
    if stage.nothing_to_do(plan) is None:
        call.recorder.decided(stage.name, plan.digest, forced=force)
    report = stage.apply(graph, plan, call.progress, submit_of(call), force=force)
    call.emit(report, stage.view(report))
    if problem := report.outcome().problem:
        raise OpsError(problem)
    return 0


def _show(call: Call, stage: AnyPlanned, graph: Graph, plan: Any, request: Any) -> int:
    """Print a preview, and the command that carries it out. Writes the plan where it is to be kept."""
    said = call.options
    if stage.keeps_previews and request is not None:
        sealed.store(graph.storage, plan)
    if said["save_plan"] is not None:
        write_plan(said["save_plan"], plan)
    call.emit(stage.preview(plan), stage.view(plan))
    if not call.quiet:
        why = stage.nothing_to_do(plan)
        kept = said["save_plan"] or said["plan"] or (plan.digest if stage.keeps_previews else None)
        command = _how_to_apply(call, stage, graph, kept, request)
        if why:
            call.tell(why)
        elif left := stage.left_by_default(plan):
            call.tell(f"{left}; --force takes them, too")
        if not why:
            call.tell(f"to carry out {'this plan' if kept is not None else 'this policy'}: {command}")
        elif kept is None and words_of(request):
            call.tell(f"to carry out this policy another day, when it may find something: {command}")
    return 0


def _how_to_apply(call: Call, stage: AnyPlanned, graph: Graph, kept: str | None, request: Any) -> str:
    """The command that carries out what was previewed: the plan that is kept, or the policy anew. Pure."""
    said = call.options
    words = ["--plan", kept] if kept is not None else words_of(request)
    also = [f"--{name.replace('_', '-')}" for name in ("allow_young", "fence") if said.get(name)]
    if said.get("spark") is not None and (kept is None or stage.applies_on_spark):
        also += ["--spark", said["spark"]]
    also += ["--engine", said["engine"]] if said.get("engine") is not None else []
    also += ["--fence-seconds", duration(said["fence_seconds"])] if said.get("fence_seconds") is not None else []
    return shlex.join(["omnigraph-ops", stage.name, graph.target, *words, *also, "--confirm"])


def _check_options(call: Call, stage: AnyPlanned) -> None:
    """Refuse options that mean nothing together. Pure."""
    _check_spark(call, stage)
    said, own = call.options, given(stage.request, call.options)
    if said.get("force") and not said["confirm"]:
        raise UsageError(f"{stage.name} --force requires --confirm; nothing was read or written")
    if said["confirm"] and said["save_plan"] is not None:
        raise UsageError("--save-plan saves a preview; apply it afterwards with --plan FILE --confirm")
    if said["plan"] is not None and (own or said["save_plan"] is not None):
        leave = ", ".join([*own, *(["--save-plan"] if said["save_plan"] is not None else [])])
        raise UsageError(f"--plan carries its own policy and tables; leave {leave} out; nothing was read")


def _check_terms(call: Call, stage: AnyPlanned) -> None:
    """Refuse `--confirm` that would decide by a default. Pure."""
    missing = undecided(stage.request, call.options)
    if missing:
        raise UsageError(
            f"{stage.name} --confirm decides by what you write, not by a default; {stage.unharmed}; add "
            f"{' '.join(missing)}, or bind it to a saved preview with --plan"
        )


def about_quarantine(call: Call) -> int | None:
    """List, restore, purge, or show what a purge would delete; None for a call about orphans. Destroys with --purge."""
    actions = call.given(*_ACTIONS)
    if not actions:
        return None
    of_orphans = ("plan", "save_plan", "listing", "older_than", "quarantine", "fence", "allow_young", "spark")
    if len(actions) > 1 or call.given(*of_orphans):
        raise UsageError("--quarantined, --restore and --purge stand alone; nothing was read")
    said = call.options
    if said["confirm"] and said["purge"] is None:
        raise UsageError("--quarantined and --restore delete nothing and take no --confirm; nothing was read")
    return _act(call)


def _act(call: Call) -> int:
    from omnigraph_ops.stages.orphans.quarantine import list_quarantines, preview_quarantine, purge, restore

    said, target = call.options, call.target
    call.writes = bool(said["confirm"] or said["restore"] is not None)
    call.only_reads = not call.writes
    if said["restore"] is not None:
        require_consent(call, target, does="brings files back", untouched="nothing was moved")
    elif said["confirm"]:
        require_consent(call, target)
    graph = call.open()
    if said["quarantined"]:
        listed = list_quarantines(graph)
        call.emit(listed, quarantines_view(listed))
        return 0
    if said["restore"] is not None:
        report = restore(graph, said["restore"], progress=call.progress)
    elif said["confirm"]:
        report = purge(graph, said["purge"], progress=call.progress)
    else:
        call.tell("orphans --purge is destructive — rerun with --confirm")
        report = preview_quarantine(graph, said["purge"])
    call.emit(report, quarantine_view(report))
    if problem := report.outcome().problem:
        raise OpsError(problem)
    return 0


_BESIDE = {"optimize": ((QUEUE,), queued), "orphans": ((QUARANTINE_OPTIONS,), about_quarantine)}
"""What a verb does beside its stage, with the options for it."""

for _unasked in UNASKED:
    _more, _instead = _BESIDE.get(_unasked.name, ((), None))
    declare_unasked(_unasked, *_more, instead=_instead)
for _planned in PLANNED:
    _more, _instead = _BESIDE.get(_planned.name, ((), None))
    declare_planned(_planned, *_more, instead=_instead)
