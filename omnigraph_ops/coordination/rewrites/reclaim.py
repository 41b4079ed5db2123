"""Remove what rewrites made and nobody will read: only files that a journal names and no version refers to."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph_ops.coordination.holds import HoldKind, active_holds
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.coordination.rewrites.journal import FinishedTask, MadeFile
from omnigraph_ops.errors import LeaseHeld, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.paths import Part, data_file_of_blob, lance_file
from omnigraph_ops.graph.references import read_dataset
from omnigraph_ops.storage.inventory import OpsFault, look_again, remove_files


def reclaim(graph: Graph, table_path: str, finished: Iterable[FinishedTask], keeper: LeaseKeeper) -> int:
    """Remove the files of these results unless some version of the dataset refers to them; how many. Destroys.

    Under the committer lease: nobody commits a result between the look and the removal. `keeper` holds the
    rewrite lease of the table, without which no result of its journals is committed.

    Raises:
        LeaseHeld: a run that may still commit them is not known to be gone; nothing was removed.
        OpsError: what is referenced cannot be told; nothing was removed.
    """
    named = {file for f in finished for file in f.files if _belongs(file, table_path)}
    if not named:
        return 0
    with committer_turn(graph, f"reclaim rewrites of {table_path}"):
        keeper.assert_held()
        _refuse_at_work(graph, table_path)
        needed = referenced(graph, table_path, named)
        lost = sorted(f.path for f in named if f.path not in needed)
        faults = remove_files(graph.storage, lost)
    if faults:
        raise StorageError(f"cannot remove {faults[0].path}: {faults[0].reason}; it is unused, run again")
    return len(lost)


def _refuse_at_work(graph: Graph, table_path: str) -> None:
    """A run that was stopped right before its commit, and lost its leases meanwhile, still needs its files. Reads."""
    holds = (h for h in active_holds(graph.storage) if h.kind is HoldKind.PLAN)
    held = next((h for h in holds if any(v.table_path == table_path for v in h.versions)), None)
    if held is not None:
        raise LeaseHeld(f"the {held.label()} may still commit them")


def referenced(graph: Graph, table_path: str, files: Iterable[MadeFile]) -> frozenset[str]:
    """Those of the files that a version of any branch of the dataset refers to. Reads every manifest of it."""
    paths = {f.path for f in files if _belongs(f, table_path)}
    if not paths or not graph.storage.list(f"{table_path}/_versions"):
        return frozenset()
    known = read_dataset(graph, table_path)
    tails = {path: _data_tail(path, table_path) for path in paths}
    return frozenset(p for p, tail in tails.items() if f"{table_path}/{tail}" in known.exact or tail in known.loose)


def intact(graph: Graph, files: Iterable[MadeFile]) -> frozenset[MadeFile]:
    """Those of the files that are there with their size. Reads."""
    listed = list(files)
    found = look_again(graph.storage, [f.path for f in listed]) if listed else []
    return frozenset(
        file
        for file, now in zip(listed, found, strict=True)
        if now is not None and not isinstance(now, OpsFault) and now.size == file.size
    )


def _belongs(file: MadeFile, table_path: str) -> bool:
    """Whether a journal may name that file at all: data of its own table, of the main chain. Pure."""
    known = lance_file(file.path, (), table_path) if file.path.startswith(f"{table_path}/") else None
    return known is not None and known.branch is None and known.part in {Part.DATA, Part.BLOB}


def _data_tail(path: str, table_path: str) -> str:
    """The data file that keeps a file alive, relative to the dataset: its own, or that of its blob. Pure."""
    tail = path.removeprefix(f"{table_path}/")
    return tail if tail.endswith(".lance") else data_file_of_blob(tail)
