"""Which graph a command addresses: a positional URI, --store, or --cluster with --graph; exactly one."""

from __future__ import annotations

import argparse

from omnigraph_ops.cli.values import address
from omnigraph_ops.errors import UsageError
from omnigraph_ops.storage.location import locate


def add_address(parser: argparse.ArgumentParser) -> None:
    """The options that address one graph, spelled as the engine spells them."""
    parser.add_argument(
        "graph", type=address, metavar="GRAPH", nargs="?", help="path, file:// or s3:// URI of the graph"
    )
    parser.add_argument("--store", type=address, metavar="URI", help="the same as GRAPH, as an option")
    parser.add_argument("--cluster", type=address, metavar="DIR|URI", help="a cluster directory or storage root")
    parser.add_argument("--graph", metavar="ID", dest="graph_id", help="with --cluster: which of its graphs")
    parser.add_argument("--server", metavar="NAME|URL", help=argparse.SUPPRESS)


def target_of(args: argparse.Namespace) -> str:
    """The addressed root in its one spelling; `UsageError` when it is not exactly one. Reads a cluster's ledger."""
    if args.server is not None:
        raise UsageError(
            f"`{args.verb}` is a direct (storage-native) command; --server addresses a served graph and does not "
            "apply. Pass a storage URI, or --cluster <dir> --graph <id>."
        )
    given = [
        (name, value)
        for name, value in (
            ("a positional URI", args.graph),
            ("--store", args.store),
            ("--cluster", args.cluster),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise UsageError(f"{given[0][0]} and {given[1][0]} are mutually exclusive — pick one way to address the graph")
    if not given:
        raise UsageError("no graph addressed — pass a positional URI, --store <uri> or --cluster <dir> --graph <id>")
    if args.cluster is not None:
        # Imports Lance, which takes a second: not for `--help` and usage errors.
        from omnigraph_ops.graph.cluster import resolve_cluster

        return resolve_cluster(args.cluster, args.graph_id)
    if args.graph_id is not None:
        raise UsageError(
            "--graph selects a graph within a cluster scope; a positional URI / --store is already a single graph"
        )
    return locate(given[0][1]).root
