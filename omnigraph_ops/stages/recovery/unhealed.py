"""What no open of the engine heals, and no recovery of ours. Reads.

Tables of named branches, branches of row expiry, tables that only the schema or only the graph manifest has, and
internal datasets that cannot be read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache

from omnigraph_ops.coordination.lease import working_holder
from omnigraph_ops.coordination.state import EXPIRE_ROWS_LEASE_PATH
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import (
    EXPIRY_BRANCH_PREFIX,
    MANIFEST_DIR,
    RECOVERIES_DIR,
    chain_folder,
)
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import DatasetMissing, LanceFailure, base_roots, lance_errors
from omnigraph_ops.models.health import BranchFinding
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.storage.location import real_place


def branch_findings(graph: Graph, *, covered: Collection[tuple[str | None, str]]) -> tuple[BranchFinding, ...]:
    """Tables of named branches whose published version is gone, or that are ahead of it. Reads.

    Costs one listing for each chain of a dataset that a branch publishes otherwise than main does.

    Args:
        covered: branches and tables that a sidecar explains.

    Raises:
        InvalidInput: a branch cannot be looked at for the name of the graph's folder.
    """
    on_main = {entry.path: entry.version for entry in graph.state().entries if entry.branch is None}

    @cache
    def stored(path: str, chain: str | None) -> frozenset[int]:
        return stored_versions(graph.storage, chain_folder(path, chain))

    def one(branch: str) -> list[BranchFinding]:
        try:
            entries = graph.state(branch).entries
        except OpsError as error:
            if "?" in graph.uri:  # it is this tool that finds no branch there: the engine of stamp 3 does
                raise InvalidInput(str(error)) from error
            # Deleted meanwhile, or nobody can read it.
            return [unreadable(branch, MANIFEST_DIR)] if branch in graph.branches() else []
        return [
            finding
            for entry in entries
            if entry.branch is not None or on_main.get(entry.path) != entry.version
            if (finding := _finding(branch, entry, stored(entry.path, entry.branch))) is not None
            if finding.lance_head_version is None or (branch, entry.table_key) not in covered
        ]

    names = [name for name in graph.branches() if not name.startswith(EXPIRY_BRANCH_PREFIX)]
    found = in_parallel(one, names, workers=graph.settings.concurrency)
    return tuple(finding for findings in found for finding in findings)


def unreadable(branch: str, table_key: str, *, recoverable: bool = False) -> BranchFinding:
    """That a dataset cannot be read on a branch. Pure."""
    return BranchFinding(
        branch=branch, table_key=table_key, manifest_version=0, lance_head_version=None, recoverable=recoverable
    )


def _finding(branch: str, entry: TableEntry, stored: frozenset[int]) -> BranchFinding | None:
    """What is wrong with one table of a branch, by the versions of its chain that are there. Pure."""
    is_gone = entry.version not in stored
    # A chain that the branch only reads goes on without it.
    if not is_gone and (entry.branch != branch or max(stored) == entry.version):
        return None
    return BranchFinding(
        branch=branch,
        table_key=entry.table_key,
        manifest_version=entry.version,
        lance_head_version=None if is_gone else max(stored),
    )


def moved_branches(graph: Graph, findings: Sequence[BranchFinding]) -> dict[str, str]:
    """Where a graph was when a branch of it that nobody can read was made, if that is another place. Reads."""
    moved = dict[str, str]()
    for branch in {f.branch for f in findings if f.table_key == MANIFEST_DIR and not f.recoverable}:
        with contextlib.suppress(OpsError):
            for base in base_roots(graph.manifest(branch)):
                root = base.rsplit("/", 1)[0]
                if _place(graph, root) != _place(graph, graph.uri):
                    moved[branch] = root
    return moved


def _place(graph: Graph, root: str) -> str:
    return root.removeprefix("s3://") if graph.uri.startswith("s3://") else real_place(root)


def branch_advice(findings: Sequence[BranchFinding], moved: Mapping[str, str]) -> Iterator[str]:
    """What to do about each branch, given where those of a graph that was moved look for their files. Pure."""
    for root in sorted(set(moved.values())):
        named = ", ".join(repr(branch) for branch, where in sorted(moved.items()) if where == root)
        yield (
            f"cannot read {named}, because the graph was at {root!r} when these branches were made and was moved or "
            "copied since; main is not affected; have the graph at that place again, or `omnigraph-ops restore` a "
            "backup of it to the place that you want; delete no branch for this"
        )
    for branch in sorted({f.branch for f in findings} - moved.keys()):
        left = [f for f in findings if f.branch == branch and not f.recoverable]
        gone = sorted(f.table_key for f in left if f.lance_head_version is None)
        ahead = sorted(f.table_key for f in left if f.lance_head_version is not None)
        if gone:
            yield (
                f"branch {branch!r} publishes versions that are gone, of {', '.join(gone)}: nobody can read them; main "
                "is not affected; delete the branch with omnigraph when nobody needs its other tables"
            )
        if ahead:
            yield (
                f"branch {branch!r} has writes that were never published, of {', '.join(ahead)}: the engine refuses to "
                "write these tables there, and neither it nor `recover` settles that; main is not affected; merge the "
                "branch or delete it with omnigraph"
            )


def internal_damage(graph: Graph, *, audited: bool) -> tuple[str, ...]:
    """Why internal datasets beside the graph manifest cannot be read, a sentence each. Reads.

    Args:
        audited: whether something is about to be written into the recovery audit.
    """
    found = []
    for path in (*graph.format.lineage_datasets, *([RECOVERIES_DIR] if audited else [])):
        try:
            dataset = graph.open_at(path)
            with lance_errors(f"read {dataset.uri}"):
                dataset.to_table(columns=dataset.schema.names[:1])
        except DatasetMissing:
            continue
        except LanceFailure as error:
            found.append(str(error))
    return tuple(found)


def expiry_advice(graph: Graph) -> Iterator[str]:
    """What to do about branches of row expiry that no run works on: to the engine they are the graph's. Reads."""
    left = _expiry_branches(graph)
    if not left or working_holder(graph.storage, EXPIRE_ROWS_LEASE_PATH) is not None:
        return
    # A run that has just ended dropped its branch before it released the lease.
    if left := left & _expiry_branches(graph):
        yield (
            f"an `expire-rows` that did not end left branch {', '.join(map(repr, sorted(left)))}: beside it the engine "
            "refuses schema applies; run `omnigraph-ops expire-rows` with --confirm, or delete it with omnigraph"
        )


def _expiry_branches(graph: Graph) -> frozenset[str]:
    return frozenset(n for n in graph.stored_branches(MANIFEST_DIR) if n.startswith(EXPIRY_BRANCH_PREFIX))


def schema_mismatch(graph: Graph) -> tuple[str, ...]:
    """Tables that are either in the accepted schema or in the graph manifest, but not in both. Reads both anew."""
    if not graph.format.publishes:
        return ()
    try:
        declared = graph.format.read_catalog(graph.storage).identities
    except OpsError:
        return ()  # a schema apply is replacing it; whoever opens the graph is told why it cannot be read
    return tuple(sorted({key for key, _ in declared ^ graph.state().identities}))


def mismatch_advice(tables: Sequence[str]) -> Iterator[str]:
    """What to do about tables that only one side knows. Pure."""
    if tables:
        yield (
            f"the accepted schema and __manifest disagree about {', '.join(tables)}: the engine cannot use them, nor "
            "other tables perhaps; a schema apply ended half way; restore the graph from a backup"
        )
