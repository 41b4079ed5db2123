"""Check and recover as stages; what they and unlock found and did, as views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from omnigraph_ops.models.health import FAILED, BranchFinding, CheckReport, RecoverReport, UnlockReport
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import count
from omnigraph_ops.requests import Option, Request, Seconds
from omnigraph_ops.stages.stage import Effect, RunStage, Submit
from omnigraph_ops.views.view import Section, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class CheckRequest(Request):
    """Nothing but the graph."""


class RecoverRequest(Request):
    """Finish what a crash left behind."""

    grace: Annotated[Seconds | None, Option(metavar="DURATION")] = None
    """Leave sidecars of others that are younger than this alone, as in `15m`."""


class Check(RunStage[CheckRequest, CheckReport]):
    """Looks for everything that stands between a graph and maintenance."""

    name = "check"
    effect = Effect.READS
    summary = (
        "Report what stands between this graph and maintenance. Exit 0 clean, 3 pending, 4 needs a person.\n\n"
        "That is sidecars, staging files, locks and drift."
    )
    examples = ("g.omni", "s3://bucket/g.omni --json")
    request = CheckRequest

    def run(self, graph: Graph, request: CheckRequest, tell: Progress, submit: Submit | None = None) -> CheckReport:
        """Look. Reads."""
        from omnigraph_ops.stages.recovery.check import check

        return check(graph)

    def view(self, value: CheckReport) -> View:
        """Everything that is in the way, then what to do. Pure."""
        what = f"stamp {value.stamp}" if value.stamp else "plain Lance"
        sidecars = tuple(
            (s.path, s.writer_kind, ", ".join(s.table_keys) or "?", s.classification.value, s.detail)
            for s in value.sidecars
        )
        drift = tuple(
            (
                d.table_key,
                f"{d.manifest_version} → {d.lance_head_version if d.problem is None else '?'}",
                "cannot be read" if d.problem else "drift, covered by a sidecar" if d.covered else "drift, uncovered",
            )
            for d in value.drift
        )
        branches = tuple((f.branch, f.table_key, _gap(f)) for f in value.branch_findings)
        schema = [(name, "schema staging file") for name in value.staging_files]
        schema += [(key, "the accepted schema and __manifest disagree") for key in value.schema_mismatch]
        schema += [("__schema_apply_lock__", "writers are kept away")] if value.schema_apply_lock else []
        return View.of(
            f"check {value.uri} — {what}, {value.status.value}",
            Section.table("Sidecars", ("Path", "Writer", "Tables", "State", "Detail"), sidecars),
            Section.table("Schema", ("What", "Meaning"), schema),
            Section.table("Drifted tables", ("Table", "Published → newest", "State"), drift),
            Section.table("Named branches", ("Branch", "Table", "Published → newest"), branches),
            Section(title="Next", lines=value.advice),
        )

    def exit_code(self, report: CheckReport) -> int:
        return report.status.exit_code


def _gap(finding: BranchFinding) -> str:
    """What is wrong with a table of a branch, in a cell. Pure."""
    if finding.manifest_version:
        return f"{finding.manifest_version} → {finding.lance_head_version or 'gone'}"
    return "there by half" if finding.recoverable else "cannot be read"


class Recover(RunStage[RecoverRequest, RecoverReport]):
    """Finishes optimize runs that a crash left behind, and writes of engine processes that got in each other's way."""

    name = "recover"
    effect = Effect.PUBLISHES
    summary = "Finish optimize runs that a crash left behind, and writes that stopped each other in the engine."
    examples = ("g.omni", "s3://bucket/g.omni")
    request = RecoverRequest
    report_type = RecoverReport

    def run(self, graph: Graph, request: RecoverRequest, tell: Progress, submit: Submit | None = None) -> RecoverReport:
        """Finish, or roll back. Publishes."""
        from omnigraph_ops.stages.recovery.recover import recover

        return recover(graph, grace_seconds=None if request.grace is None else float(request.grace))

    def told(self, graph: Graph, unit: Unit) -> RecoverReport | None:
        from omnigraph_ops.stages.recovery.recover import recovered

        outcome = recovered(graph, unit)
        return None if outcome is None else RecoverReport.of_unit(graph.uri, outcome)

    def view(self, value: RecoverReport) -> View:
        """What was done with each finding. Pure."""
        header = ("Table", "Action", "Version", "Operation", "Detail")
        rows = tuple(
            (
                o.table_key,
                o.action,
                f"{o.from_version} → {o.to_version}" if o.to_version is not None else "",
                o.operation_id,
                o.detail,
            )
            for o in value.outcomes
        )
        return View.of(
            f"recover {value.uri} — {count(len(value.outcomes), 'finding')}, now {value.status.value}",
            Section.table("What became of them", header, rows),
        )

    def problem(self, report: RecoverReport) -> str:
        failed = [outcome for outcome in report.outcomes if outcome.action == FAILED]
        if not failed:
            return ""
        first = failed[0]
        what = first.table_key or first.operation_id or report.uri
        return (
            f"{count(len(failed), 'finding')} could not be settled, first of {what}: {first.detail}; the others are "
            "settled; run `omnigraph-ops check`"
        )

    def exit_code(self, report: RecoverReport) -> int:
        return 0 if report.status.is_settled else report.status.exit_code


def unlock_view(report: UnlockReport) -> View:
    """Whether there is a lock, or what became of it. Pure."""
    if not report.locked:
        return View(title=f"unlock {report.uri} — no schema-apply lock")
    holder = report.holder or "a schema apply of the engine, at work or crashed: only --force removes its lock"
    done, whose = (
        ("removed", "Whose it was") if report.confirm else ("held; rerun with --confirm to remove it", "Whose it is")
    )
    return View.of(f"unlock {report.uri} — {done}", Section(title=whose, lines=(holder,)))
