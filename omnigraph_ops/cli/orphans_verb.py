"""The orphans verb and its gates: options, consent, echo, open; a preview without --confirm."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from omnigraph_ops.cli import recording
from omnigraph_ops.cli.address import target_of
from omnigraph_ops.cli.consent import Effect, options, require_consent, require_terms, say_how_to_apply
from omnigraph_ops.cli.orphans_options import DEFAULT_AGE
from omnigraph_ops.cli.output import emit, open_target, progress
from omnigraph_ops.cli.plan_files import read_plan, write_plan
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.coordination.sealed import verify
from omnigraph_ops.durations import duration, parse_duration
from omnigraph_ops.errors import ApprovalMissing, InvalidInput, OpsError, UsageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models import OrphansPlan
from omnigraph_ops.stages.orphans import (
    apply_orphans,
    list_quarantines,
    plan_orphans,
    preview_quarantine,
    purge,
    restore,
    texts,
)
from omnigraph_ops.storage.location import locate


def orphans_verb(args: argparse.Namespace) -> int:
    """Preview by default; `--confirm` plans and applies at once, `--plan` binds to an approved plan."""
    _check_options(args)
    if _names_a_quarantine(args):
        return _quarantine(args)
    target = target_of(args)
    approved = read_plan(args.plan, OrphansPlan, "nothing was deleted") if args.plan is not None else None
    older_than = approved.older_than_secs if approved else _age(args)
    if older_than < parse_duration(DEFAULT_AGE) and not args.allow_young:
        raise ApprovalMissing(
            f"a file younger than {DEFAULT_AGE} may belong to a long write; nothing was deleted; "
            "pass --allow-young to go below that age"
        )
    listing = _local_file(args.listing) if args.listing is not None else None
    if args.confirm or args.fence:
        require_consent(args, target)
    if not args.confirm:
        print(f"orphans is destructive — rerun with --confirm. Target: {target}", file=sys.stderr)
    graph = open_target(args)
    with fenced(graph) if args.fence else contextlib.nullcontext(graph) as graph:
        plan = approved or plan_orphans(
            graph,
            older_than_seconds=older_than,
            quarantine=args.quarantine,
            listing=listing,
            on_progress=progress(args),
        )
        if args.confirm:
            recording.note(args, plan)
            return _apply(args, graph, plan)
    if approved is not None:
        verify(approved, uri=graph.uri, consequence="nothing was deleted")
    if args.save_plan is not None:
        write_plan(args.save_plan, plan)
    emit(args, plan, texts.plan_text(plan))
    terms = options(older_than=duration(plan.older_than_secs), listing=args.listing)
    say_how_to_apply(args, target, [*terms, *(["--quarantine"] if plan.quarantine else [])])
    return 0


def _age(args: argparse.Namespace) -> int:
    """The age that was written, for a preview also the default one. Pure."""
    require_terms(args, older_than=DEFAULT_AGE)
    return parse_duration(DEFAULT_AGE) if args.older_than is None else int(args.older_than)


def _apply(args: argparse.Namespace, graph: Graph, plan: OrphansPlan) -> int:
    """Apply the plan and print what came of it. Destroys."""
    report = apply_orphans(graph, plan, on_progress=progress(args))
    emit(args, report, texts.report_text(report))
    if report.failed:
        raise OpsError(
            f"{len(report.failed)} file(s) could not be removed, nothing that is needed was touched; run orphans again"
        )
    return 0


def _quarantine(args: argparse.Namespace) -> int:
    """List, restore, purge, or say what a purge would delete. Destroys with --purge --confirm."""
    target = target_of(args)
    if args.restore is not None:
        require_consent(args, target, Effect(does="brings files back", untouched="nothing was moved"))
    elif args.purge is not None and args.confirm:
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
    others = (args.plan, args.save_plan, args.listing, args.older_than, args.quarantine, args.fence)
    if _names_a_quarantine(args) and any(others):
        raise UsageError("--quarantined, --restore and --purge stand alone; nothing was read")
    if args.confirm and (args.quarantined or args.restore is not None):
        raise UsageError("--quarantined and --restore delete nothing and take no --confirm; nothing was read")
    own = (args.older_than, args.listing, args.save_plan)
    if args.plan is not None and (args.quarantine or any(v is not None for v in own)):
        raise UsageError(
            "--plan carries its own age and listing, and whether it moves files to quarantine; leave --older-than, "
            "--listing, --quarantine and --save-plan out"
        )


def _local_file(address: str) -> Path:
    """Where an inventory is on this machine. Reads the working directory."""
    place = locate(address)
    if not place.is_local:
        raise InvalidInput(f"the inventory {address} is not on this machine; nothing was deleted; copy it here")
    return Path(place.root)


def _names_a_quarantine(args: argparse.Namespace) -> bool:
    return bool(args.quarantined or args.restore is not None or args.purge is not None)
