"""Branch references without content, as a full disk leaves them.

Lance makes the files of a branch first, and then writes the reference to them in place. Where the disk is full by then,
the reference stays as an empty file. Lance reads the references of a dataset all together, so with one such file it
lists none. With one in the graph manifest, 0.7.2 opens the graph no more, and 0.9.0 only to read. With one in a table,
0.9.0 fails at the first write of that table to a branch, and from then on at every open. With one in the commit graph,
0.7.2 makes no branch. Whoever made the branch was told that it failed, so nothing was written through the reference,
and it may go.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.guards import looks
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.engine import EngineFailure
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import INTERNAL_DATASETS, MANIFEST_DIR, chain_folder
from omnigraph_ops.models.health import FAILED, BranchFinding, RecoveryOutcome
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.recovery.half_made import SETTLE_SECONDS, Remains, left_behind
from omnigraph_ops.stages.recovery.unhealed import unreadable
from omnigraph_ops.storage.inventory import Stored, files_in, folders_in, take_unchanged

_WRITTEN = {"data", "_deletions", "_indices"}
"""The folders of a branch in which only a write makes files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyReference(Remains):
    """One such file."""

    dataset: str
    file: Stored

    @property
    def changed_at(self) -> float:
        """When the file was written, in seconds since the epoch. Pure."""
        return self.file.modified_at


def empty_references(graph: Graph) -> tuple[EmptyReference, ...]:
    """Those of all datasets, the internal ones first. Reads: a listing for each dataset."""
    datasets = [(path, path) for path in INTERNAL_DATASETS] if graph.format.publishes else []
    datasets += [(entry.table_key, entry.path) for entry in graph.state().entries]
    found = in_parallel(lambda at: _empty_in(graph, *at), datasets, workers=graph.settings.concurrency)
    return tuple(one for each in found for one in each)


def unlistable(graph: Graph) -> tuple[EmptyReference, ...]:
    """Those of the graph manifest that every look finds: with them nobody lists the branches of the graph. Reads."""
    found = _empty_in(graph, MANIFEST_DIR, MANIFEST_DIR) if graph.format.publishes else []
    for number in looks(graph, brief=True):
        if not found:
            break
        if number:
            now = _empty_in(graph, MANIFEST_DIR, MANIFEST_DIR)
            found = [one for one in found if one in now]
    return tuple(found)


def _empty_in(graph: Graph, table_key: str, path: str) -> list[EmptyReference]:
    return [
        EmptyReference(branch=unquote(name.removesuffix(".json")), table_key=table_key, dataset=path, file=file)
        for file in files_in(graph.storage, f"{path}/_refs/branches")
        if (name := file.path.rpartition("/")[2]).endswith(".json") and file.size == 0 and not file.is_special
    ]


def _why_kept(graph: Graph, empty: EmptyReference) -> str | None:
    """Why such a reference may be of a branch that was whole once, None where it is not. Reads."""
    if empty.dataset in graph.format.lineage_datasets:
        return None  # the engine reads branches there by their files, and `recover` writes the reference anew
    if not graph.format.publishes or empty.dataset in INTERNAL_DATASETS:
        return "somebody wrote to the branch" if _is_written(graph, empty) else None
    try:
        states = [graph.state(branch) for branch in (None, *graph.branches())]
    except OpsError as error:
        return f"it cannot be told whether the graph needs it: {error}"
    by = [s.branch or "main" for s in states if any(entry.branch == empty.branch for entry in s.at(empty.dataset))]
    return f"{', '.join(by)} needs the branch" if by else None


def _is_written(graph: Graph, empty: EmptyReference) -> bool:
    """Whether the branch has more than the version that it was made with. Reads."""
    chain = chain_folder(empty.dataset, empty.branch)
    # Not all below: the files of `a/b` are below those of `a`.
    folders = {folder.rpartition("/")[2] for folder in folders_in(graph.storage, chain)}
    return len(stored_versions(graph.storage, chain)) > 1 or not folders.isdisjoint(_WRITTEN)


def reference_findings(graph: Graph, empties: Sequence[EmptyReference]) -> tuple[BranchFinding, ...]:
    """One for each such reference; recoverable are those that `recover` removes. Reads."""
    return tuple(
        unreadable(empty.branch, empty.table_key, recoverable=_why_kept(graph, empty) is None) for empty in empties
    )


def reference_advice(graph: Graph, empties: Sequence[EmptyReference]) -> Iterator[str]:
    """What to do about each such reference. Reads."""
    for empty in empties:
        what = f"{_until_then(graph, empty)}: the branch reference {empty.file.path} is an empty file"
        why = _why_kept(graph, empty)
        if why is None:
            yield f"{what}, as a full disk leaves it; run `omnigraph-ops recover`, which removes it"
        else:
            yield f"{what}, and {why}: restore the graph from a backup"


def _until_then(graph: Graph, empty: EmptyReference) -> str:
    """What fails as long as it is there, and what to leave alone therefore. Pure."""
    if not graph.format.publishes:
        return f"nobody can list or make branches of {empty.dataset} now"
    if empty.dataset == MANIFEST_DIR:
        return "do not open the graph with omnigraph now"
    # Loads into main go on. The first write of 0.9.0 to a branch leaves a sidecar with which no open succeeds.
    return "do not make a branch or write to one with omnigraph now"


def reference_note(graph: Graph, error: OpsError) -> str:
    """What to add to a failure of the engine, which does not say that a reference is empty. Reads."""
    if not isinstance(error, EngineFailure):
        return ""
    with contextlib.suppress(OpsError):
        for empty in empty_references(graph):
            what = f"{empty.file.path} is an empty file, as a full disk leaves it"
            return f"; {what}; `omnigraph-ops check` says what settles it"
    return ""


def settle_empty_references(graph: Graph, grace: float) -> Iterator[RecoveryOutcome]:
    """Remove references without content that nobody can need. Destroys these files.

    Args:
        grace: in seconds; a younger one may be of an engine that writes it now.
    """
    ready, waiting = left_behind(graph, empty_references(graph), time.time() - grace, grace)
    if ready:
        with committer_turn(graph, "recover empty branch references", wait_seconds=0) as keeper:
            refuse_frozen(graph)
            graph.run.pause(SETTLE_SECONDS)
            lasting = empty_references(graph)
            yield from _remove(graph, [empty for empty in ready if empty in lasting], keeper)
    for empty, problem in waiting:
        why = problem or "it was written within the grace period"
        yield _outcome(empty, "deferred", f"{why}, and an engine may be at work on it; deferred")


def remove_references_of(graph: Graph, branch: str) -> None:
    """Remove the empty references to a branch of row expiry, whose process is gone. Destroys these files."""
    for _ in _remove(graph, [empty for empty in empty_references(graph) if empty.branch == branch]):
        continue  # what stays `check` names


def _remove(
    graph: Graph, empties: Sequence[EmptyReference], keeper: LeaseKeeper | None = None
) -> Iterator[RecoveryOutcome]:
    for empty in empties:
        if _why_kept(graph, empty) is not None:
            continue  # `check` says why
        if keeper is not None:
            keeper.assert_held()
        for fault in take_unchanged(graph.storage, [empty.file]):
            yield _outcome(empty, FAILED, f"it stays: {fault.reason}")
            break
        else:
            yield _outcome(empty, "rolled_back", "it is removed")


def _outcome(empty: EmptyReference, action: str, what: str) -> RecoveryOutcome:
    detail = f"the branch reference {empty.file.path} is an empty file: {what}"
    return RecoveryOutcome(action=action, detail=detail)
