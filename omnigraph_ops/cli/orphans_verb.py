"""The orphans verb and its gates: options, consent, echo, open; a preview without --confirm."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from omnigraph_ops.cli import recording
from omnigraph_ops.cli.address import target_of
from omnigraph_ops.cli.consent import require_consent
from omnigraph_ops.cli.orphans_options import DEFAULT_AGE
from omnigraph_ops.cli.output import emit, open_target, progress
from omnigraph_ops.cli.plan_files import read_plan
from omnigraph_ops.durations import parse_duration
from omnigraph_ops.errors import ApprovalMissing, InvalidInput, OpsError, UsageError
from omnigraph_ops.fence import fenced
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.location import locate
from omnigraph_ops.models import OrphansPlan
from omnigraph_ops.orphans import (
    apply_orphans,
    list_quarantines,
    plan_orphans,
    preview_quarantine,
    purge,
    restore,
    texts,
)
from omnigraph_ops.sealed import verify


def orphans_verb(args: argparse.Namespace) -> int:
    """Preview by default; `--confirm` plans and applies at once, `--plan` binds to an approved plan."""
    _check_options(args)
    if _names_a_quarantine(args):
        return _quarantine(args)
    target = target_of(args)
    approved = read_plan(args.plan, OrphansPlan, "nothing was deleted") if args.plan is not None else None
    older_than = approved.older_than_secs if approved else parse_duration(args.older_than or DEFAULT_AGE)
    if older_than < parse_duration(DEFAULT_AGE) and not args.yes:
        raise ApprovalMissing(
            f"a file younger than {DEFAULT_AGE} may belong to a long write; nothing was deleted; "
            "pass --yes to go below that age"
        )
    listing = _local_file(args.listing) if args.listing is not None else None
    if args.confirm or args.fence:
        require_consent(args, target)
    if not args.confirm:
        print(f"orphans is destructive — rerun with --confirm. Target: {target}", file=sys.stderr)
    graph = open_target(args)
    with fenced(graph) if args.fence else contextlib.nullcontext():
        plan = approved or plan_orphans(
            graph,
            older_than_seconds=older_than,
            listing=listing,
            on_progress=progress(args),
        )
        if args.confirm:
            recording.note(args, plan)
            return _apply(args, graph, plan)
    if approved is not None:
        verify(approved, uri=graph.uri, consequence="nothing was deleted")
    emit(args, plan, texts.plan_text(plan))
    return 0


def _apply(args: argparse.Namespace, graph: Graph, plan: OrphansPlan) -> int:
    """Apply the plan and print what came of it. Destroys."""
    report = apply_orphans(graph, plan, quarantine=args.quarantine, on_progress=progress(args))
    emit(args, report, texts.report_text(report))
    if report.failed:
        raise OpsError(
            f"{len(report.failed)} file(s) could not be removed, nothing that is needed was touched; run orphans again"
        )
    return 0


def _quarantine(args: argparse.Namespace) -> int:
    """List, restore, purge, or say what a purge would delete. Destroys with --purge --confirm."""
    target = target_of(args)
    if args.restore is not None or (args.purge is not None and args.confirm):
        require_consent(args, target)
    graph = open_target(args)
    if args.quarantined:
        listed = list_quarantines(graph)
        emit(args, listed, texts.quarantines_text(listed))
        return 0
    if args.restore is not None:
        report = restore(graph, args.restore, on_progress=progress(args))
    elif args.confirm:
        report = purge(graph, args.purge, on_progress=progress(args))
    else:
        print("orphans --purge is destructive — rerun with --confirm", file=sys.stderr)
        report = preview_quarantine(graph, args.purge)
    emit(args, report, texts.quarantine_text(report))
    if report.failed:
        raise OpsError(f"{len(report.failed)} file(s) of the quarantine stay in it; see their reasons")
    return 0


def _check_options(args: argparse.Namespace) -> None:
    if _names_a_quarantine(args) and (args.plan or args.listing or args.older_than or args.quarantine or args.fence):
        raise UsageError("--quarantined, --restore and --purge stand alone; nothing was read")
    if args.confirm and (args.quarantined or args.restore is not None):
        raise UsageError("--quarantined and --restore delete nothing and take no --confirm; nothing was read")
    if args.plan is not None and (args.older_than is not None or args.listing is not None):
        raise UsageError("--plan carries its own age and listing; leave --older-than and --listing out")


def _local_file(address: str) -> Path:
    """Where an inventory is on this machine. Reads the working directory."""
    place = locate(address)
    if not place.is_local:
        raise InvalidInput(f"the inventory {address} is not on this machine; nothing was deleted; copy it here")
    return Path(place.root)


def _names_a_quarantine(args: argparse.Namespace) -> bool:
    return bool(args.quarantined or args.restore is not None or args.purge is not None)
