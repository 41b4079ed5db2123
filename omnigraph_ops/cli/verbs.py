"""One function per verb: settings from flags, the stage call, the output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from omnigraph_ops import serde
from omnigraph_ops.calibration.threshold import calibrate, calibration_view
from omnigraph_ops.cli import recording
from omnigraph_ops.cli.address import target_of
from omnigraph_ops.cli.backup_verb import BACKUP_VERBS
from omnigraph_ops.cli.cleanup_verb import cleanup_verb
from omnigraph_ops.cli.consent import Consequence, require_consent
from omnigraph_ops.cli.freeze_verb import FREEZE_VERBS
from omnigraph_ops.cli.graphs_verb import graphs_verb
from omnigraph_ops.cli.history_verb import history_verb
from omnigraph_ops.cli.optimize_verb import health_verb, optimize_verb, plan_verb
from omnigraph_ops.cli.orphans_verb import orphans_verb
from omnigraph_ops.cli.output import emit, open_target
from omnigraph_ops.cli.repair_verb import repair_verb
from omnigraph_ops.cli.retention_verb import retention_verb
from omnigraph_ops.cli.text_indexer_verb import text_indexer_verb
from omnigraph_ops.config.reference import settings_report, settings_view
from omnigraph_ops.coordination.fence import current_lock, unlock
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import UsageError
from omnigraph_ops.models import UnlockReport
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.stages.recovery import check, recover
from omnigraph_ops.stages.recovery.view import check_view, recover_view, unlock_view
from omnigraph_ops.views import terminal


def check_verb(args: argparse.Namespace) -> int:
    report = check(open_target(args))
    emit(args, report, terminal.shown(check_view(report)))
    return report.status.exit_code


def recover_verb(args: argparse.Namespace) -> int:
    grace = float(args.grace) if args.grace is not None else None
    report = recover(open_target(args), grace_seconds=grace)
    emit(args, report, terminal.shown(recover_view(report)))
    return 0 if report.status.is_settled else report.status.exit_code


def audit_verb(args: argparse.Namespace) -> int:
    graph = open_target(args)
    recording.settled(graph)
    log = audit_log.AuditLog(uri=graph.uri, entries=audit_log.read(graph.storage, newest=args.newest))
    emit(args, log, terminal.shown(audit_log.audit_view(log)))
    return 0


def calibrate_verb(args: argparse.Namespace) -> int:
    found = calibrate(master=args.master, scratch=args.scratch, on_progress=None if args.quiet else _progress)
    emit(args, found, terminal.shown(calibration_view(found)))
    return 0


def settings_verb(args: argparse.Namespace) -> int:
    report = settings_report()
    emit(args, report, terminal.shown(settings_view(report)))
    return 0


def unlock_verb(args: argparse.Namespace) -> int:
    if args.force and not args.confirm:
        raise UsageError("unlock --force requires --confirm; nothing was removed")
    if args.confirm:
        effect = Consequence(does="lets writers in again", untouched="the lock is where it was")
        require_consent(args, target_of(args), effect)
    graph = open_target(args)
    lock = unlock(graph, force=args.force) if args.confirm else current_lock(graph)
    report = UnlockReport(uri=graph.uri, confirm=args.confirm, locked=lock is not None)
    emit(args, report, terminal.shown(unlock_view(report)))
    return 0


def demo_graph_verb(args: argparse.Namespace) -> int:
    spec = DemoSpec(
        stamp=args.stamp,
        node_types=args.types,
        loads=args.loads,
        rows=args.rows,
        deletes=args.deletes,
        updates=args.updates,
        vectors=not args.no_vectors,
        lazy_branches=args.lazy_branches,
        written_branches=args.written_branches,
        drift_tables=tuple(args.drift),
        seed=args.seed,
    )
    summary = write_demo_graph(args.graph, spec, on_progress=None if args.quiet else _progress)
    print(serde.dumps(summary) if args.json else f"wrote {summary.root} (stamp {summary.stamp})")
    return 0


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "check": check_verb,
    "recover": recover_verb,
    "health": health_verb,
    "plan": plan_verb,
    "optimize": optimize_verb,
    "repair": repair_verb,
    "cleanup": cleanup_verb,
    "orphans": orphans_verb,
    "expire-rows": retention_verb,
    "audit": audit_verb,
    "history": history_verb,
    "calibrate": calibrate_verb,
    **FREEZE_VERBS,
    **BACKUP_VERBS,
    "unlock": unlock_verb,
    "demo-graph": demo_graph_verb,
    "graphs": graphs_verb,
    "settings": settings_verb,
    "install-text-indexer": text_indexer_verb,
}
