"""The target line on stderr, and results on stdout as JSON or text."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable

from omnigraph_ops import serde
from omnigraph_ops.cli import recording
from omnigraph_ops.cli.address import target_of
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.storage.location import locate


def echo_target(args: argparse.Namespace, target: str) -> None:
    """Say what is about to be touched, before it is opened, as the engine does. Writes to stderr."""
    if args.quiet:
        return
    place = "local" if locate(target).is_local else "remote"
    print(f"omnigraph-ops {args.verb} → {target} (direct, {place})", file=sys.stderr, flush=True)


def open_target(args: argparse.Namespace) -> Graph:
    """Echo the target and open it. Reads."""
    target = target_of(args)
    echo_target(args, target)
    return recording.opened(args, open_graph(target))


def progress(args: argparse.Namespace) -> Callable[[str], None] | None:
    """What long work says it is doing, on stderr; None with `--quiet`. Pure."""
    return None if args.quiet else lambda text: print(f"  {text}", file=sys.stderr, flush=True)


def emit(args: argparse.Namespace, value: object, text: str) -> None:
    """Print a result on stdout in the chosen form. Writes to stdout."""
    recording.note(args, value)
    say(args, serde.dumps(value) if args.json else text)


def say(args: argparse.Namespace, text: str) -> None:
    """Print on stdout; where that fails, what was done stands and only the exit code changes. Writes to stdout."""
    try:
        print(text, flush=True)
    except OSError as error:
        # The interpreter flushes stdout once more at its end, which would fail again.
        sys.stdout = io.StringIO()
        recording.unprinted(args, error)
