"""Find a graph of a cluster: only the applied ledger `__cluster/state.json` is read, as the engine does."""

from __future__ import annotations

import json
from typing import Any

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.storage.location import graph_root, locate
from omnigraph_ops.storage.options import AMBIENT, StoreAccess
from omnigraph_ops.storage.store import Storage

_STATE = "__cluster/state.json"


def resolve_cluster(cluster: str, graph_id: str | None, access: StoreAccess = AMBIENT) -> str:
    """The root of an applied graph of a cluster directory or storage root. Reads the ledger.

    `cluster.yaml` is not consulted: for a cluster on S3 give its storage root itself.

    Raises:
        InvalidInput: no ledger, an unknown graph, or several graphs and none selected.
    """
    root = locate(cluster).root
    graphs = _applied_graphs(Storage(root, access.s3fs(root)), cluster)
    return graph_root(root, _select(cluster, graphs, graph_id))


def _select(cluster: str, graphs: tuple[str, ...], graph_id: str | None) -> str:
    listed = f"[{', '.join(graphs)}]"
    if graph_id is not None:
        if graph_id not in graphs:
            raise InvalidInput(
                f"graph `{graph_id}` is not applied in cluster `{cluster}` (applied graphs: {listed}); "
                "declare it in cluster.yaml and run `cluster apply`, or check the id"
            )
        return graph_id
    if not graphs:
        raise InvalidInput(f"cluster `{cluster}` has no applied graphs; run `cluster apply` first")
    if len(graphs) > 1:
        raise InvalidInput(f"cluster `{cluster}` has {len(graphs)} graphs: {listed}; pass --graph <id> to select one")
    return graphs[0]


def _applied_graphs(storage: Storage, cluster: str) -> tuple[str, ...]:
    try:
        state: Any = json.loads(storage.read(_STATE))
    except FileNotFoundError:
        raise InvalidInput(f"cluster `{cluster}` has no applied state; run `cluster apply` first") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{storage.root}/{_STATE} is not valid JSON ({error})") from None
    try:
        if state["version"] != 1:
            raise InvalidInput(f"{storage.root}/{_STATE} has version {state['version']!r}, expected 1")
        resources = state["applied_revision"]["resources"]
        return tuple(sorted(key.removeprefix("graph.") for key in resources if key.startswith("graph.")))
    except (KeyError, TypeError, AttributeError):
        raise InvalidInput(f"{storage.root}/{_STATE} has no applied_revision.resources object") from None
