"""Find a graph and open it: which generation it is, or plain Lance, or why it is neither."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import ContractError, CorruptGraph, InvalidInput, NotAGraph, StorageError, UnsupportedStamp
from omnigraph_ops.graph.graph import Graph, RunContext
from omnigraph_ops.graph.layout import (
    BACKUP_RECORD,
    BACKUP_START,
    MANIFEST_DIR,
    RESTORING_PATH,
    ROOT_FILES,
    is_ulid,
)
from omnigraph_ops.graph.plain import open_plain
from omnigraph_ops.graph.stamp import GraphContext, StampFormat, stamp_text
from omnigraph_ops.graph.stamp3 import Stamp3
from omnigraph_ops.graph.stamp6 import Stamp6
from omnigraph_ops.lance.gateway import DatasetMissing, LanceFailure, LanceGateway
from omnigraph_ops.storage.location import AMBIENT, StoreAccess, graph_root, locate, refuse_respelled
from omnigraph_ops.storage.store import Storage

_STATE = "__cluster/state.json"


def resolve_cluster(cluster: str, graph_id: str | None, access: StoreAccess = AMBIENT) -> str:
    """The root of an applied graph of a cluster directory or storage root. Reads the ledger.

    `cluster.yaml` is not consulted: for a cluster on S3 give its storage root itself.

    Raises:
        InvalidInput: no ledger, an unknown graph, or several graphs and none selected.
    """
    root = locate(cluster).root
    graphs = _applied_graphs(Storage(root, access), cluster)
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
        raise _no_cluster(storage, cluster) from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{storage.root}/{_STATE} is not valid JSON ({error})") from None
    try:
        if state["version"] != 1:
            raise InvalidInput(f"{storage.root}/{_STATE} has version {state['version']!r}, expected 1")
        resources = state["applied_revision"]["resources"]
        return tuple(sorted(key.removeprefix("graph.") for key in resources if key.startswith("graph.")))
    except (KeyError, TypeError, AttributeError):
        raise InvalidInput(f"{storage.root}/{_STATE} has no applied_revision.resources object") from None


def _no_cluster(storage: Storage, cluster: str) -> InvalidInput:
    """The refusal of a place without a ledger. Reads."""
    if not storage.exists(""):
        return InvalidInput(f"there is nothing at {storage.root}; nothing was read; check the path of the cluster")
    if storage.list(f"{MANIFEST_DIR}/_versions"):
        return InvalidInput(f"{storage.root} is a graph, not a cluster; nothing was read; leave --cluster out")
    elsewhere = "; where its cluster.yaml has `storage`, give that" if storage.exists("cluster.yaml") else ""
    return InvalidInput(f"cluster `{cluster}` has no applied state; run `cluster apply` first{elsewhere}")


_FORMATS: dict[int, type[StampFormat]] = {3: Stamp3, 6: Stamp6}


def open_graph(target: str, settings: Settings | None = None, access: StoreAccess = AMBIENT) -> Graph:
    """Open a graph for maintenance after checking its stamp and schema contract. Reads.

    Raises:
        InvalidInput: the target is not a path or an s3:// URI, or its key is one that engines spell otherwise.
        NotAGraph, UnsupportedStamp, ContractError: it cannot be maintained; nothing was written.
        BucketMissing: its bucket does not exist.

    Without a graph manifest it may be plain Lance: one dataset, or a folder of them.
    """
    storage = Storage(locate(target).root, access)
    _refuse_backed_up(storage)
    context = GraphContext(storage=storage, lance=LanceGateway(access.lance(storage.root)))
    stamp = _read_stamp(context)
    if stamp is not None:
        stamp_format, run_context = _FORMATS[stamp](), RunContext(settings=settings or Settings.from_env())
        try:
            catalog = stamp_format.read_catalog(storage)
        except ContractError:
            _refuse_unfinished(storage)
            raise
        return Graph(context=context, format=stamp_format, catalog=catalog, run_context=run_context)
    # The datasets of a folder appear one after the other: some are no reason to maintain it.
    _refuse_unfinished(storage)
    plain = open_plain(context, settings or Settings.from_env())
    if plain is None:
        refuse_respelled(storage.root)
        raise _neither(storage)
    if plain.addressed:
        _refuse_unfinished(plain.storage)  # what is restored may be the folder around the dataset
    return plain


def backup_around(place: Storage) -> str | None:
    """The backup that a place is, or is inside of; None where none is to be seen. Reads."""
    parts = (os.path.realpath(place.root) if place.is_local else place.root).split("/")
    for end in range(len(parts), 0, -1):
        if not is_ulid(parts[end - 1]):
            continue
        folder = place.at("/".join(parts[:end]))
        with contextlib.suppress(StorageError):
            if folder.exists(BACKUP_RECORD) or folder.exists(BACKUP_START):
                return folder.root
    return None


def _refuse_backed_up(storage: Storage) -> None:
    """Refuse the files of a backup, which nothing may change: they would open as a graph. Reads."""
    backup = backup_around(storage)
    if backup is not None:
        what = "a backup" if backup == storage.root else f"a part of the backup {backup}"
        raise NotAGraph(
            f"{storage.root} is {what}; nothing was written; restore it to another place with `omnigraph-ops restore`"
        )


def _refuse_unfinished(storage: Storage) -> None:
    """Say so where a restore has begun and not ended. Reads."""
    if storage.exists(RESTORING_PATH):
        raise NotAGraph(
            f"the restore to {storage.root} has not ended; nothing was written; "
            "run the same `omnigraph-ops restore` again, unless it is still at work; if it says that a file of the "
            "backup is damaged, restore an earlier backup to another, empty place"
        )


def _neither(storage: Storage) -> NotAGraph:
    """The refusal of a folder that is neither a graph nor plain Lance. Reads."""
    rest = "no folder `*.lance` there has a dataset either: check the path"
    if storage.exists(_STATE):
        root, graphs = storage.root, ", ".join(_applied_graphs(storage, storage.root)) or "none yet"
        return NotAGraph(
            f"{root} is a cluster, not a graph; nothing was written; name one of its graphs, {graphs}, by `--cluster "
            f"{root} --graph <id>`, in a graphs file by `target: {{cluster: {root}, id: <id>}}`"
        )
    if ROOT_FILES.intersection(storage.list("")):
        rest = "other files of a graph are there: bring a backup back with `omnigraph-ops restore`"
    return NotAGraph(
        f"{storage.root} is not an Omnigraph graph: it has no readable {MANIFEST_DIR}; nothing was written; {rest}"
    )


def _read_stamp(context: GraphContext) -> int | None:
    """The stamp of the graph manifest, None where there is no such dataset. Reads."""
    root = context.storage.root
    if not context.storage.exists(""):
        refuse_respelled(root)
        raise NotAGraph(
            f"there is nothing at {root}; nothing was written; check the path and whether its storage is mounted, "
            "correct the address (in a graphs file it is `target`), or bring a backup back with `omnigraph-ops restore`"
        )
    try:
        manifest = context.open_at(MANIFEST_DIR)
    except DatasetMissing:
        return None
    except LanceFailure as error:
        refuse_respelled(root)
        if context.storage.is_local and os.path.isfile(root):
            raise NotAGraph(f"{root} is a file; nothing was written; give the folder of a graph") from None
        raise CorruptGraph(f"{root}/{MANIFEST_DIR} cannot be read; nothing was written: {error}") from None
    raw = stamp_text(manifest)
    if raw is None and not ROOT_FILES.intersection(context.storage.list("")):
        raise NotAGraph(
            f"{root}/{MANIFEST_DIR} was not written by Omnigraph; the folder of a Lance namespace, whose own "
            "catalog that may be, is not maintained; nothing was written"
        )
    refuse_respelled(root)
    # The first generation carried no stamp.
    raw = "1" if raw is None else raw
    stamp = int(raw) if raw.isdecimal() and raw.isascii() else None
    if stamp in _FORMATS:
        return stamp
    raise UnsupportedStamp(_stamp_message(root, raw, stamp))


def _stamp_message(root: str, raw: str, stamp: int | None) -> str:
    if stamp is None:
        return f"{root}/{MANIFEST_DIR} carries an unreadable stamp {raw!r}; nothing was written"
    newest = max(_FORMATS)
    if stamp > newest:
        return (
            f"{root} is stamped at internal schema v{stamp} but this tool expects v{newest} — "
            "upgrade omnigraph-ops before maintaining this graph"
        )
    if stamp < min(_FORMATS):
        return (
            f"{root} is stamped at internal schema v{stamp}; open it once read-write with omnigraph 0.7.2 "
            "(for example `omnigraph optimize`), which migrates it to v3"
        )
    return (
        f"{root} is stamped at internal schema v{stamp}, a generation between releases that is not maintained; "
        "export it with the omnigraph release that wrote it and load it with 0.9.0"
    )
