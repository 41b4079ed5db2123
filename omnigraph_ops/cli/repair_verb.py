"""The repair verb: preview with evidence, save the sealed preview, publish what was previewed."""

from __future__ import annotations

import argparse

from omnigraph_ops.cli import recording
from omnigraph_ops.cli.address import target_of
from omnigraph_ops.cli.consent import Consequence, require_consent, require_terms
from omnigraph_ops.cli.output import emit, open_target
from omnigraph_ops.cli.plan_files import read_plan, write_plan
from omnigraph_ops.coordination.sealed import verify
from omnigraph_ops.errors import OpsError, UsageError
from omnigraph_ops.models import EvidenceTier, RepairPreview, RepairReport
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from omnigraph_ops.stages.repair.view import plan_view, report_view
from omnigraph_ops.views import terminal

_NOTHING = "nothing was published"
_NEXT = "rerun with --confirm to publish verified maintenance drift"
_EFFECT = Consequence(does="publishes the heads of drifted tables", untouched=_NOTHING)


def repair_verb(args: argparse.Namespace) -> int:
    """Preview by default; `--confirm` previews and publishes at once, `--plan` binds to a saved preview."""
    _check_flags(args)
    approved = read_plan(args.plan, RepairPreview, _NOTHING) if args.plan is not None else None
    if args.confirm:
        require_consent(args, target_of(args), _EFFECT)
    graph = open_target(args)
    if approved is not None:
        verify(approved, uri=graph.uri, consequence=_NOTHING)
    preview = approved or preview_repair(graph, tables=tuple(args.tables), evidence=_tier(args))
    if not args.confirm:
        return _show(args, preview)
    recording.note(args, preview)
    report = apply_repair(graph, preview, force=args.force)
    emit(args, report, terminal.shown(report_view(report)))
    if report.refused:
        raise OpsError(
            f"repair refused {len(report.refused)} suspicious or unverifiable table(s); review the preview "
            "output and rerun with --force --confirm only if publishing that drift is intentional"
        )
    return 0


def _check_flags(args: argparse.Namespace) -> None:
    if args.force and not args.confirm:
        raise UsageError("repair --force requires --confirm; nothing was read or written")
    if args.plan is not None and (args.tables or args.evidence or args.save_plan):
        raise UsageError("--plan carries its own tables and evidence; leave --table, --evidence and --save-plan out")
    require_terms(args)


def _tier(args: argparse.Namespace) -> EvidenceTier:
    return EvidenceTier(args.evidence) if args.evidence else EvidenceTier.COUNTS


def _show(args: argparse.Namespace, preview: RepairPreview) -> int:
    if args.save_plan is not None:
        write_plan(args.save_plan, preview)
    report = RepairReport(
        uri=preview.uri,
        confirm=False,
        force=False,
        manifest_version=None,
        tables=preview.rows,
        digest=preview.digest,
    )
    emit(args, report, f"{terminal.shown(plan_view(preview))}\n{_NEXT}")
    return 0
