"""The verbs about optimizing: health, plan and optimize, here or queued."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from omnigraph_ops.cli.app import verb
from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.options import BYTES, POSITIVE, SECONDS, TABLES, OneOf, fence, flag, together
from omnigraph_ops.cli.planned import fence_of, fence_seconds
from omnigraph_ops.errors import OpsError, UsageError
from omnigraph_ops.models.optimize import RewritePolicy
from omnigraph_ops.quantities import duration
from omnigraph_ops.views.view import View

if TYPE_CHECKING:
    from omnigraph_ops.config.settings import Settings
    from omnigraph_ops.stages.optimize.budget import Budget

_BUDGET = together(
    click.option(
        "--max-bytes", type=BYTES, metavar="SIZE", help="Write about this much at most, as in 20GiB.", panel="Budget"
    ),
    click.option("--max-tables", type=POSITIVE, metavar="N", help="Optimize at most N tables.", panel="Budget"),
    click.option(
        "--deadline",
        type=SECONDS,
        metavar="DURATION",
        help="Start no table later than this, as in 2h; running ones are finished. Tables run in order of benefit per "
        "byte; the others are listed, and planned again in the next run.",
        panel="Budget",
    ),
)
_POLICY = together(
    click.option(
        "--policy",
        type=OneOf([p.value for p in RewritePolicy]),
        help="`converge` (default): one fragment up to the target size. `tiered`: merge fragments of like size, so "
        "that a table that grows by small loads is not rewritten every night.",
        panel="Policy",
    ),
    click.option(
        "--cutoff",
        type=POSITIVE,
        metavar="N",
        help="Small fragments: `converge` rewrites only tables with more than N, `tiered` leaves at most N (default "
        "for --auto: twice the cores).",
        panel="Policy",
    ),
    click.option(
        "--auto",
        is_flag=True,
        help="Only tables past a threshold: small fragments, unindexed rows, deleted rows.",
        panel="Policy",
    ),
    click.option(
        "--defer-index-remap",
        is_flag=True,
        help="Plain Lance without stable row ids: do not rewrite indexes during compaction; Lance records where rows "
        "moved.",
        panel="Policy",
    ),
)


@verb(
    "health",
    "Score every table from 0 to 100, worst first. Writes nothing.\n\nSmall fragments, deleted and unindexed rows, "
    "versions and dead bytes count. Reads metadata only.",
    TABLES,
    panel="Look",
)
def health_verb(call: Call) -> int:
    from omnigraph_ops.stages.health.read import health
    from omnigraph_ops.stages.health.view import health_view

    report = health(call.open(), tables=call.options["tables"])
    call.emit(report, health_view(report))
    return 0


@verb("plan", "Show what optimize would do. Writes nothing.", TABLES, _BUDGET, _POLICY, panel="Look")
def plan_verb(call: Call) -> int:
    from omnigraph_ops.stages.optimize.run import plan_optimize
    from omnigraph_ops.stages.optimize.view import plan_view

    plan = plan_optimize(call.open(_settings(call)), tables=call.options["tables"], budget=_budget(call))
    call.emit(plan, plan_view(plan))
    return 0


@verb(
    "optimize",
    "Fold indexes, rewrite small fragments and publish. Rows never change.",
    TABLES,
    _BUDGET,
    _POLICY,
    flag(
        "queue",
        "Do not wait: start the nightly DAG at OMNIGRAPH_OPS_AIRFLOW_URL (token in OMNIGRAPH_OPS_AIRFLOW_TOKEN).",
    ),
    flag("exclusive", "Nobody else publishes meanwhile: compact the internal tables too."),
    fence("Hold the engine's schema-apply lock meanwhile, so that its writers are refused (implies --exclusive)."),
    panel="Maintenance",
)
def optimize_verb(call: Call) -> int:
    from omnigraph_ops.stages.optimize.run import optimize_all
    from omnigraph_ops.stages.optimize.view import report_view

    fence_seconds(call)
    if call.options["queue"]:
        return _queue(call)
    call.writes = True
    with fence_of(call, call.open(_settings(call))) as graph:
        report = optimize_all(
            graph,
            tables=call.options["tables"],
            budget=_budget(call),
            progress=call.progress,
        )
    call.emit(report, report_view(report))
    if report.failed:
        keys = ", ".join(t.table_key for t in report.failed)
        raise OpsError(
            f"optimize failed for {len(report.failed)} table(s): {keys}; the others are done; "
            "run `omnigraph-ops check`, then optimize again"
        )
    return 0


def _queue(call: Call) -> int:
    """Hand the run to Airflow and return at once. Triggers the nightly DAG."""
    from omnigraph_ops.cli.airflow_api import queue_run

    said = call.options
    if call.given("tables", "exclusive", "fence"):
        raise UsageError("--queue starts the nightly DAG, which takes neither --table nor --exclusive nor --fence")
    if said["defer_index_remap"]:
        raise UsageError("--queue: set OMNIGRAPH_OPS_DEFER_INDEX_REMAP where Airflow runs instead")
    graph = call.open()
    wanted = {
        "graph": graph.target,
        "max_bytes": None if said["max_bytes"] is None else str(said["max_bytes"]),
        "max_tables": said["max_tables"],
        "deadline": None if said["deadline"] is None else duration(said["deadline"]),
        "policy": said["policy"],
        "cutoff": said["cutoff"],
        "auto": said["auto"] or None,
    }
    run = queue_run({name: value for name, value in wanted.items() if value is not None})
    call.emit(run, View(title=f"queued {run.dag_run_id} of {run.dag_id} for {graph.uri} ({run.state})"))
    return 0


def _settings(call: Call) -> Settings:
    """The settings of the environment, as the options have them for this run. Reads the environment."""
    from omnigraph_ops.config.settings import Settings

    said = call.options
    settings = Settings.from_env().for_run(
        policy=said["policy"], cutoff=said["cutoff"], auto=said["auto"], defer_index_remap=said["defer_index_remap"]
    )
    return settings.model_copy(update={"exclusive": True}) if said.get("exclusive") else settings


def _budget(call: Call) -> Budget | None:
    from omnigraph_ops.stages.optimize.budget import Budget

    said = call.options
    budget = Budget(max_bytes=said["max_bytes"], max_tables=said["max_tables"], deadline_seconds=said["deadline"])
    return None if budget == Budget() else budget
