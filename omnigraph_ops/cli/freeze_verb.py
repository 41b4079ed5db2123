"""The verbs about holding still: freeze, unfreeze, files, holds, and hold and release for readers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from omnigraph_ops import serde
from omnigraph_ops.cli.address import target_of
from omnigraph_ops.cli.consent import Effect, require_consent
from omnigraph_ops.cli.fencing import fence_of, fence_seconds
from omnigraph_ops.cli.output import emit, open_target, progress, say
from omnigraph_ops.coordination.freeze_release import unfreeze, unfreeze_all
from omnigraph_ops.errors import UsageError
from omnigraph_ops.models.freeze import Freeze
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.stages.freeze.checksums import listed, with_checksums
from omnigraph_ops.stages.freeze.files import cut_files
from omnigraph_ops.stages.freeze.listing import list_holds
from omnigraph_ops.stages.freeze.readers import hold_version, release
from omnigraph_ops.stages.freeze.take import extend_freeze, freeze_graph, read_freeze
from omnigraph_ops.views.freeze_text import at, files_csv, files_text, freeze_text, holds_text, unfreeze_text

_REPORT_EVERY = 200
_FREEZES = Effect(does="keeps the graph as it is and stops its maintenance", untouched="nothing was frozen")
_UNFREEZES = Effect(does="lets versions go that the freeze keeps", untouched="nothing was released")
_HOLDS = Effect(does="keeps a version from every cleanup", untouched="nothing is held")
_RELEASES = Effect(does="lets versions go that the hold keeps", untouched="nothing was released")


def freeze_verb(args: argparse.Namespace) -> int:
    fence_seconds(args)
    ttl = float(args.ttl)
    freeze = _extended(args, ttl) if args.extend is not None else _taken(args, ttl)
    emit(args, freeze, freeze_text(freeze))
    return 0


def unfreeze_verb(args: argparse.Namespace) -> int:
    hold_id = _hold_id(args)
    if (hold_id is None) is not bool(args.all_mine):
        raise UsageError("unfreeze takes the ID of a freeze or --all-mine; nothing was released")
    require_consent(args, target_of(args), _UNFREEZES)
    graph = open_target(args)
    report = unfreeze(graph, hold_id) if hold_id is not None else unfreeze_all(graph, audit_log.shell_actor())
    emit(args, report, unfreeze_text(report))
    return 0


def files_verb(args: argparse.Namespace) -> int:
    if args.json and args.format == "csv":
        raise UsageError("--json and --format csv exclude each other")
    graph = open_target(args)
    freeze = read_freeze(graph, args.freeze_id)
    files = cut_files(graph, freeze)
    if args.checksum:
        files = with_checksums(
            graph, files, workers=graph.settings.concurrency, on_progress=None if args.quiet else _progress
        )
    found = listed(graph, freeze.freeze_id, files)
    if args.format == "json" and not args.json:
        say(args, serde.dumps(found))
    else:
        emit(args, found, files_csv(found) if args.format == "csv" else files_text(found))
    return 0


def holds_verb(args: argparse.Namespace) -> int:
    found = list_holds(open_target(args))
    emit(args, found, holds_text(found))
    return 0


def hold_verb(args: argparse.Namespace) -> int:
    require_consent(args, target_of(args), _HOLDS)
    graph = open_target(args)
    hold = hold_version(
        graph,
        args.table,
        version=args.version,
        branch=args.branch,
        ttl_seconds=float(args.ttl),
        reason=args.reason,
        owner=audit_log.shell_actor(),
    )
    emit(args, hold, f"hold {graph.target} — {hold.hold_id} until {at(hold.expires_at)}")
    return 0


def release_verb(args: argparse.Namespace) -> int:
    require_consent(args, target_of(args), _RELEASES)
    report = release(open_target(args), args.hold_id)
    emit(args, report, unfreeze_text(report))
    return 0


def _taken(args: argparse.Namespace, ttl: float) -> Freeze:
    require_consent(args, target_of(args), _FREEZES)
    graph = open_target(args)
    with fence_of(args, graph) as graph:
        return freeze_graph(
            graph, tables=tuple(args.tables), ttl_seconds=ttl, reason=args.reason, on_progress=progress(args)
        )


def _extended(args: argparse.Namespace, ttl: float) -> Freeze:
    if args.tables or args.reason or args.fence:
        raise UsageError("--extend changes when a freeze ends and nothing else; leave the other options out")
    require_consent(args, target_of(args), _FREEZES)
    return extend_freeze(open_target(args), args.extend, ttl)


def _hold_id(args: argparse.Namespace) -> str | None:
    """The positional ID, which argparse takes for GRAPH when the graph is addressed by an option. Pure."""
    if args.hold_id is None and args.graph is not None and (args.store is not None or args.cluster is not None):
        args.hold_id, args.graph = args.graph, None
    found: str | None = args.hold_id
    return found


def _progress(done: int, total: int) -> None:
    if done % _REPORT_EVERY == 0 or done == total:
        print(f"  {done:,} of {total:,} files read", file=sys.stderr, flush=True)


FREEZE_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "freeze": freeze_verb,
    "unfreeze": unfreeze_verb,
    "files": files_verb,
    "holds": holds_verb,
    "hold": hold_verb,
    "release": release_verb,
}
